"""Text and JSON as senders deliver them, read strictly; and text as it may be stored and shown."""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import Any, Literal, NoReturn

from pydantic import JsonValue

from medevac.events.parsing import MAX_PAYLOAD_BYTES, ParseError, Payload

MAX_DEPTH = 64
MAX_SUMMARY = 500

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
"""What moves a line, or can't be told from a blank, or from nothing, in it."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def clean(text: str) -> str:
    """Without what UTF-8 or a database can't hold (lone surrogates, NUL)."""
    return _UNSTORABLE.sub("\ufffd", text)


def one_line(text: str, limit: int = MAX_SUMMARY) -> str:
    """Printable on one line, at most `limit` characters."""
    flat = " ".join(_CONTROL.sub(" ", clean(text[: limit * 8])).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def quote(value: object, limit: int = 80) -> str:
    """A payload's value as it may stand in an error line: a string as it is, with its blanks, and controls escaped."""
    if not isinstance(value, str):
        return one_line(json.dumps(value, default=str)[: limit * 4], limit)
    text = clean(value if len(value) <= limit else value[: limit - 1] + "…")
    return '"' + _UNSEEN.sub(lambda m: m[0].encode("unicode_escape").decode(), text) + '"'


def as_utf8(body: bytes) -> bytes:
    """The body without its byte order mark, from UTF-16 where the mark says so (PowerShell's `>` writes that).

    What is broken in it stays broken, so that the parser decides what becomes of it. Raises for UTF-32."""
    if body.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise ParseError("body is UTF-32 text; send it as UTF-8")
    if body.startswith(codecs.BOM_UTF8):
        return body[len(codecs.BOM_UTF8) :]
    if not body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or len(body) > MAX_PAYLOAD_BYTES:
        return body
    whole = len(body) & ~1
    rest = b"\xff" if len(body) > whole else b""  # no UTF-8, as half a character is none
    return body[:whole].decode("utf-16", "surrogatepass").encode("utf-8", "surrogatepass") + rest


def read_text(body: bytes, errors: Literal["strict", "replace"] = "strict") -> str:
    """UTF-8, with or without byte order mark; of UTF-16 the registry makes it (`as_utf8`).

    Logs are read with `replace`: one odd byte must not hide a fault."""
    if len(body) > MAX_PAYLOAD_BYTES:
        raise ParseError(f"body has {len(body)} bytes, more than the {MAX_PAYLOAD_BYTES} allowed")
    try:
        return body.decode("utf-8-sig", errors)
    except UnicodeDecodeError as e:
        raise ParseError(f"body is not UTF-8 text (byte {e.start})") from None


def _constant(name: str) -> NoReturn:
    raise ParseError(f"body holds {name}, which is no JSON number")


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ParseError("body holds an integer of more than 40 digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ParseError(f"body holds the number {quote(text, 20)}, which is out of range")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ParseError(f"key {quote(twice)} stands twice in one object")
    return found


def _checked(value: Any, scrub: bool, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ParseError(f"body is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        if scrub:
            return {clean(k): _checked(v, scrub, depth + 1) for k, v in value.items()}
        for v in value.values():
            if isinstance(v, dict | list):
                _checked(v, scrub, depth + 1)
    elif isinstance(value, list):
        if scrub:
            return [_checked(v, scrub, depth + 1) for v in value]
        for v in value:
            if isinstance(v, dict | list):
                _checked(v, scrub, depth + 1)
    elif scrub and isinstance(value, str):
        return clean(value)
    return value


def json_value(text: str, what: str = "body") -> JsonValue:
    """One JSON document: no NaN, no infinity, no key twice, at most `MAX_DEPTH` deep."""
    if not text.strip():
        raise ParseError(f"{what} is empty")
    try:
        value = json.loads(
            text,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_float,
            object_pairs_hook=_object,
        )
        low = text.lower()
        return _checked(value, scrub="\\ud" in low or "\\u0000" in low or "\x00" in low)  # type: ignore[no-any-return]
    except json.JSONDecodeError as e:
        if e.pos >= len(text.rstrip()) or e.msg.startswith("Unterminated string"):
            raise ParseError(f"{what} is not valid JSON: it ends too early (line {e.lineno})") from None
        raise ParseError(f"{what} is not valid JSON: line {e.lineno} column {e.colno}: {e.msg}") from None
    except RecursionError:
        raise ParseError(f"{what} is nested deeper than {MAX_DEPTH} levels") from None


def read_json(body: bytes, what: str = "body") -> JsonValue:
    return json_value(read_text(body), what)


def looks_like_json(payload: Payload) -> bool:
    """Cheap: the first character alone. For `recognises`, together with a telling key in `payload.body`."""
    return payload.body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def peek_json(payload: Payload) -> JsonValue:
    """For `recognises`: the document, or None where there is none."""
    if not looks_like_json(payload):
        return None
    try:
        return read_json(payload.body)
    except ParseError:
        return None
