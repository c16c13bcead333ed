"""`medevac doctor`: every dependency looked at once, and what to do about each that isn't well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest

from activities.evidence_store import EvidenceStore
from activities.ports import Cluster, HasRights, Unreadable
from activities.registry import Registry
from activities.signatures import Queue
from activities.ticketing import name_of
from medevac.policy.plan import Mode
from medevac.policy.pools import Coexist, Pool
from worker.beside import Beside, beside
from worker.connection import connect
from worker.findings import Bad as _Bad
from worker.findings import Finding, finding
from worker.gateway.people import APPROVERS, People
from worker.gateway.senders import Senders
from worker.installation import check_policy, find_config
from worker.parts import build_registry
from worker.quiet import expectations, listening
from worker.settings import Settings
from worker.stores import open_stores
from worker.vote_keys import public_keys
from worker.ways_in import ways_in

CALL = timedelta(seconds=5)
LATELY = timedelta(seconds=80)
MOST_LACKS = 8
"""Of one part, in its line."""
PROBE, ABSENT = "doctor/probe.txt", "doctor/absent.txt"
SEE_PARTS = "correct the part's options, its credentials or its network"


async def examine(settings: Settings) -> list[Finding]:
    checks: list[tuple[str, Callable[[Settings], Awaitable[str]], str]] = [
        ("configuration", _configuration, "correct the file that MEDEVAC_CONFIG names"),
        ("parts", _parts, SEE_PARTS),
        ("evidence", _evidence, "see `evidence` in docs/kubernetes.md"),
        ("ledger", _ledger, "see MEDEVAC_DATABASE_URL, then run `medevac setup`"),
        ("monitors", _monitors, "see the sender's own process and its way here; faults may go unseen until it speaks"),
        ("trust", _trust, "see the ledger and the policy, above and below"),
        ("policy", _policy, "run `medevac setup`, or `medevac policy apply FILE`"),
        ("other remediators", _others, "say in the policy how to live with them, see docs/kubernetes.md"),
        ("Temporal", _temporal, "see TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and TEMPORAL_API_KEY"),
        ("workers", _workers, "start `medevac worker`; with MEDEVAC_BUILD_ID also `medevac setup --current BUILD`"),
    ]
    findings = []
    for what, check, fix in checks:
        findings.append(await finding(what, check(settings), fix, 30.0))
        if what == "monitors":
            findings += await _ways_in(settings)
    return findings


async def _ways_in(settings: Settings) -> list[Finding]:
    """None where the configuration can't be read, which is said elsewhere."""
    try:
        config = find_config(settings)
        if not (config.queues or config.pollers or config.watchers):
            return []
    except Exception:
        return []
    clusters: dict[str, Cluster] = {}
    with suppress(Exception):  # said by the finding about parts
        registry = await asyncio.to_thread(build_registry, config, settings.data_dir)
        clusters = {cluster.name: cluster for cluster in registry.clusters()}
    return await ways_in(config, clusters, open_stores(settings.database).leaders)


async def _configuration(settings: Settings) -> str:
    config = find_config(settings)
    Senders(config.senders)
    People(config.people)
    signed = public_keys(config)
    if not config.senders:
        raise _Bad("no sender may post events", "add one under `senders`")
    approvers = [person.id for person in config.people if APPROVERS.intersection(person.groups)]
    if len(approvers) < 2:
        raise _Bad(
            f"{len(approvers)} approver(s): a widening of the policy, and some plans, need two people",
            "add people of the group `approver` under `people`",
        )
    if not signed:
        raise _Bad(
            "no vote counts here: `vote_keys` names no key",
            "`medevac vote-key FILE`: FILE is for the gateway (MEDEVAC_VOTE_KEY_FILE), FILE.pub for `vote_keys`",
        )
    return f"{config.installation}: {len(config.senders)} senders, {len(config.people)} people"


