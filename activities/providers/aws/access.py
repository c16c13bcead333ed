"""Which account and region a machine is in, and calls there: credentials, time-outs, rate, errors in our words."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import botocore.session  # type: ignore[import-untyped]
from botocore import xform_name
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import (  # type: ignore[import-untyped]
    AssumeRoleCredentialFetcher,
    DeferredRefreshableCredentials,
)
from botocore.loaders import Loader  # type: ignore[import-untyped]
from pydantic import ValidationError

from activities.last_look import last_look
from activities.ports import NotAllowed, NotSent, Unreadable
from activities.providers.aws import errors
from activities.providers.aws.options import Account, Options
from activities.providers.aws.rate import READ_S, WRITE_S, Later, Rates
from medevac.fleet.inventory import Inventory
from medevac.fleet.node import Node

LOADER = Loader()
"""Of the services' descriptions, megabytes each: read once for all providers."""
OWN = ""
"""Stands for the account of our own credentials, where none is configured."""

GIVING_BACK = frozenset({"DeleteTags", "RecordLifecycleActionHeartbeat"})
"""Writes that no freeze holds back: what was noted is taken back, a machine is given more time."""


@dataclass(frozen=True, slots=True)
class Place:
    account: str
    region: str

    def __str__(self) -> str:
        return f"account {self.account or 'of our own credentials'}, {self.region}"


