"""YAML text to a model, with errors as `origin:line:column: what; what to do`."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

M = TypeVar("M", bound=BaseModel)


class YamlError(ValueError):
    """One line an error, each with the place it stands at."""


def load_yaml_model(model: type[M], text: str, origin: str) -> M:
    yaml = YAML(typ="safe", pure=True)
    try:
        tree = yaml.compose(text)
        value = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise YamlError(f"{origin}:{place}: not YAML: {error.problem or error.context}; correct it") from error
    if not isinstance(value, dict):
        raise YamlError(f"{origin}:1:1: expected a mapping of settings; start with `key: value` lines")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        lines = []
        for item in error.errors(include_url=False, include_input=False):
            line, column = _place(tree, item["loc"])
            path = ".".join(str(part) for part in item["loc"]) or "file"
            hint = "remove or rename it" if item["type"] == "extra_forbidden" else "correct it"
            message = item["msg"].removeprefix("Value error, ")
            lines.append(f"{origin}:{line}:{column}: {path}: {message}; {hint}")
        raise YamlError("\n".join(lines)) from error


def _place(tree: Node | None, path: tuple[Any, ...]) -> tuple[int, int]:
    """Line and column (from 1) of the deepest part of `path` that the file has."""
    node = tree
    mark = node.start_mark if node is not None else None
    for part in path:
        if isinstance(node, MappingNode):
            for key, child in node.value:
                if isinstance(key, ScalarNode) and key.value == str(part):
                    node, mark = child, key.start_mark
                    break
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
