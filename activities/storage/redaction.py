"""Payloads without their secrets, still in the form in which their parser reads them."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from itertools import groupby

MASK = "***"
MAX_LAYERS = 6
"""Documents within strings of documents (SQS, SNS, Pub/Sub) that are looked into."""

_WORD = (
    r"(?:pass(?:word|wd|phrase)|secret|(?<!lifecycleaction)token|authorization|credential"
    r"|(?:api|access|private|signing|routing|service|integration|webhook)[_-]?key(?!id))[a-z0-9_-]{0,40}"
)
"""AWS' `LifecycleActionToken` stays: without it a hook that is submitted again can't be completed, and it is of no use
to whoever may not complete one."""
_KEY = re.compile(_WORD, re.IGNORECASE)
_ONE = _WORD.removesuffix("[a-z0-9_-]{0,40}")
"""Numbers under names that end so are masked. Under others, `tokens` or `token_count`, they count something."""
_ONE_KEY = re.compile(rf"{_ONE}$", re.IGNORECASE)
_ONE_NUMBER = re.compile(rf"({_ONE}\\{{0,8}}[\"']\s{{0,4}}[:=]\s{{0,4}})-?\d[\d.eE+-]{{0,400}}", re.IGNORECASE)
_NO_NUMBER = "0"
_NAMES = frozenset({"name", "key", "header"})
"""Where a pair says what its `value` is."""
_VARIABLE = re.compile(r"[\w.-]{1,200}")
_TEXT = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (r"((?:bearer|basic)\s+)[a-z0-9._~+/=-]{8,}", re.IGNORECASE),
        (
            r"(authorization\s{0,4}[:=]\s{0,4})(?:[a-z]{1,20}\s{1,4})?[^\"'\\\s,}&{\[][^\"'\\\s,}&]{0,4096}",
            re.IGNORECASE,
        ),
        # A quoted name has a quoted value: what else JSON holds there is no secret, and must stay as it is.
        (_WORD.join((r"(", r"\"\s{0,4}[:=]\s{0,4}\")(?:[^\"\\]|\\.){1,4096}")), re.IGNORECASE),
        (_WORD.join((r"(", r"'\s{0,4}[:=]\s{0,4}')(?:[^'\\]|\\.){1,4096}")), re.IGNORECASE),
        (_WORD.join((r"(", r"\\{1,8}[\"']\s{0,4}[:=]\s{0,4}\\{1,8}[\"'])[^\"'\\]{1,4096}")), re.IGNORECASE),
        # Quoted after a bare name: all of it, and not its first word alone.
        (_WORD.join((r"(", r"\s{0,4}[:=]\s{0,4}\")(?:[^\"\\\s,}\]]|\\.)(?:[^\"\\]|\\.){0,4096}")), re.IGNORECASE),
        (_WORD.join((r"(", r"\s{0,4}[:=]\s{0,4}')(?:[^'\\\s,}\]]|\\.)(?:[^'\\]|\\.){0,4096}")), re.IGNORECASE),
        (_WORD.join((r"(", r"\s{0,4}[:=]\s{0,4}\\{1,8}[\"'])[^\"'\\\s,}\]][^\"'\\]{0,4096}")), re.IGNORECASE),
        (_WORD.join((r"(", r"\s{0,4}[:=]\s{0,4}[\"']?)[^\"'\\\s,}&{\[][^\"'\\\s,}&]{0,4096}")), re.IGNORECASE),
        (r"([?&](?:sig|signature|key|code|x-amz-signature|x-goog-signature)=)[^\"'\\\s&]{1,4096}", re.IGNORECASE),
        (r"(://hooks\.slack\.com/(?:services|workflows|triggers)/)[^\"'\\\s]{1,400}", re.IGNORECASE),
        (r"(://[^/\s:@\"']{0,200}:)[^/\s@\"']{1,200}(?=@)", 0),
        (r"(\bAKIA|\bASIA)[A-Z0-9]{10,250}", 0),
        # Of Digest and of AWS4: 32 hexadecimal digits or more.
        (r"(\b(?:response|signature)=\\{0,8}[\"']?)[0-9a-f]{32,128}", re.IGNORECASE),
        (r"(\bglpat-|\bgithub_pat_)[A-Za-z0-9_-]{10,250}", 0),
        (r"(\bxox[a-z]-|\bwhsec_|\bgh[a-z]_)[A-Za-z0-9+/=-]{10,250}", 0),
        # Machines may be called `sk-…`: a key goes on without a hyphen.
        (r"(\bsk-(?:proj-|svcacct-|ant-[a-z0-9]{1,8}-)?)[A-Za-z0-9_]{16,250}[A-Za-z0-9_-]{0,250}", 0),
        (r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[^-]{1,20000}", 0),
    )
)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|-?\d[\d.eE+-]*', re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")


def redacted(body: bytes) -> bytes:
    """Values that look like secrets become `***`; everything else, and so the format, stays.

    Of JSON strings are replaced, also in documents within its strings, and numbers by 0, so that it parses as before.
    """
    for mark, code in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if body.startswith(mark):
            whole = len(body) & ~1
            text = body[len(mark) : whole].decode(code, "surrogatepass")
            return mark + _text(text, 0).encode(code, "surrogatepass") + body[whole:]
    return _text(body.decode("utf-8", "surrogateescape"), 0).encode("utf-8", "surrogateescape")


def _text(text: str, layer: int) -> str:
    if _is_json(text):
        return _document(text, layer)
    lines = text.split("\n")
    runs = ((is_json, "\n".join(run)) for is_json, run in groupby(lines, _is_json))
    return "\n".join(_documents(run, layer) if is_json else _prose(run) for is_json, run in runs)


def _documents(lines: str, layer: int) -> str:
    return "\n".join(_document(line, layer) for line in lines.split("\n"))


def _is_json(text: str) -> bool:
    bare = text.lstrip("\ufeff \t\r\n")
    if not bare.startswith(("{", "[")):
        return False
    try:
        json.loads(bare, strict=False, parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True


def _document(text: str, layer: int) -> str:
    """Replaced where they stand, so that numbers, spaces and keys that stand twice stay as they came."""
    done: list[str] = []
    at = 0
    within: list[tuple[bool, str]] = []
    """For each open bracket: whether it is an object, and under which name it stands."""
    pairs: list[str] = []
    """For each open bracket: of what its `value` is, as the name beside it says."""
    name, is_name = "", False

    def put(token: re.Match[str], safe: str) -> None:
        nonlocal at
        done.extend((text[at : token.start()], safe))
        at = token.end()

    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{" | "[" as bracket:
                within.append((bracket == "{", name))
                pairs.append("")
                is_name = bracket == "{"
            case "}" | "]":
                _, name = within.pop()
                pairs.pop()
                is_name = False
            case ":":
                is_name = False
            case ",":
                is_name = within[-1][0]
            case number if number[0] != '"':
                if _ONE_KEY.search(_named(name, pairs)):
                    put(token, _NO_NUMBER)
            case string:
                value = str(json.loads(string, strict=False))
                if is_name:
                    name = value
                elif within and within[-1][0] and name.lower() in _NAMES:
                    pairs[-1] = value
                if (safe := _value(value, "" if is_name else _named(name, pairs), layer)) != value:
                    put(token, json.dumps(safe))
    return "".join((*done, text[at:]))


def _named(name: str, pairs: list[str]) -> str:
    """What a value is called; in `{"name": "Authorization", "value": …}` by the string beside it."""
    paired = pairs[-1] if pairs and name.lower() == "value" else ""
    return paired if _VARIABLE.fullmatch(paired) else name


def _value(value: str, name: str, layer: int) -> str:
    inside = layer < MAX_LAYERS
    if inside and _is_json(value):
        return _document(value, layer + 1)
    if value and _KEY.search(name):
        return MASK
    if inside and (inner := _from_base64(value)) is not None and (safe := _text(inner, layer + 1)) != inner:
        return base64.b64encode(safe.encode("utf-8", "surrogateescape"), _altchars(value)).decode()
    return _text(value, layer + 1) if inside else _prose(value)


def _from_base64(value: str) -> str | None:
    if len(value) % 4 or not _BASE64.fullmatch(value):
        return None
    try:
        return base64.b64decode(value, _altchars(value), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _altchars(value: str) -> bytes | None:
    return b"-_" if set("-_") & set(value) else None


def _prose(text: str) -> str:
    text = _ONE_NUMBER.sub(rf"\g<1>{_NO_NUMBER}", text)
    for pattern in _TEXT:
        text = pattern.sub(rf"\1{MASK}", text)
    return text
