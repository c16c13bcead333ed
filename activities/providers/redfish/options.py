"""What a person may say about a Redfish provider in the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from medevac.model import Model

Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@]{1,255}/?$")]
"""Of the BMC, without a path and without a password in it."""
REFERENCE = r"^(|env:[A-Za-z_][A-Za-z0-9_]*|file:/.+|secret:[a-z0-9][a-z0-9.-]*/[a-z0-9][a-z0-9.-]*)$"
Credential = Annotated[str, StringConstraints(max_length=1024, pattern=REFERENCE)]
"""A reference, never the thing: a variable or a file that holds `username:password`, or a folder with the files
`username` and `password`, as a mounted Secret has them. `secret:namespace/name` is that folder below `secrets`."""


class Bmc(Model):
    address: Address
    credential: Credential = ""
    """Empty: the provider's own."""
    system: str = Field("", pattern=r"^(|/redfish/v1/\S{1,500})$")
    """Path of the machine, where its BMC has several."""
    serial: str = Field("", max_length=128)
    """What the BMC must say for it to be this machine; needed where the machine's id is no UUID of its firmware."""


class Options(Model):
    machines: dict[str, Bmc] = {}
    """By the machine's id: its node's `providerID` without the scheme, else the firmware's UUID; or by its serial."""
    inventory: tuple[Path, ...] = ()
    """Files as `medevac inventory check` reads them, read anew when they change; none: the installation's inventory,
    as it was when the process started."""
    clusters: tuple[str, ...] = ()
    """Those whose nodes the inventory names without a cluster."""
    credential: Credential = ""
    """Of machines that name none."""
    secrets: Path = Path("/run/secrets/machines")
    """Where Kubernetes Secrets are mounted, each as `NAMESPACE/NAME`."""
    ca: Path | None = None
    """Certificates that BMCs' are checked with, in place of the well-known ones."""
    verify: bool = True
    """False trusts any certificate, and plain http too: whoever is in between learns the password."""
    reinstall: Literal["no", "pxe", "media"] = "no"
    """`pxe`: the network decides what is installed. `media`: `image` is inserted as virtual media."""
    image: str = Field("", max_length=2048, pattern=r"^(|(https?|nfs|cifs)://[^\s@]+)$")
    """Of reinstalled machines where no campaign names another; it must install without asking, and only once."""
    power_off: bool = False
    """Whether the rung `terminate` may turn machines off: bare metal can't be given back."""
    graceful_s: float = Field(300.0, gt=0)
    """How long a machine that was asked to go down may take, until it is forced to."""
    connect_timeout_s: float = Field(5.0, gt=0)
    read_timeout_s: float = Field(20.0, gt=0)
    """BMCs are slow. Each is asked one thing at a time."""
    log_entries: int = Field(200, ge=1, le=2000)
    """Of each event log, as evidence."""
    dry_run: bool = False
    """Looks, says what it would have done, and changes nothing."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name, bmc in self.machines.items():
            if problem := unencrypted(bmc, self):
                raise ValueError(f"machine {name}: {problem}")
        return self


def unencrypted(bmc: Bmc, options: Options) -> str:
    if options.verify and not bmc.address.startswith("https:"):
        return "http shows the password to everybody in between; write https, or `verify: false`"
    return ""
