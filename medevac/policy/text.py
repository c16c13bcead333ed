"""YAML text to plain data that remembers where each part stands. Bounded: no aliases, tags, depth or size to abuse."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
_TAG = "tag:yaml.org,2002:"

Path = tuple[str | int, ...]
Place = tuple[int, int]
"""Line and column, from 1."""


class TextError(ValueError):
    """`what` is wrong with the text at `place`, and what to do about it."""

    def __init__(self, place: Place, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")
        self.place = place


class Text:
    """A parsed document: its `data`, and the place of each key and value."""

    def __init__(self, text: str) -> None:
        self.keys: dict[Path, Place] = {}
        self.values: dict[Path, Place] = {}
        self._seen: set[int] = set()
        self._yaml = YAML(typ="safe", pure=True)
        self.data: Any = self._read(self._compose(text), (), 0)

    def _compose(self, text: str) -> Node:
        if len(text.encode()) > MAX_BYTES:
            raise TextError((1, 1), f"the file is larger than {MAX_BYTES // 1024} KiB", "a page or two is usual")
        for number, line in enumerate(text.splitlines(), 1):
            indent = line[: len(line) - len(line.lstrip())]
            if "\t" in indent:
                raise TextError((number, indent.index("\t") + 1), "a tab", "indent with spaces")
        if _brackets(text) > 10 * MAX_DEPTH:
            raise TextError((1, 1), "nested too deeply", f"use at most {MAX_DEPTH} levels")
        try:
            node = self._yaml.compose(text)
        except RecursionError:
            raise TextError((1, 1), "nested too deeply", f"use at most {MAX_DEPTH} levels") from None
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            what = " ".join(str(error.problem or error.context).split())
            raise TextError(place, f"not YAML: {what}", "check quotes, colons and indentation here") from None
        except YAMLError as error:
            raise TextError((1, 1), f"not YAML: {' '.join(str(error).split())[:200]}", "correct it") from None
        if not isinstance(node, MappingNode):
            raise TextError((1, 1), "no mapping of settings", "write `name: value`, one a line")
        return node

    def _read(self, node: Node, path: Path, depth: int) -> Any:
        place = _place(node)
        if depth > MAX_DEPTH:
            raise TextError(place, "nested too deeply", f"use at most {MAX_DEPTH} levels")
        if id(node) in self._seen or node.anchor:
            raise TextError(place, "anchors and aliases are not read", "write the value out where it is needed")
        self._seen.add(id(node))
        self.values[path] = place
        if isinstance(node, MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, SequenceNode):
            return [self._read(child, (*path, i), depth + 1) for i, child in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: MappingNode, path: Path, depth: int) -> dict[str, Any]:
        if node.tag != f"{_TAG}map":
            raise TextError(_place(node), f"tag `{node.tag}` is not read", "remove it")
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _place(key_node)
            if not isinstance(key_node, ScalarNode):
                raise TextError(place, "a key must be a word", "correct it")
            key = str(key_node.value)
            if key in data:
                first = self.keys[(*path, key)]
                raise TextError(place, f"`{key}` stands here twice (first on line {first[0]})", "remove one of them")
            self.keys[(*path, key)] = place
            data[key] = self._read(value_node, (*path, key), depth + 1)
        return data

    def _scalar(self, node: Node, place: Place) -> Any:
        build = self._yaml.constructor
        kind = str(node.tag).removeprefix(_TAG)
        try:
            match kind:
                case "str":
                    return str(node.value)
                case "null":
                    return None
                case "bool":
                    return build.construct_yaml_bool(node)
                case "int":
                    return build.construct_yaml_int(node)
                case "float":
                    return build.construct_yaml_float(node)
                case "timestamp":
                    return str(node.value)
        except (ValueError, OverflowError, IndexError):
            raise TextError(place, f"`{node.value}` is no {kind}", "correct it or put it in quotes") from None
        raise TextError(place, f"tag `{node.tag}` is not read", "remove it")

    def place(self, path: Path, *, key: bool = False) -> Place:
        """Of the value at `path` (or its key), or of the deepest part of the path that the text has."""
        for end in range(len(path), 0, -1):
            part = path[:end]
            first, second = (self.keys, self.values) if key or end < len(path) else (self.values, self.keys)
            found = first.get(part) or second.get(part)
            if found:
                return found
        return (1, 1)


def _brackets(text: str) -> int:
    """How deep brackets go, roughly: enough to refuse what a parser would choke on."""
    depth = deepest = 0
    for char in text:
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _place(node: Node) -> Place:
    return (node.start_mark.line + 1, node.start_mark.column + 1)
