"""What a person may say about an AWS provider in the configuration file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from medevac.model import Model

AccountId = Annotated[str, StringConstraints(pattern=r"^\d{12}$")]
Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z0-9]+){1,3}-\d$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]{1,500}$")]


class Account(Model):
    """One account. Without a role, medevac's own credentials are of this account."""

    id: AccountId
    role: str = Field("", max_length=2048, pattern=r"^(arn:[a-z-]+:iam::\d{12}:role/[!-~]+)?$")
    """ARN of the role to assume; its sessions are renewed by themselves."""
    external_id: str = Field("", max_length=1224)
    """What the role's trust policy asks for. No secret: it only names who asks."""
    clusters: tuple[str, ...] = ()
    """Clusters whose machines are this account's, where the nodes' label doesn't say."""

    @model_validator(mode="after")
    def _own_role(self) -> Self:
        if self.role and self.role.split(":")[4] != self.id:
            raise ValueError(f"role {self.role} is not of account {self.id}")
        if self.external_id and not self.role:
            raise ValueError("`external_id` goes with a `role`")
        return self


class LaunchTemplate(Model):
    id: str = Field(pattern=r"^lt-[0-9a-f]{8,17}$")
    version: str = "$Default"


class Options(Model):
    regions: tuple[Region, ...] = Field(min_length=1)
    """All that have machines. The first is that of nodes whose `region` isn't known."""
    accounts: tuple[Account, ...] = ()
    """None: the account of medevac's own credentials, and no other."""
    account_label: str = "medevac.dev/account"
    """Node label that names the account's id. Else the account that names the cluster, else the only one."""
    reboot: Literal["reboot", "stop_start"] = "reboot"
    """`stop_start` moves the machine to another host. Its instance store is lost by it, and a public address may be: it
    asks people in any mode. What a group or Karpenter keeps up is never stopped."""
    reinstall: bool = False
    """Whether the root volume may be replaced, which needs an image that sets itself up anew at its first boot."""
    image: str = Field("", pattern=r"^(ami-[0-9a-f]{8,17})?$")
    """Of reinstalled machines; empty: the one that they were launched from."""
    launch_templates: dict[str, LaunchTemplate] = {}
    """By pool, for successors of machines that stand in no group; else the one that they were launched from."""
    terminate_in_group: Literal["refill", "shrink"] = "refill"
    """What the rung `terminate` does to a group's size. `replace` always leaves it as it was."""
    scale_in_protected: Literal["refuse", "terminate"] = "refuse"
    lifecycle_hooks: tuple[str, ...] = ()
    """Termination hooks that wait for nobody but medevac: completed once the machine is empty and told to go."""
    dry_run: bool = False
    """Asks AWS whether it would be allowed, and changes nothing."""
    share: float = Field(0.5, gt=0, le=1)
    """Of AWS's published request limits; the rest is for everybody else in the account."""
    connect_timeout_s: float = Field(2.0, gt=0)
    read_timeout_s: float = Field(10.0, gt=0)
    endpoint: Url | None = None
    """One address for every service, such as an emulator's."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        if len({account.id for account in self.accounts}) < len(self.accounts):
            raise ValueError("an account is there twice")
        named = [cluster for account in self.accounts for cluster in account.clusters]
        if len(set(named)) < len(named):
            raise ValueError("a cluster is named by two accounts")
        return self
