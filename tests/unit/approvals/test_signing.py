"""A vote counts when the gateway signed it, as it stands, and not otherwise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from medevac.approvals.approval import Verdict, Vote
from medevac.approvals.signing import BadKey, Signatures, Signer, new_key
from tests.votes import KEYS, SIGNER

VOTE = Vote(
    approval="inc-1-abc",
    voter="ada",
    groups=("approver",),
    verdict=Verdict.REJECT,
    reason="not tonight",
    shown_hash="0123456789abcdef",
    via="slack",
    at=datetime(2026, 3, 1, 12, tzinfo=UTC),
)


def test_what_the_gateway_signed_counts_and_survives_the_journey() -> None:
    signed = Vote.model_validate_json(SIGNER.sign(VOTE).model_dump_json())
    assert Signatures(KEYS).genuine(signed)


@pytest.mark.parametrize(
    "forged",
    [
        {"verdict": "approve"},
        {"voter": "grace"},
        {"groups": ("approver", "capacity-owners")},
        {"approval": "inc-2-abc"},
        {"shown_hash": "fedcba9876543210"},
        {"signature": ""},
        {"signature": "not base64 !"},
        {"signature": "AAAA"},
    ],
)
def test_any_change_voids_it(forged: dict[str, Any]) -> None:
    changed = Vote.model_validate(SIGNER.sign(VOTE).model_dump() | forged)
    assert not Signatures(KEYS).genuine(changed)


def test_another_key_and_no_key_are_no_gateway() -> None:
    private, public = new_key()
    assert not Signatures(KEYS).genuine(Signer(private).sign(VOTE))
    assert not Signatures(()).genuine(SIGNER.sign(VOTE))
    assert Signatures((*KEYS, public)).genuine(Signer(private).sign(VOTE)), "two keys while one takes over"


def test_a_bad_key_is_refused_without_being_told() -> None:
    with pytest.raises(BadKey, match="PEM") as caught:
        Signer("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(BadKey, match="PEM"):
        Signatures(["nonsense"])
