"""What only programs have: exit statuses, hangs, too much said, a program that isn't there."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activities.ports import NotAllowed, NotSent, Unclear, Unreadable, Verb
from activities.providers.command import provider as command
from activities.providers.command.provider import CommandProvider, make
from activities.registry import ConfigurationError
from medevac.fleet.node import Capability, Machine, Node
from tests.integration.providers.command_rig import CommandRig
from tests.integration.providers.neocloud import Neocloud

TAG = "inc-1"
NODE = Node(
    cluster="prod", name="gpu-1", pool="train",
    machine=Machine(provider="own", id="m-1; touch never", image="ubuntu-24.04"),
)  # fmt: skip
Script = Callable[[str], CommandProvider]


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., CommandProvider]:
    """A provider all of whose programs are this one."""

    def write(text: str, **options: Any) -> CommandProvider:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        names = ("state", "reboot", "proceed", "locate", "evidence", "check")
        return make("own", {"commands": {name: [str(path), name] for name in names}} | options)

    return write


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(75, "later"), (77, "final"), (65, "final"), (64, "final"), (78, "final"), (1, "unclear"), (2, "unclear"),
     (63, "unclear"), (79, "unclear"), (127, "unclear")],
)  # fmt: skip
def test_each_exit_status_has_one_meaning(script: Script, status: int, outcome: str) -> None:
    provider = script(f"echo 'no luck' >&2; exit {status}")
    with pytest.raises((NotSent, Unclear), match="no luck") as caught:
        provider.do(Verb.REBOOT, NODE, TAG)
    error = caught.value
    assert ("unclear" if isinstance(error, Unclear) else "final" if error.final else "later") == outcome
    with pytest.raises(Unreadable) as unread:
        provider.state(NODE, TAG)
    assert isinstance(unread.value, NotAllowed) is (status == 77)


def test_it_says_when_it_may_be_asked_again(script: Script) -> None:
    with pytest.raises(NotSent) as caught:
        script("""echo '{"retry_after_s": 12}'; exit 75""").do(Verb.REBOOT, NODE, TAG)
    assert caught.value.retry_after_s == 12


def test_it_is_told_whose_machine_and_nothing_is_ever_a_command(script: Script, tmp_path: Path) -> None:
    provider = script(f"cat > {tmp_path}/told; echo '{{\"answer\": \"'$1'\"}}'")
    assert provider.do(Verb.REBOOT, NODE, TAG) == "reboot"
    told = json.loads((tmp_path / "told").read_text())
    assert (told["verb"], told["tag"], told["node"]) == ("reboot", TAG, "gpu-1")
    assert told["machine"]["id"] == NODE.machine.id
    assert told["machine"]["image"] == "ubuntu-24.04"
    assert not Path("never").exists()


def test_it_sees_only_the_variables_that_it_is_given(
    script: Callable[..., CommandProvider], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDEVAC_SECRET", "of the worker")
    monkeypatch.setenv("CLOUD_TOKEN", "of the cloud")
    script(f"env > {tmp_path}/env", environment=["CLOUD_TOKEN"]).do(Verb.REBOOT, NODE, TAG)
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "CLOUD_TOKEN" in names
    assert names - {"CLOUD_TOKEN"} <= {"PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}


def test_one_that_hangs_ends_with_all_that_it_started(script: Callable[..., CommandProvider], tmp_path: Path) -> None:
    provider = script(f"sleep 600 & echo $! > {tmp_path}/child; sleep 600", timeout_s=4.0)
    with pytest.raises(Unclear, match="no answer within 4 s"):
        provider.do(Verb.REBOOT, NODE, TAG)
    child = int((tmp_path / "child").read_text())
    for _ in range(1_200):
        if _ended(child):
            return
        time.sleep(0.05)
    raise AssertionError("its child runs on")


def test_one_that_may_not_be_ended_is_unclear(
    script: Callable[..., CommandProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has become root by sudo: it was started, so nobody may say that nothing was done."""
    end = os.killpg

    def refuse(group: int, signal: int) -> None:
        end(group, signal)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", refuse)
    with pytest.raises(Unclear, match="no answer within"):
        script("exec sleep 600", timeout_s=0.2).do(Verb.REBOOT, NODE, TAG)