async def _parts(settings: Settings) -> str:
    """All are asked, at once: what is wrong with one hides nothing of another."""
    registry = await asyncio.to_thread(lambda: build_registry(find_config(settings), settings.data_dir))
    looks = [partial(_cluster, registry, cluster) for cluster in registry.clusters()]
    looks += [partial(_rights, f"provider {one.name}", one, "docs/providers.md") for one in registry.providers()]
    looks += [partial(_rights, "chat", registry.chat, "docs/slack.md")]
    looks += [partial(_rights, f"tickets {name_of(one)}", one, "docs/cases.md") for one in registry.ticket_systems()]
    found = await asyncio.gather(*(asyncio.to_thread(look) for look in looks), return_exceptions=True)
    if wrong := [one for one in found if isinstance(one, BaseException)]:
        fixes = dict.fromkeys(getattr(one, "fix", SEE_PARTS) for one in wrong)
        raise _Bad("; ".join(str(one) or type(one).__name__ for one in wrong), "; ".join(fixes))
    clusters = ", ".join(cluster.name for cluster in registry.clusters())
    return f"{clusters} can be read{' (simulated)' if registry.simulated else ''}"


def _cluster(registry: Registry, cluster: Cluster) -> None:
    page = "docs/kubernetes.md"
    _rights(f"cluster {cluster.name}", cluster, page)
    _rights(f"checks of cluster {cluster.name}", registry.checks(cluster.name), page)
    if not list(islice(cluster.nodes(), 1)):
        raise _Bad(f"cluster {cluster.name} shows no node", "look at its credentials' rights and its node selector")


def _rights(what: str, part: object, page: str) -> None:
    try:
        lacks = part.missing_rights() if isinstance(part, HasRights) else []
    except Unreadable as error:
        raise _Bad(f"{what}: {error}", f"see how it signs in, in {page}") from error
    if lacks:
        more = f"; and {len(lacks) - MOST_LACKS} more" if len(lacks) > MOST_LACKS else ""
        raise _Bad(
            f"{what} may not: {'; '.join(lacks[:MOST_LACKS])}{more}",
            f"give it these rights, or correct its options (see {page})",
        )


async def _trust(settings: Settings) -> str:
    """Where a pool is `auto`, a provider that wasn't proved here still asks people."""
    registry = await asyncio.to_thread(lambda: build_registry(find_config(settings), settings.data_dir))
    stores = open_stores(settings.database)
    real = [one.name for one in registry.providers() if not one.simulated]
    unproved = [name for name in real if not await asyncio.to_thread(stores.certificates.certified, name)]
    if not unproved:
        return f"{', '.join(real)}: proved on a machine here" if real else "none is real, so none needs a proof"
    policy = (await asyncio.to_thread(stores.policies.active)).policy
    auto = [name for name, pool in policy.pools.items() if pool.mode is Mode.AUTO]
    text = f"not proved on a machine here: {', '.join(unproved)}"
    if not auto:
        return f"{text}; none of the pools is `auto` yet, which asks for it"
    raise _Bad(
        f"{text}; what they are to do in {', '.join(auto)} (`auto`) is asked first",
        "; ".join(f"`medevac provider certify {name} --machine ID`" for name in unproved),
    )


async def _evidence(settings: Settings) -> str:
    """Only workers write there: what another process of the house may not write is no harm, and the fix says so."""
    store = (await asyncio.to_thread(lambda: build_registry(find_config(settings), settings.data_dir))).evidence
    if store is None:
        return "none is kept"
    try:
        return await asyncio.to_thread(_probed, store)
    except Unreadable as error:
        raise _Bad(
            str(error),
            "mount a volume there that workers may write to, or name another place under `evidence` in the"
            " configuration; workers need the right to put, get and list there (docs/kubernetes.md, Evidence). It is"
            " they who keep evidence, so ask in a worker's own container. Until then none is kept, and where the policy"
            " says `evidence: required` nothing irreversible is done",
        ) from None


