"""`medevac doctor`: every dependency looked at once, and what to do about each that isn't well."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest

from activities.evidence_store import EvidenceStore
from activities.failures import redact
from activities.ports import CanBeAsked, HasRights, HasUnaskedRights, LooksForOwn, NotSent, Unclear, Unreadable
from activities.registry import Registry
from activities.signatures import Queue
from medevac.policy.plan import Mode
from medevac.policy.pools import Coexist, Pool
from worker.beside import Beside, beside
from worker.connection import connect
from worker.findings import Bad as _Bad
from worker.findings import Finding, finding
from worker.gateway.people import APPROVERS, People
from worker.gateway.senders import Senders
from worker.installation import check_policy, find_config
from worker.parts import Built, build_parts
from worker.quiet import expectations, listening
from worker.settings import Settings
from worker.stores import open_stores
from worker.unplaced import LATELY as UNPLACED_FOR
from worker.unplaced import unplaced
from worker.vote_keys import public_keys
from worker.ways_in import ways_in

CALL = timedelta(seconds=5)
LATELY = timedelta(seconds=80)
MOST_LACKS = 8
"""Of one part, in its line."""
LIMIT_S = 30.0
"""For each finding."""
PROBE, ABSENT = "doctor/probe.txt", "doctor/absent.txt"
SEE_EVIDENCE = "see `evidence` in docs/kubernetes.md"
SEE_PARTS = "correct the part's options, its credentials or its network"
PARTS_FIRST = "put what is said of the configuration and its parts right first"
_NO_CONFIGURATION = "not looked at: the configuration can't be read"
PAGES = {
    "provider": "docs/providers.md",
    "chat": "docs/slack.md",
    "tickets": "docs/cases.md",
    "pager": "docs/operate/on-call.md",
}
T = TypeVar("T")


class House:
    """What one examination looks at. Its parts are made once, each by itself."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._building: asyncio.Task[Built] | None = None

    async def built(self) -> Built:
        """Raises what is wrong with the configuration itself."""
        if self._building is None:
            self._building = asyncio.create_task(
                aside(lambda: build_parts(find_config(self.settings), self.settings.data_dir))
            )
        return await asyncio.shield(self._building)

    async def registry(self) -> Registry:
        try:
            built = await self.built()
        except Exception as error:
            raise _Bad("not looked at: it needs the parts, and the configuration can't be read", PARTS_FIRST) from error
        if built.registry is None:
            raise _Bad(f"not looked at: it needs the parts, and {_and(built.wrong)} can't be made", PARTS_FIRST)
        return built.registry


async def examine(settings: Settings) -> list[Finding]:
    """All at once, each with its own limit: what hangs or is wrong hides nothing of the others."""
    house = House(settings)
    checks: list[tuple[str, Callable[[House], Awaitable[str]], str]] = [
        ("evidence", _evidence, SEE_EVIDENCE),
        ("ledger", _ledger, "see MEDEVAC_DATABASE_URL, then run `medevac setup`"),
        ("monitors", _monitors, "see the sender's own process and its way here; faults may go unseen until it speaks"),
        ("machines", _machines, "see the ledger, above"),
        ("trust", _trust, "see the ledger and the policy, above and below"),
        ("policy", _policy, "run `medevac setup`, or `medevac policy apply FILE`"),
        ("other remediators", _others, "say in the policy how to live with them, see docs/kubernetes.md"),
        ("Temporal", _temporal, "see TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and TEMPORAL_API_KEY"),
        ("workers", _workers, "start `medevac worker`; with MEDEVAC_BUILD_ID also `medevac setup --current BUILD`"),
    ]
    first, parts, others, ways = await asyncio.gather(
        finding("configuration", _configuration(house), "correct the file that MEDEVAC_CONFIG names", LIMIT_S),
        _parts(house),
        asyncio.gather(*(finding(what, check(house), fix, LIMIT_S) for what, check, fix in checks)),
        _ways_in(house),
    )
    return [first, *parts, *others, *ways]


async def _ways_in(house: House) -> list[Finding]:
    """None where the configuration can't be read, which is said elsewhere."""
    try:
        config = await aside(lambda: find_config(house.settings))
        if not (config.queues or config.pollers or config.watchers):
            return []
        async with asyncio.timeout(LIMIT_S):
            built = await house.built()
    except Exception:
        return []
    clusters = {one.name: part for one in config.clusters if (part := built.parts.get(f"cluster {one.name}"))}
    return await ways_in(config, clusters, open_stores(house.settings.database).leaders)