def test_a_secret_that_it_was_given_is_not_said_again(
    script: Callable[..., CommandProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", "plain-words-17")
    given = {"environment": ["CLOUD_TOKEN"]}
    with pytest.raises(Unclear, match=r"curl -u fleet \[redacted\]"):
        script('echo "curl -u fleet $CLOUD_TOKEN" >&2; exit 3', **given).do(Verb.REBOOT, NODE, TAG)
    loud = script("""echo "{\\"answer\\": \\"$CLOUD_TOKEN is in\\", \\"missing\\": [\\"$CLOUD_TOKEN\\"]}\"""", **given)
    assert loud.do(Verb.REBOOT, NODE, TAG) == "[redacted] is in"
    assert loud.missing_rights() == ["[redacted]"]


def test_one_that_never_ends_talking_is_stopped(script: Script) -> None:
    with pytest.raises(Unclear, match="more than 1000000 bytes"):
        script("yes").do(Verb.REBOOT, NODE, TAG)
    with pytest.raises(Unreadable, match="more than 1000000 bytes"):
        script("yes").state(NODE, TAG)


@pytest.mark.parametrize("answer", ["nonsense", "[1]", '{"ready": true}', '{"exists": "perhaps"}'])
def test_an_answer_that_says_nothing_is_no_reading(script: Script, answer: str) -> None:
    with pytest.raises(Unreadable):
        script(f"echo '{answer}'").state(NODE, TAG)


def test_done_with_an_answer_that_cannot_be_read_is_unclear(script: Script) -> None:
    with pytest.raises(Unclear):
        script("echo nonsense").do(Verb.REBOOT, NODE, TAG)


def test_a_program_that_is_not_there_is_nothing_it_can(tmp_path: Path) -> None:
    there = tmp_path / "state"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o700)
    provider = make("own", {"commands": {"state": [str(there)], "reboot": [str(tmp_path / "reboot")]}})
    assert provider.capabilities(NODE) == {Capability.POWER_STATE}
    assert provider.missing_rights() == [f"{tmp_path}/reboot, for reboot, is not there or can't be run"]
    with pytest.raises(NotSent, match="can't reboot") as refused:
        provider.do(Verb.REBOOT, NODE, TAG)
    assert refused.value.final


def test_one_that_cannot_be_started_was_not_sent(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o700)
    provider = make("own", {"commands": {"state": [str(broken)], "reboot": [str(broken)]}})
    with pytest.raises(NotSent) as refused:
        provider.do(Verb.REBOOT, NODE, TAG)
    assert refused.value.final
    with pytest.raises(Unreadable):
        provider.state(NODE, TAG)


def test_a_dry_run_runs_nothing_that_changes_something(script: Callable[..., CommandProvider], tmp_path: Path) -> None:
    provider = script(f"echo $1 >> {tmp_path}/ran; echo '{{\"exists\": true}}'", dry_run=True)
    with pytest.raises(NotSent, match="dry run, nothing was done") as refused:
        provider.do(Verb.REBOOT, NODE, TAG)
    assert refused.value.final
    assert provider.proceed(Verb.REBOOT, NODE, TAG) is None
    assert provider.release(NODE, TAG, frozenset()) == ()
    assert provider.state(NODE, TAG).exists
    assert (tmp_path / "ran").read_text() == "state\n"


def test_what_takes_several_calls_is_carried_on(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = script(f'cat >> {tmp_path}/told; echo \'{{"did": "started it"}}\'')
    monkeypatch.setattr(command, "POLL_S", 3_600.0)
    assert provider.proceed(Verb.REBOOT, NODE, TAG) == "started it"
    assert provider.proceed(Verb.REBOOT, NODE, TAG) is None, "not at every look"
    monkeypatch.setattr(command, "POLL_S", 0.0)
    assert provider.proceed(Verb.REBOOT, NODE, TAG) == "started it"
    assert (tmp_path / "told").read_text().count('"of": "reboot"') == 2


def test_located_and_told_of(script: Script) -> None:
    provider = script(
        """echo '{"exists": true, "serial": "SN-1", "virtual": false, "pieces": {"console.txt": "hm"}}'"""
    )
    found = provider.locate("m-1")
    assert found == Machine(provider="own", id="m-1", serial="SN-1", virtual=False)
    assert list(provider.evidence(NODE, TAG)) == [("console.txt", b"hm")]
    assert script("echo '{\"exists\": false}'").locate("m-1") is None


def test_no_secret_of_a_program_is_passed_on(script: Script) -> None:
    with pytest.raises(Unclear) as caught:
        script("echo 'token=hunter2hunter2' >&2; exit 1").do(Verb.REBOOT, NODE, TAG)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ({"reboot": ["x"]}, "`state` is needed"),
        ({"state": ["x"], "request": ["x"]}, "needs a `release`"),
        ({"state": []}, "empty"),
        ({"state": ["x"], "explode": ["x"]}, "explode"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_configured(commands: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make("own", {"commands": commands})


# -- the shipped example ---------------------------------------------------------------------------------------


def test_the_example_says_what_its_token_may_not(neocloud: Neocloud, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = CommandRig(neocloud)
    assert rig.command.missing_rights() == []
    monkeypatch.setenv("NEOCLOUD_TOKEN", "wrong")
    with pytest.raises(NotAllowed, match="77"):
        rig.command.missing_rights()
    with pytest.raises(NotSent) as refused:
        rig.command.do(Verb.REBOOT, rig.node, TAG)
    assert refused.value.final


def test_the_example_passes_an_ordered_image_on(neocloud: Neocloud) -> None:
    rig = CommandRig(neocloud)
    machine = rig.node.machine.model_copy(update={"image": "ubuntu-24.04"})
    rig.command.do(Verb.REINSTALL, rig.node.model_copy(update={"machine": machine}), TAG)
    assert neocloud.given[-1] == {"type": "reinstall", "image": "ubuntu-24.04"}
    assert list(rig.command.evidence(rig.node, TAG)) == [("console.txt", b"boot")]


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return True  # somebody else's by now
    try:  # nobody may wait for it where there is no init
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
