"""docker-compose.yml as Compose reads it: variables filled in, anchors merged."""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
REFERENCE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<rule>:-|:\?)(?P<text>[^}]*))?\}")


class Unset(Exception):
    """A required variable has no value; the message is the file's own."""


def interpolated(variables: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if given := variables.get(match["name"], ""):
            return given
        if match["rule"] == ":?":
            raise Unset(f"{match['name']}: {match['text']}")
        assert match["rule"] == ":-", f"{match[0]}: neither required nor given a default"
        return match["text"]

    return REFERENCE.sub(value, COMPOSE.read_text(encoding="utf-8"))


def example_env() -> dict[str, str]:
    lines = (ROOT / "deploy" / "example.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def load(variables: dict[str, str] | None = None) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(interpolated(variables or example_env()))
    return loaded


def environment(service: str) -> dict[str, str]:
    return dict(load()["services"][service].get("environment", {}))