def _probed(store: EvidenceStore) -> str:
    said = b"medevac doctor was here; this may be removed\n"
    store.put(PROBE, said)
    if store.get(PROBE) != said:
        raise Unreadable(f"evidence: what was written to {store} can't be read again")
    # A bucket that may not be listed answers that it may not say: then no bundle could be begun.
    store.get(ABSENT)
    try:
        store.remove(PROBE)
    except Unreadable as error:
        return f"{store} can be written to and read; {PROBE} stays there ({error}), which only this look needs"
    return f"{store} can be written to and read"


async def _ledger(settings: Settings) -> str:
    stores = open_stores(settings.database)
    await asyncio.to_thread(stores.database.check)
    return f"{stores.database.name} is at head"


async def _monitors(settings: Settings) -> str:
    stores, config = open_stores(settings.database), find_config(settings)
    silent, _ = await asyncio.to_thread(listening(stores.ledger, config).look, datetime.now(UTC))
    if silent:
        raise _Bad("; ".join(one.text for one in silent[:5]), "see their own processes and their way to the gateway")
    expected = sorted(monitor.name for monitor in expectations(config))
    return f"none is silent; expected to speak: {', '.join(expected) or 'nobody, but the heartbeats that come'}"


async def _policy(settings: Settings) -> str:
    stores = open_stores(settings.database)
    version = await asyncio.to_thread(stores.policies.active)
    registry = await asyncio.to_thread(lambda: build_registry(find_config(settings), settings.data_dir))
    check_policy(version.policy, registry, f"policy version {version.version}")
    modes = (
        ", ".join(f"{name}: {pool.mode}" for name, pool in version.policy.pools.items()) or "no pool, so nothing acts"
    )
    return f"version {version.version} ({version.policy.name}); {modes}"


async def _others(settings: Settings) -> str:
    registry = await asyncio.to_thread(lambda: build_registry(find_config(settings), settings.data_dir))
    policy = (await asyncio.to_thread(open_stores(settings.database).policies.active)).policy
    found = await asyncio.to_thread(beside, policy, registry)
    if not found:
        return "none is seen to repair nodes of a pool"
    text = "; ".join(one.text for one in found)
    if wrong := [why for one in found if (why := one.wrong(policy.pools[one.pool]))]:
        raise _Bad(text, "; ".join(wrong))
    said = "; ".join(f"{one.pool}: {_lives(policy.pools[one.pool], one)}" for one in found)
    return f"{text}; {said}"


def _lives(pool: Pool, one: Beside) -> str:
    if pool.coexist is Coexist.YIELD:
        return "their repair is followed and checked"
    if pool.coexist is Coexist.OWN:
        return f"medevac's own; nobody here can see whether they are off ({one.off})"
    return f"only observed; before that is raised say `coexist: yield`, or `own` once they are off ({one.off})"


async def _temporal(settings: Settings) -> str:
    client = await connect("doctor")
    found = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=CALL
    )
    kept = found.config.workflow_execution_retention_ttl.ToTimedelta()
    if kept < timedelta(days=settings.retention_days):
        raise _Bad(f"namespace {client.namespace} keeps closed workflows only {kept}", "run `medevac setup`")
    return f"namespace {client.namespace} answers, keeps closed workflows {kept.days} days"


async def _workers(settings: Settings) -> str:
    client = await connect("doctor")
    kinds = {queue: [TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY] for queue in Queue}
    kinds[Queue.MAIN].append(TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
    pollers: set[str] = set()
    for queue, types in kinds.items():
        for kind in types:
            answer = await client.workflow_service.describe_task_queue(
                DescribeTaskQueueRequest(
                    namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
                ),
                timeout=CALL,
            )
            since = datetime.now(UTC) - LATELY
            here = {p.identity for p in answer.pollers if p.last_access_time.ToDatetime(tzinfo=UTC) >= since}
            if not here:
                raise _Bad(f"nobody polls {queue}", "start `medevac worker`")
            pollers |= here
    return f"{len(pollers)} worker(s) poll"