async def aside(look: Callable[[], T]) -> T:
    """In a thread that nobody waits for at the end: one that hangs must not hold up the others' findings."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if done.done() else how())

    def run() -> None:
        try:
            seen = look()
        except Exception as error:
            settle(partial(done.set_exception, error))
        else:
            settle(partial(done.set_result, seen))

    threading.Thread(target=run, daemon=True).start()
    return await done


async def _configuration(house: House) -> str:
    config = find_config(house.settings)
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


async def _parts(house: House) -> list[Finding]:
    """One for each part."""
    try:
        async with asyncio.timeout(LIMIT_S):
            built = await house.built()
    except Exception as error:
        text = f"no answer within {LIMIT_S:g} s" if isinstance(error, TimeoutError) else _NO_CONFIGURATION
        return [Finding(what="parts", ok=False, text=text, fix=PARTS_FIRST)]
    wrong = [
        Finding(what=what, ok=False, text=redact("; ".join(text.splitlines()), 2_000), fix=SEE_PARTS)
        for what, text in built.wrong.items()
        if what not in ("evidence", "parts")
    ]
    looks = [
        finding(what, aside(partial(_look, what, part)), SEE_PARTS, LIMIT_S)
        for what, part in built.parts.items()
        if isinstance(part, HasRights) or what.startswith(("cluster ", "pager "))
    ]
    whole = Finding(what="parts", ok=True, text=f"{_and(built.parts)} can be made")
    if built.wrong:
        text = built.wrong.get("parts") or f"{_and(built.wrong)} can't be made"
        whole = Finding(what="parts", ok=False, text=redact(text, 2_000), fix=SEE_PARTS)
    return [whole, *wrong, *await asyncio.gather(*looks)]


def _look(what: str, part: Any) -> str:
    kind = what.partition(" ")[0]
    page = PAGES.get(kind, "docs/kubernetes.md")
    _rights(part, page)
    if kind == "pager":
        return _pager(part)
    unasked = part.unasked_rights() if isinstance(part, HasUnaskedRights) else []
    if kind != "cluster":
        return "; ".join(("has what it needs", *unasked))
    if not list(islice(part.nodes(), 1)):
        raise _Bad("shows no node", "look at its credentials' rights and its node selector")
    return f"can be read{' (simulated)' if part.simulated else ''}{_own_unknown(part, page)}"


def _own_unknown(part: object, page: str) -> str:
    """No fault: both may run elsewhere, which only a person knows."""
    try:
        unknown = part.own_unknown() if isinstance(part, LooksForOwn) else ()
    except Unreadable as error:
        return f"; which of its pods are medevac's own can't be read: {redact(str(error), 200)}"
    if not unknown:
        return ""
    return (
        f"; no pod of {_and(unknown)} is known in it: if medevac's runs there, its nodes are NOT spared until"
        f" `own_pods` selects its pods, or `roles` its nodes ({page})"
    )


def _pager(part: Any) -> str:
    """It wakes nobody: a page for a look would be one too many at three in the morning."""
    if not isinstance(part, CanBeAsked):
        return "can be made; nothing was sent, as it has no way to be asked that wakes nobody: page it once by hand"
    try:
        return part.ask()
    except (NotSent, Unclear) as error:
        raise _Bad(
            f"a page would not be taken: {error}", "see its key, its address and its network (docs/operate/on-call.md)"
        ) from error


def _rights(part: object, page: str) -> None:
    try:
        lacks = part.missing_rights() if isinstance(part, HasRights) else []
    except Unreadable as error:
        raise _Bad(str(error), f"see how it signs in, in {page}") from error
    if lacks:
        more = f"; and {len(lacks) - MOST_LACKS} more" if len(lacks) > MOST_LACKS else ""
        raise _Bad(
            f"lacks: {'; '.join(lacks[:MOST_LACKS])}{more}",
            f"give it these rights, or correct its options (see {page})",
        )


async def _trust(house: House) -> str:
    """Where a pool is `auto`, a provider that wasn't proved here still asks people."""
    registry, stores = await house.registry(), open_stores(house.settings.database)
    real = [one.name for one in registry.providers() if not one.simulated]
    if not real:
        return "none is real, so none needs a proof"
    proofs = stores.certificates
    proved = {name: await aside(partial(proofs.proved, name, registry.form(name))) for name in real}
    said = [f"{name} was proved to {_and(sorted(verbs))} a machine here" for name, verbs in proved.items() if verbs]
    unproved = [name for name, verbs in proved.items() if not verbs]
    if not unproved:
        return "; ".join(said)
    policy = (await aside(stores.policies.active)).policy
    auto = [name for name, pool in policy.pools.items() if pool.mode is Mode.AUTO]
    before = {name: await aside(partial(proofs.newest, name)) for name in unproved}
    otherwise = [name for name, word in before.items() if word and word.passed and word.form != registry.form(name)]
    said += [f"{_and(otherwise)} was configured otherwise when it was proved"] if otherwise else []
    text = "; ".join([f"not proved on a machine here: {', '.join(unproved)}", *said])
    if not auto:
        return f"{text}; none of the pools is `auto` yet, which asks for it"
    raise _Bad(
        f"{text}; what they are to do in {', '.join(auto)} (`auto`) is asked first",
        "; ".join(f"`medevac provider certify {name} --machine ID`" for name in unproved),
    )


