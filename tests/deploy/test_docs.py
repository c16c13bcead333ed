"""The documents lead somewhere: links, files and commands that they name exist."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.deploy.compose import ROOT
from worker.cli.app import app

PAGES = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
)


def heading_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in heading_anchors(target), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    rooms = "medevac|workflows|activities|worker|simulation|tests|docs|deploy|benchmarks"
    for name in re.findall(rf"`((?:{rooms})/[\w./-]*)`", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), f"{page.name}: {name}"


def commands(group: Any, prefix: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        yield f"{prefix}{name}"
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")


def named_commands(text: str) -> Iterator[str]:
    """`medevac x`, and the further names of a list like `` `medevac x`, `y` ``."""
    for first, rest in re.findall(r"medevac ((?:policy )?[a-z][a-z-]+)((?:`, `[a-z-]+(?=`))*)`?", text):
        yield first
        group = "policy " if first.startswith("policy ") else ""
        yield from (f"{group}{name}" for name in re.findall(r"`([a-z-]+)", rest))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "decisions" not in p.parts], ids=lambda page: str(page.relative_to(ROOT))
)
def test_named_commands_exist(page: Path) -> None:
    known = set(commands(typer.main.get_command(app)))
    code = re.findall(r"```.*?```|`[^`\n]+`(?:, `[^`\n]+`)*", page.read_text(encoding="utf-8"), re.DOTALL)
    for name in (name for part in code for name in named_commands(part)):
        assert name in known, f"{page.name}: medevac {name} is no command"


def test_every_dependency_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    explained = (ROOT / "docs" / "decisions" / "0003-dependencies.md").read_text(encoding="utf-8")
    for wanted in chain(project["dependencies"], *project["optional-dependencies"].values()):
        name = re.split(r"[\[<>=;]", wanted)[0].removeprefix("types-")
        assert re.search(rf"\b{re.escape(name)}\b", explained), f"{name}: say what it is for and why this one"
