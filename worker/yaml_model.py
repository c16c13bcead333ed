"""A YAML file to a model, with errors as `origin:line:column: what; what to do`."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from medevac.policy.text import Text, TextError

M = TypeVar("M", bound=BaseModel)


class YamlError(ValueError):
    """One line an error, each with the place it stands at."""


def load_yaml_model(model: type[M], text: str, origin: str) -> M:
    try:
        read = Text(text)
    except TextError as error:
        line, column = error.place
        raise YamlError(f"{origin}:{line}:{column}: {error}") from None
    try:
        return model.model_validate(read.data)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False, include_input=False):
            line, column = read.place(item["loc"], key=item["type"] in ("extra_forbidden", "missing"))
            path = ".".join(str(part) for part in item["loc"]) or "file"
            message = item["msg"].removeprefix("Value error, ")
            fix = {"extra_forbidden": "remove or rename it", "missing": "add it"}.get(item["type"], "correct it")
            lines.append(f"{origin}:{line}:{column}: {path}: {message}; {fix}")
        raise YamlError("\n".join(lines)) from None
