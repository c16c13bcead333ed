"""Where the last checkpoint shows of jobs that don't speak the checkpoint protocol."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from medevac.fleet.node import Workload
from medevac.policy.checkpoints import seen
from medevac.policy.settings import Checkpoint

AT = datetime(2026, 5, 4, 10, tzinfo=UTC)
WORK = Workload(name="nlp/PyTorchJob/sft", kind="PyTorchJob", times={"example.com/last": AT})
BY_NOTE = Checkpoint(kinds=("PyTorchJob",), annotation="example.com/last")
BY_COMMAND = Checkpoint(namespaces=("nlp",), command="s3-complete")


def test_the_annotation_that_the_policy_names_counts() -> None:
    assert seen(WORK, [BY_NOTE]).last_checkpoint == AT


@pytest.mark.parametrize(
    "entry",
    [
        Checkpoint(kinds=("JobSet",), annotation="example.com/last"),
        Checkpoint(namespaces=("vision",), annotation="example.com/last"),
        Checkpoint(annotation="example.com/other"),
        Checkpoint(interval=1800),
    ],
)
def test_one_that_is_not_about_it_or_shows_nothing_is_none(entry: Checkpoint) -> None:
    assert seen(WORK, [entry]).last_checkpoint is None


def test_a_jobs_own_word_goes_before() -> None:
    own = AT - timedelta(hours=1)
    assert seen(WORK.model_copy(update={"last_checkpoint": own}), [BY_NOTE]).last_checkpoint == own


def test_a_command_is_asked_by_its_name_and_only_when_needed() -> None:
    asked: list[tuple[str, str]] = []

    def probe(command: str, work: Workload) -> datetime | None:
        asked.append((command, work.name))
        return AT if len(asked) > 1 else None

    assert seen(WORK, [BY_NOTE, BY_COMMAND], probe).last_checkpoint == AT
    assert asked == []
    assert seen(WORK, [BY_COMMAND], probe).last_checkpoint is None
    assert seen(WORK, [BY_COMMAND], probe).last_checkpoint == AT
    assert asked == [("s3-complete", WORK.name)] * 2
    assert seen(WORK, [BY_COMMAND]).last_checkpoint is None
