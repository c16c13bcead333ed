"""A secret by reference. No secret stands in a configuration."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints, model_validator

from activities.ports import NotAllowed
from medevac.model import Model


class Secret(Model):
    """Where a secret is found: a file (mounted) or an environment variable. Read at each use, so it may be changed."""

    file: Path | None = None
    env: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise ValueError("give exactly one of `file` and `env`")
        return self

    def value(self) -> str:
        """Raises `NotAllowed`, which names the reference, never the value."""
        if self.file is not None:
            try:
                found, where = self.file.expanduser().read_text(encoding="utf-8").strip(), str(self.file)
            except (OSError, UnicodeDecodeError) as error:
                raise NotAllowed(f"its secret can't be read from {self.file}: {type(error).__name__}") from None
        else:
            found, where = os.environ.get(self.env or "", "").strip(), f"the variable {self.env}"
        if not found:
            raise NotAllowed(f"its secret in {where} is empty or not set")
        return found


def here(host: str) -> bool:
    """Whether it is this very machine, the only one that secrets are sent to in the clear."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unread(url: str) -> str:
    """The address itself. Raises `ValueError` where a secret could be read on the way to it."""
    there = urlsplit(url)
    if there.scheme == "http" and not here(there.hostname or ""):
        raise ValueError("http shows its secret to everybody in between; write https")
    return url


SafeUrl = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]{1,500}$"), AfterValidator(unread)]
"""Of a system that a secret is sent to."""
