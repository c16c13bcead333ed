"""What is kept of a refused payload holds no secret, and is still read as it came: else it could never be taken."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from activities.storage.redaction import redacted
from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import parsers
from tests.unit.events.payloads import cloud_event, nvsentinel, payload
from tests.unit.events.test_aws import DIRECT, HOOK, sns, sqs
from tests.unit.events.test_every_parser import CORPUS
from tests.unit.events.test_more_shapes import SHAPES
from tests.unit.events.test_other_clouds import activity, entry, push, resource_health

GENERIC = {"node": "gpu-7", "fault": "xid/79", "entities": ["gpu:4"]}
KINDS: list[tuple[str, Any]] = [
    *CORPUS,
    ("nvsentinel", cloud_event(nvsentinel()["data"], type="com.nvidia.nvsentinel.health.v1")),
    ("generic", GENERIC),
    *((shape.source, shape.body) for shape in SHAPES.values()),
]
SECRET = "hunter2-hunter2-hunter2"


def meant(source: str, body: bytes, but: frozenset[str] = frozenset()) -> object:
    """All that is read, without what tells one payload's bytes from another's."""
    try:
        found = parsers()[source].parse(Payload(body, {}))
    except ParseError as error:
        return str(error)
    return [one.model_dump(exclude={"id", "digest", *but}) for one in found.events], [str(one) for one in found.refused]


def beside(value: Any, secrets: dict[str, Any]) -> Any:
    """The same document with these fields in each of its objects."""
    if isinstance(value, dict):
        return {**{key: beside(one, secrets) for key, one in value.items()}, **secrets}
    return [beside(one, secrets) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("source", "body"), KINDS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_kind_of_payload_is_read_as_before(source: str, body: Any) -> None:
    raw = payload(body).body
    assert meant(source, redacted(raw)) == meant(source, raw)


@pytest.mark.parametrize(
    ("source", "body"),
    [(source, body) for source, body in KINDS if isinstance(body, dict | list)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_also_with_secrets_in_every_object_and_they_are_gone(source: str, body: Any) -> None:
    secrets = {
        "authorization": {"action": "x/read", "scope": "/s"},
        "authorizationInfo": [{"permission": "compute.instances.get", "granted": True}],
        "imagePullSecrets": [{"name": "registry"}],
        "tokens": 5,
        "secret": None,
        "db_password": f'{SECRET} \\ " {SECRET}',
        "apiTokens": [SECRET, {"note": "a"}],
    }
    raw = json.dumps(beside(body, secrets)).encode()
    safe = redacted(raw)
    assert SECRET.encode() not in safe
    kept = json.loads(safe.splitlines()[0])
    for one in kept if isinstance(kept, list) else [kept]:
        assert {name: one[name] for name in list(secrets)[:5]} == {name: secrets[name] for name in list(secrets)[:5]}
    if source != "generic":  # which refuses names that it doesn't know
        copied = frozenset({"detail"})
        assert meant(source, safe, copied) == meant(source, raw, copied)


def test_a_hook_keeps_the_token_that_completes_it() -> None:
    for body in (sqs({**DIRECT, **HOOK}), sns({**DIRECT, **HOOK}), {**DIRECT, **HOOK}):
        raw = json.dumps(body).encode()
        assert redacted(raw) == raw


@pytest.mark.parametrize(
    "packed",
    [
        {"Message": json.dumps({"Records": json.dumps({"password": SECRET, "é": "ü"})})},
        {"message": {"data": base64.b64encode(json.dumps({"password": SECRET, "n": 1.50}).encode()).decode()}},
        {"data_base64": base64.urlsafe_b64encode(f"Authorization: Bearer {SECRET}??>>".encode()).decode()},
    ],
)
def test_documents_within_strings_are_looked_into(packed: dict[str, Any]) -> None:
    safe = redacted(json.dumps(packed).encode())
    text = safe.decode()
    for value in json.loads(safe).values():
        inner = value["data"] if isinstance(value, dict) else value
        if not inner.startswith("{"):
            text += base64.b64decode(inner, b"-_" if set("-_") & set(inner) else None).decode()
    assert SECRET not in text
    assert "***" in text


def test_wrapped_fixtures_change_only_where_a_secret_stands() -> None:
    for body in (push(entry("hostError")), activity(resource_health("Degraded")), sqs(sns({**DIRECT, **HOOK}))):
        raw = json.dumps(body, indent=2).encode()
        assert redacted(raw) == raw


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"Authorization: Bearer {SECRET}", SECRET),
        (f"authorization: Token {SECRET}\nx: y", SECRET),
        ("proxy-authorization: Basic aHVudGVyMjpodW50ZXIy", "aHVudGVyMjpodW50ZXIy"),
        (f"curl https://medevac:{SECRET}@gateway/v1/events/kmsg", SECRET),
        ("https://hooks.slack.com/services/T000/B000/abcdefgh", "abcdefgh"),
        (f"https://in.example/hook?a=1&sig={SECRET}&b=2", SECRET),
        (f"routing_key={SECRET}", SECRET),
        ("AKIAHUNTER2HUNTER2AA", "HUNTER2HUNTER2"),
        (f"aws_secret_access_key = {SECRET}", SECRET),
        ("whsec_aHVudGVyMmh1bnRlcjI=", "aHVudGVyMmh1bnRlcjI"),
        ("sk-proj-hunter2hunter2hunter2", "hunter2hunter2hunter2"),
        (f"{{'password': '{SECRET} x'}}", SECRET),
        (f'{{"broken": 1, "password": "{SECRET} {SECRET}", ', SECRET),
        (f'{{"a": 1}}\n{{"password": "{SECRET}"}}\npassword: {SECRET}\n', SECRET),
        ('password: "correct horse battery"', "battery"),
        ("password: 'correct horse battery'", "battery"),
        ('{"name":"Authorization","value":"Custom hunter2"}', "hunter2"),
        ('[{"name": "DB_PASSWORD", "value": "correct horse"}]', "horse"),
        ("glpat-hunter2hunter2hunter2", "hunter2"),
        ("github_pat_11HUNTER2_hunter2hunter2", "hunter2"),
        ('Authorization: Digest username="u", realm="r", response="6629fae49393a05397450978507c4ef1"', "6629fae4"),
        (f"AWS4-HMAC-SHA256 Credential=x/y, SignedHeaders=host, Signature={'0f' * 32}", "0f0f0f"),
    ],
)
def test_secrets_are_gone_in_text_and_in_strings_of_json(text: str, secret: str) -> None:
    for raw in (text, json.dumps({"description": text}), json.dumps([{"Message": json.dumps({"text": text})}])):
        safe = redacted(raw.encode()).decode()
        assert secret not in safe
        assert "***" in safe


@pytest.mark.parametrize("code", ["utf-16", "utf-8-sig"])
def test_also_as_a_shell_of_windows_writes_it(code: str) -> None:
    for text in (json.dumps({"password": SECRET, "node": "n1"}), f"password: {SECRET}"):
        safe = redacted(text.encode(code))
        assert safe.decode(code) == text.replace(SECRET, "***")
    assert redacted(b"\xff\xfea\x00b") == b"\xff\xfea\x00b"


def test_names_of_machines_are_no_keys_and_what_is_no_text_stays() -> None:
    raw = b'{"node": "sk-seoul-rack-0007-gpu-001", "a": 1.50, "a": 1e400, "n": 123456789012345678901234567890}'
    assert redacted(raw) == raw
    assert redacted(b"\xff\xfe{\x00\x80") == b"\xff\xfe{\x00\x80"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (
            '{"_TRANSPORT":"kernel","MESSAGE":"x"}\n-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n'
            "-----END RSA PRIVATE KEY-----\n",
            "MIIEpAIBAAKCAQEA7",
        ),
        ("[]\npassword:\n  hunter2", "hunter2"),
        ("password:\n  hunter2\n{}\n{}\ntoken:\n  hunter2", "hunter2"),
    ],
)
def test_a_secret_of_several_lines_is_gone_also_beside_lines_of_json(text: str, secret: str) -> None:
    safe = redacted(text.encode()).decode()
    assert secret not in safe
    assert [line for line in safe.split("\n") if line[:1] in "{[" and line] == [
        line for line in text.split("\n") if line[:1] in "{[" and line
    ]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ('{"https://user:hunter2@host/x": 1}', '{"https://user:***@host/x": 1}'),
        ('{"Authorization: Bearer abcdefgh1234": "x"}', '{"Authorization: ***": "***"}'),
        ('{"password": 123456789}', '{"password": 0}'),
        ('{"password": [-1.5e3, 2], "a": 7}', '{"password": [0, 0], "a": 7}'),
        ('{"name": "api_key", "value": 123456789}', '{"name": "api_key", "value": 0}'),
        ('{"a": 1, "password": 123456789', '{"a": 1, "password": 0'),
        ('{"Message": "{\\"password\\": 123456789"}', '{"Message": "{\\"password\\": 0"}'),
        ('{"tokens": 5, "token_count": 70000, "secret_version": 3}', None),
        ('{"tokens": 5, "max_tokens": 70000, "a": ', None),
        ('{"name": "Token service is down", "value": "x", "password": true}', None),
    ],
)
def test_names_and_numbers_are_masked_and_counts_stay(text: str, safe: str | None) -> None:
    assert redacted(text.encode()).decode() == (safe or text)
