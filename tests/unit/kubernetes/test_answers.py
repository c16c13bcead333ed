"""What each answer of an API server means for the caller: made again, never again, or told to a person."""

from __future__ import annotations

import pytest

from activities.kubernetes.client import Answer, url
from activities.ports import NotSent, Unclear


def said(code: int, message: str = "", **more: float) -> NotSent | Unclear:
    return Answer(code, {"message": message}, **more).error()


@pytest.mark.parametrize("code", [401, 403, 409, 429, 503])
def test_a_refusal_that_may_pass_is_tried_again(code: int) -> None:
    error = said(code)
    assert isinstance(error, NotSent)
    assert not error.final


@pytest.mark.parametrize("code", [400, 404, 405, 413, 422])
def test_a_request_that_is_wrong_stays_wrong(code: int) -> None:
    error = said(code)
    assert isinstance(error, NotSent)
    assert error.final


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (500, 'Internal error occurred: failed calling webhook "x": context deadline exceeded'),
        (400, 'admission webhook "x" denied the request: not on Fridays'),
        (422, "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: not on Fridays"),
    ],
)
def test_admission_had_no_effect_and_may_change_its_mind(code: int, message: str) -> None:
    error = said(code, message)
    assert isinstance(error, NotSent)
    assert not error.final
    assert message in str(error)


@pytest.mark.parametrize(("code", "message"), [(500, "etcdserver: request timed out"), (502, ""), (504, "")])
def test_what_may_have_been_written_is_unclear(code: int, message: str) -> None:
    assert isinstance(said(code, message), Unclear)


def test_the_servers_wish_to_wait_is_kept() -> None:
    error = said(429, retry_after_s=7.0)
    assert isinstance(error, NotSent)
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize("name", ["../pods", "a/b", "a?b=c", "a%2Fb"])
def test_a_name_is_never_more_than_one_segment(name: str) -> None:
    assert url("api", "v1", "nodes", name).count("/") == 4
    assert "?" not in url(name)
