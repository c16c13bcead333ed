"""`medevac setup`: everything that must be there before the first worker, made or brought up to date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    RegisterNamespaceRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    UpdateNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.registry import Registry
from activities.storage.policies import NoPolicy
from medevac.policy.loading import PolicyError, load, preset
from worker.connection import connect
from worker.installation import NotReady, check_policy, find_config
from worker.parts import build_registry
from worker.settings import Settings
from worker.stores import Stores, open_stores

CALL = timedelta(seconds=10)
NAMESPACE_WAIT_S = 30.0


async def run_setup(settings: Settings, policy: Path | None, current: str | None) -> AsyncIterator[str]:
    """Yields one line for each thing that is true now."""
    registry = await asyncio.to_thread(lambda: build_registry(find_config(settings), settings.data_dir))
    stores = open_stores(settings.database)
    yield await asyncio.to_thread(prepare_ledger, stores, registry, policy)
    try:
        client = await connect("setup")
        yield await prepare_namespace(client, settings.retention_days)
        if current:
            yield await make_current(client, settings.deployment, current)
    except (RPCError, RuntimeError) as error:
        raise NotReady(
            f"Temporal does not answer: {error}; see TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY"
        ) from error


def prepare_ledger(stores: Stores, registry: Registry, policy: Path | None) -> str:
    """Schema at head, and one policy in force: the given one, else the default, which only observes."""
    text = read_policy(policy) if policy else preset("default")
    origin = str(policy) if policy else "default policy"
    check_policy(load(text, origin), registry, origin)
    stores.database.upgrade()
    try:
        version = stores.policies.active()
    except NoPolicy:
        now = datetime.now(UTC)
        version = stores.policies.activate(stores.policies.propose(text, "setup", now), None, now)
        return f"ledger {stores.database.name}: at head; {origin} is in force as version {version.version}"
    check_policy(version.policy, registry, f"policy version {version.version}")
    more = f"; {policy} is not applied: use `medevac policy apply`" if policy and version.text != text else ""
    return f"ledger {stores.database.name}: at head; policy version {version.version} is in force{more}"


def read_policy(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {error}") from error


async def prepare_namespace(client: Client, days: int) -> str:
    """The namespace exists and keeps closed workflows long enough for late clicks and for audits."""
    wanted = timedelta(days=days)
    service = client.workflow_service
    try:
        found = await service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace), timeout=CALL)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        await service.register_namespace(
            RegisterNamespaceRequest(namespace=client.namespace, workflow_execution_retention_period=_duration(wanted)),
            timeout=CALL,
        )
        await _until_known(client)
        return f"namespace {client.namespace}: made, keeps closed workflows {days} days"
    kept = found.config.workflow_execution_retention_ttl.ToTimedelta()
    if kept >= wanted:
        return f"namespace {client.namespace}: keeps closed workflows {kept.days} days"
    try:
        await service.update_namespace(
            UpdateNamespaceRequest(
                namespace=client.namespace, config=NamespaceConfig(workflow_execution_retention_ttl=_duration(wanted))
            ),
            timeout=CALL,
        )
    except RPCError as error:
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
            raise NotReady(
                f"namespace {client.namespace} keeps closed workflows only {kept}; set its retention to {days} days"
            ) from error
        raise
    return f"namespace {client.namespace}: retention raised from {kept} to {days} days"


async def make_current(client: Client, deployment: str, build_id: str) -> str:
    """New incidents start on this build; with `pinned`, running ones stay where they began."""
    await client.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace,
            deployment_name=deployment,
            build_id=build_id,
            ignore_missing_task_queues=True,
            identity=client.identity,
        ),
        timeout=CALL,
    )
    return f"worker deployment {deployment}: {build_id} is current"


async def _until_known(client: Client) -> None:
    """A new namespace reaches every part of the server only after its caches turn over."""
    deadline = asyncio.get_running_loop().time() + NAMESPACE_WAIT_S
    while True:
        try:
            async for _ in client.list_workflows("", limit=1, rpc_timeout=CALL):
                break
            return
        except RPCError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.5)


def _duration(delta: timedelta) -> Duration:
    duration = Duration()
    duration.FromTimedelta(delta)
    return duration