class Access:
    """Thread-safe. Every client is made once and bounded; boto3's own retries are off: whoever calls knows better."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rates = Rates(options.share)
        self._session = _session()
        self._accounts: dict[str, Account | None] = {one.id: one for one in options.accounts} or {OWN: None}
        self._named = tuple(self._accounts)
        """By the options: of a node that says no account, only these come into question."""
        self.wrong: list[str] = []
        """Roles of the inventory that can't be used."""
        self._clients: dict[tuple[Place, str], Any] = {}
        self._credentials: dict[str, Any] = {}
        self._lock = threading.RLock()

    def take(self, inventory: Inventory) -> None:
        """The roles of accounts that the options don't give one."""
        roles: dict[str, dict[str, str]] = {}
        for record in inventory.records:
            if record.account and record.role.startswith("arn:"):
                roles.setdefault(record.account, {}).setdefault(record.role, record.where)
        for account, told in sorted(roles.items()):
            known = self._accounts.get(account)
            if known is not None and known.role:
                continue
            if len(told) > 1:
                where = " and ".join(sorted(told.values())[:2])
                self.wrong.append(f"account {account}: the inventory gives it {len(told)} roles ({where}); correct it")
                continue
            [(role, where)] = told.items()
            try:
                clusters = known.clusters if known else ()
                self._accounts[account] = Account(id=account, role=role, clusters=clusters)
            except ValidationError as error:
                said = "; ".join(one["msg"] for one in error.errors(include_input=False))
                self.wrong.append(f"account {account}: {where}: {said}")

    @property
    def several(self) -> bool:
        """Whether machines may be in more than one account."""
        return len(self._accounts) > 1

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(Place(account, region) for account in self._accounts for region in self.options.regions)

    def role(self, place: Place) -> str:
        """The ARN of the role that is assumed there; empty where our own credentials are used."""
        account = self._accounts[place.account]
        return account.role or "" if account else ""

    def place(self, node: Node) -> Place:
        """Raises `NotAllowed`, which says what to add to the configuration."""
        region = node.topology.get("region") or self.options.regions[0]
        if region not in self.options.regions:
            raise NotAllowed(f"node {node.name} is in region {region}, which `regions` doesn't name")
        return Place(self._account(node), region)

    def _account(self, node: Node) -> str:
        if named := node.labels.get(self.options.account_label):
            if named in self._accounts:
                return named
            if OWN in self._accounts:
                return OWN
            raise NotAllowed(f"node {node.name} is of account {named}, which `accounts` doesn't name")
        by_cluster = [one.id for one in self.options.accounts if node.cluster in one.clusters]
        if len(found := by_cluster or list(self._named)) == 1:
            return found[0]
        raise NotAllowed(
            f"node {node.name}: which of the {len(found)} accounts it is in, neither its label"
            f" {self.options.account_label} nor an account's `clusters` says"
        )

    # -- calls -------------------------------------------------------------------------------------------------

    def read(self, place: Place, service: str, api: str, **given: Any) -> Mapping[str, Any]:
        """All pages where it has pages. Raises `Unreadable` or `NotAllowed`."""
        what = f"{api} in {place}"
        try:
            self.rates.take(str(place), service, api, f"{threading.get_ident()}", READ_S)
            return self._all(place, service, api, given)
        except Later as later:
            raise Unreadable(f"{what}: {later}") from None
        except errors.CAUGHT as error:
            self._notice(error, place, service, api)
            raise errors.of_a_read(error, what) from None

    def write(self, place: Place, service: str, api: str, who: str, **given: Any) -> Mapping[str, Any]:
        """One physical call; `who` keeps its turn when it is told to come back. Raises `NotSent` or `Unclear`."""
        what = f"{api} in {place}"
        if self.options.dry_run:
            if service != "ec2":
                raise NotSent(f"dry run, nothing was done: {what} would be called", final=True)
            given["DryRun"] = True
        try:
            client = self.client(place, service)
            self.rates.take(str(place), service, api, who, WRITE_S)
            if api not in GIVING_BACK:
                last_look()
            answer: Mapping[str, Any] = _operation(client, api)(**given)
        except Later as later:
            raise NotSent(f"{what}: {later}", retry_after_s=later.wait_s) from None
        except NotAllowed as error:
            raise NotSent(f"{what}: {error}", final=True) from None
        except errors.CAUGHT as error:
            self._notice(error, place, service, api)
            raise errors.of_a_write(error, what) from None
        return answer

    def _all(self, place: Place, service: str, api: str, given: dict[str, Any]) -> Mapping[str, Any]:
        client = self.client(place, service)
        name = xform_name(api)
        if client.can_paginate(name):
            found: Mapping[str, Any] = client.get_paginator(name).paginate(**given).build_full_result()
        else:
            found = _operation(client, api)(**given)
        return found

    def _notice(self, error: Exception, place: Place, service: str, api: str) -> None:
        if errors.throttled(error):
            self.rates.bucket(str(place), service, api).empty()

    # -- clients -----------------------------------------------------------------------------------------------

    def client(self, place: Place, service: str) -> Any:
        """Raises `NotAllowed` where no credentials are to be had."""
        with self._lock:
            if (place, service) not in self._clients:
                self._clients[place, service] = self._made(place, service)
            return self._clients[place, service]

    def _made(self, place: Place, service: str) -> Any:
        known = any(
            place.region in self._session.get_available_regions("ec2", partition)
            for partition in self._session.get_available_partitions()
        )
        if not known and self.options.endpoint is None:
            raise NotAllowed(f"region {place.region} is unknown; correct `regions`, or take a newer boto3")
        account = self._accounts[place.account]
        session = self._session
        if account is not None and account.role:
            session = _session()
            session._credentials = self._assumed(account, place.region)
        elif session.get_credentials() is None:
            raise NotAllowed(f"no AWS credentials are found for {place}; see the provider's page on signing in")
        return self._bare(session, service, place.region)

    def _bare(self, session: Any, service: str, region: str, **kwargs: Any) -> Any:
        config = Config(
            connect_timeout=self.options.connect_timeout_s,
            read_timeout=self.options.read_timeout_s,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=64,
            user_agent_extra="medevac",
        )
        given = {"endpoint_url": self.options.endpoint, "config": config, "region_name": region} | kwargs
        return session.create_client(service, **given)

    def _assumed(self, account: Account, region: str) -> Any:
        """Renewed by themselves; one session for all regions of an account."""
        if account.id not in self._credentials:
            source = self._session.get_credentials()
            if source is None:
                raise NotAllowed(f"no AWS credentials are found by which {account.role} could be assumed")
            extra = {"RoleSessionName": "medevac"}
            if account.external_id:
                extra["ExternalId"] = account.external_id

            def creator(service: str, **kwargs: Any) -> Any:
                kwargs.pop("config", None)
                return self._bare(self._session, service, kwargs.pop("region_name", None) or region, **kwargs)

            fetcher = AssumeRoleCredentialFetcher(creator, source, account.role, extra_args=extra)
            self._credentials[account.id] = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
        return self._credentials[account.id]


def _session() -> Any:
    session = botocore.session.get_session()
    session.register_component("data_loader", LOADER)
    return session


def _operation(client: Any, api: str) -> Any:
    return getattr(client, xform_name(api))