async def _evidence(house: House) -> str:
    """Only workers write there: what another process of the house may not write is no harm, and the fix says so."""
    built = await house.built()
    if why := built.wrong.get("evidence"):
        raise _Bad(why, SEE_EVIDENCE)
    store = built.parts.get("evidence")
    if store is None:
        return "none is kept"
    try:
        return await aside(partial(_probed, store))
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


async def _ledger(house: House) -> str:
    stores = open_stores(house.settings.database)
    await aside(stores.database.check)
    return f"{stores.database.name} is at head"


async def _monitors(house: House) -> str:
    stores, config = open_stores(house.settings.database), find_config(house.settings)
    silent, _ = await aside(partial(listening(stores.ledger, config).look, datetime.now(UTC)))
    if silent:
        raise _Bad("; ".join(one.text for one in silent[:5]), "see their own processes and their way to the gateway")
    expected = sorted(monitor.name for monitor in expectations(config))
    return f"none is silent; expected to speak: {', '.join(expected) or 'nobody, but the heartbeats that come'}"


async def _machines(house: House) -> str:
    """A machine that a sender calls by a name nobody knows is answered 202: nothing else would tell."""
    ledger = open_stores(house.settings.database).ledger
    found = await aside(partial(unplaced, ledger, datetime.now(UTC)))
    hours = int(UNPLACED_FOR.total_seconds()) // 3600
    if not found:
        return f"each that had a grave fault or a notice in the last {hours} hours is known"
    more = f"; and {len(found) - MOST_LACKS} more" if len(found) > MOST_LACKS else ""
    raise _Bad(
        f"no node is known as: {'; '.join(one.text for one in found[:MOST_LACKS])}{more}",
        "say whose they are in an inventory file (`names`, `gpus`, `provider_id`, `serial`; docs/inventory.md), or let"
        " the sender name the node and its cluster (docs/senders.md)",
    )


async def _policy(house: House) -> str:
    stores = open_stores(house.settings.database)
    version = await aside(stores.policies.active)
    registry = await house.registry()
    check_policy(version.policy, registry, f"policy version {version.version}")
    modes = (
        ", ".join(f"{name}: {pool.mode}" for name, pool in version.policy.pools.items()) or "no pool, so nothing acts"
    )
    return f"version {version.version} ({version.policy.name}); {modes}"


async def _others(house: House) -> str:
    registry = await house.registry()
    policy = (await aside(open_stores(house.settings.database).policies.active)).policy
    found = await aside(partial(beside, policy, registry))
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


async def _temporal(house: House) -> str:
    client = await connect("doctor")
    found = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), timeout=CALL
    )
    kept = found.config.workflow_execution_retention_ttl.ToTimedelta()
    if kept < timedelta(days=house.settings.retention_days):
        raise _Bad(f"namespace {client.namespace} keeps closed workflows only {kept}", "run `medevac setup`")
    return f"namespace {client.namespace} answers, keeps closed workflows {kept.days} days"


async def _workers(house: House) -> str:
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


def _and(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
