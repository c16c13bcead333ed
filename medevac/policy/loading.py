"""Policy text in, `Policy` out; every complaint with line, column and what to write instead."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from medevac.policy.bounds import OutOfBounds
from medevac.policy.policy import Policy
from medevac.policy.text import Path, Text, TextError

PRESETS = ("default", "modal", "krea", "demo")
MAX_PROBLEMS = 30


class PolicyError(ValueError):
    """One line a problem: `origin:line:column: what; what to do`. Nothing of the file takes effect."""


@lru_cache(maxsize=16)
def load(text: str, origin: str = "policy", *, stored: bool = False) -> Policy:
    """The whole policy or a `PolicyError`; never a part of it. `stored`: it was taken once, by an older release."""
    try:
        read = Text(text)
    except TextError as error:
        line, column = error.place
        raise PolicyError(f"{origin}:{line}:{column}: {error}") from None
    try:
        return Policy.model_validate(read.data, context={"stored": stored})
    except ValidationError as error:
        found = sorted(c for item in error.errors(include_url=False) for c in _complaints(read, item))
        lines = [f"{origin}:{line}:{column}: {what}" for (line, column), what in found]
    more = [f"{origin}: {len(lines) - MAX_PROBLEMS} more"] if len(lines) > MAX_PROBLEMS else []
    raise PolicyError("\n".join(lines[:MAX_PROBLEMS] + more))


def preset(name: str) -> str:
    """The commented YAML of a shipped policy."""
    if name not in PRESETS:
        raise PolicyError(f"there is no preset `{name}`; known: {', '.join(PRESETS)}")
    return files("medevac.policy").joinpath("presets", f"{name}.yaml").read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """JSON Schema of the policy file, for editors and CI. The bounds that need more than one field are `load`'s."""
    found = Policy.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": "medevac policy"}


# -- complaints ------------------------------------------------------------------------------------------------


def _complaints(read: Text, item: ErrorDetails) -> Iterable[tuple[tuple[int, int], str]]:
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, OutOfBounds):
        for found in cause.violations:
            yield read.place(found.path), f"{_name(found.path)}: {found.what}; {found.fix}"
        return
    loc = item["loc"]
    bad_key = bool(loc) and loc[-1] == "[key]"
    path: Path = loc[:-1] if bad_key else loc
    is_key = bad_key or item["type"] in ("extra_forbidden", "missing")
    yield read.place(path, key=is_key), f"{_name(path)}: {_what(path, item)}"


def _name(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "policy"


def _what(path: Path, item: ErrorDetails) -> str:
    given = item.get("input")
    shown = f"`{given}`" if isinstance(given, str | int | float) else "this"
    match item["type"]:
        case "extra_forbidden":
            known = _fields(path[:-1])
            return f"unknown key; {_closest(str(path[-1]), known)}"
        case "missing":
            return "is missing; add it"
        case "enum" | "literal_error":
            expected = str(item.get("ctx", {}).get("expected", ""))
            options = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
            return f"{shown} is not one of {', '.join(options)}; {_closest(str(given), options)}"
        case "value_error":
            text = item["msg"].removeprefix("Value error, ")
            return text if ";" in text else f"{text}; correct it"
        case "string_pattern_mismatch":
            return f"{shown} is no valid name or code; names are matched exactly, without wildcards or spaces"
        case _:
            return f"{item['msg'][:1].lower()}{item['msg'][1:]}, not {shown}; correct it"


def _closest(word: str, options: Iterable[str]) -> str:
    listed = sorted(options)
    close = get_close_matches(word, listed, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    return f"remove it or use one of {', '.join(listed)}" if listed else "remove it"


def _fields(path: Path) -> tuple[str, ...]:
    """Keys that the model at `path` knows."""
    at: Any = Policy
    for part in path:
        at = _step(at, part)
        if at is None:
            return ()
    return tuple(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else ()


def _step(at: Any, part: str | int) -> Any:
    if isinstance(at, type) and issubclass(at, BaseModel):
        field = at.model_fields.get(str(part))
        return _bare(field.annotation) if field else None
    if get_origin(at) in (dict, Mapping):
        return _bare(get_args(at)[1])
    if get_origin(at) in (tuple, list):
        return _bare(get_args(at)[0])
    return None


def _bare(annotation: Any) -> Any:
    """Without `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _bare(next(arg for arg in get_args(annotation) if arg is not type(None)))
    return annotation
