"""Every `medevac …` command that our words quote is one that the command line takes: messages, comments, documents."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.deploy.compose import ROOT
from worker.cli.app import app

SUFFIXES = {".py", ".md", ".yaml", ".yml", ".json", ".html", ".sh", ".env"}
ROOMS = ("medevac", "activities", "workflows", "worker", "simulation", "deploy", "docs", "README.md")
QUOTED = re.compile(r"`(medevac [^`]+)`")
WHOLE = re.compile(r"medevac ([a-z-]+)(?: [\w/-]+)*")
"""A message or a button's label that is nothing but a command."""
LINE = re.compile(r"^\s*(?:\$ |> )?(?:\.venv/bin/)?(medevac [a-z][^\n]*)$", re.MULTILINE)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = ("", "sh", "console", "bash")
SHELL = re.compile(r"\s(?:[|>&<]|2>|&&|#|;).*$")
UsageError: Any = typer.BadParameter.__bases__[0]
ANYTHING = "X"
"""Stands for a value that is known only when the words are said."""

FILES = sorted(
    name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOMS],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()
    if Path(name).suffix in SUFFIXES and "decisions" not in Path(name).parts
)  # fmt: skip


def quoted(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for said in strings(ast.parse(text)):
            yield from QUOTED.findall(said)
            if (whole := WHOLE.fullmatch(said)) and whole[1] in commands().commands:
                yield said
        return
    yield from QUOTED.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for language, block in FENCED.findall(text):
        if language in SHELLS:
            yield from LINE.findall(block)


def strings(tree: ast.AST) -> Iterator[str]:
    """Each string of a module as it will be said, with `ANYTHING` for what is put in."""
    inner = {id(part) for one in ast.walk(tree) if isinstance(one, ast.JoinedStr) for part in one.values}
    for one in ast.walk(tree):
        if isinstance(one, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else ANYTHING for part in one.values)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in inner:
            yield one.value


@cache
def commands() -> Any:
    return typer.main.get_command(app)


def wrong(said: str) -> str:
    """Why the command line wouldn't take it; empty where it would. A bare name only has to be a command's.

    The types of values are left out: what a placeholder will be isn't known.
    """
    spelled = re.sub(r"(--[a-z-]+) (?:\.\.\.|…)", rf"\1 {ANYTHING}", said)
    words = shlex.split(SHELL.sub("", re.sub(r"\.\.\.|…|\\\n", " ", spelled)))[1:]
    command: Any = commands()
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands"):
        if words[:1] == [ANYTHING]:
            return ""
        return f"there is no command {words[0]!r}" if words and not words[0].startswith("-") else ""
    if not words:
        return ""
    context = command.context_class(command)
    try:
        given, left, _ = command.make_parser(context).parse_args(list(words))
    except UsageError as error:
        return str(error.format_message())
    if left:
        return f"it takes no {' '.join(left)!r}"
    lacks = [str(one.name) for one in command.params if one.required and given.get(one.name) in (None, ())]
    return f"it lacks {', '.join(lacks)}" if lacks else ""


@pytest.mark.parametrize("name", FILES)
def test_every_quoted_command_can_be_typed(name: str) -> None:
    found = {said: why for said in quoted(ROOT / name) if (why := wrong(said))}
    assert not found, "\n".join(f"`{said}`: {why}" for said, why in found.items())


def test_words_are_found_and_judged() -> None:
    code = ast.parse("f'see `medevac adopt {node}` ' f'and `medevac provider certify {name}`'; 'x `medevac setup`'")
    said = [one for text in strings(code) for one in QUOTED.findall(text)]
    assert said == ["medevac adopt X", "medevac provider certify X", "medevac setup"]
    assert [bool(wrong(one)) for one in said] == [True, True, False]
    assert not wrong("medevac adopt --node CLUSTER/NODE")
    assert not wrong("medevac provider certify NAME --machine ID")
    assert wrong("medevac adopt --nodes X")
    assert wrong("medevac fly")
    assert sum(1 for name in FILES for _ in quoted(ROOT / name)) > 100, "they are found"
