"""The doctor's look at queues, pollers and watchers: all at once, ten seconds each, and nothing is taken from any."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from itertools import islice

import httpx

from activities.ports import Cluster, Watchable
from activities.storage.leaders import Leaders
from worker.config import Config
from worker.findings import Bad, Finding, finding
from worker.intake.poller import AT_ONCE, client_of, read_bounded
from worker.intake.sqs import make_client
from worker.speakers import Poller, Queue, Target, Watcher

WITHIN_S = 10.0
MOST_TARGETS = 40
"""Of one poller that are asked here."""
NO_RECEIPT = "medevac-doctor"
HARMLESS = ("ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidAddress")
"""What SQS says of a receipt that is none, to whom may ask."""


async def ways_in(config: Config, clusters: dict[str, Cluster], leaders: Leaders) -> list[Finding]:
    """`clusters`: by name, as far as they could be made."""
    looks: list[tuple[str, Awaitable[str], str]] = [
        (f"queue {one.name}", _queue(one), "see its `url` and `region`, and the account's rights (docs/senders.md)")
        for one in config.queues
    ]
    looks += [
        (f"poller {one.name}", _poller(one, leaders), "see its `targets`, their daemons and the network")
        for one in config.pollers
    ]
    looks += [
        (f"watcher {one.name}", _watcher(one, clusters, leaders), "see the cluster's options and its account's rights")
        for one in config.watchers
    ]
    return list(await asyncio.gather(*(finding(what, look, fix, WITHIN_S) for what, look, fix in looks)))


async def _queue(queue: Queue) -> str:
    """Asks for something that the consumer must be allowed to, and that touches no message."""

    def ask() -> None:
        client = make_client(queue, connect_s=3, read_s=5, attempts=1)
        try:
            client.change_message_visibility(QueueUrl=queue.url, ReceiptHandle=NO_RECEIPT, VisibilityTimeout=0)
        except Exception as error:
            answer = getattr(error, "response", {}).get("Error", {})
            if not any(code in str(answer.get("Code", "")) for code in HARMLESS):
                raise

    await asyncio.to_thread(ask)
    every = f", expected to speak every {queue.expected_every_s:g} s" if queue.expected_every_s else ""
    return f"answers{every}; `medevac consume` receives from it"


async def _poller(poller: Poller, leaders: Leaders) -> str:
    asked = poller.targets[:MOST_TARGETS]
    slots = asyncio.Semaphore(AT_ONCE)
    async with client_of(poller) as client:
        found = await asyncio.gather(*(_asked(client, slots, poller, target) for target in asked))
    silent = [f"{target.node} ({why})" for target, why in zip(asked, found, strict=True) if why]
    text = f"{len(asked) - len(silent)} of {len(asked)} targets answer"
    if silent:
        text += f"; not: {', '.join(silent[:5])}{' and more' if len(silent) > 5 else ''}"
    if len(silent) * 2 > len(asked):
        hint = "; for a certificate that gpud made itself say `verify: false`" if "CERTIFICATE" in str(silent) else ""
        raise Bad(text, f"see these daemons and the way there{hint}")
    holder = await asyncio.to_thread(leaders.holder, f"poll/{poller.name}", datetime.now(UTC))
    if holder is None:
        raise Bad(f"{text}, but nobody asks them", "start `medevac poll`")
    return text


async def _asked(client: httpx.AsyncClient, slots: asyncio.Semaphore, poller: Poller, target: Target) -> str:
    """Why it doesn't answer; empty when it does."""
    async with slots:
        try:
            async with asyncio.timeout(WITHIN_S / 2):
                await read_bounded(client, target.url.rstrip("/") + poller.paths[0])
        except TimeoutError:
            return "no answer in time"
        except (httpx.HTTPError, ValueError) as error:
            return (str(error) or type(error).__name__).splitlines()[0][:120]
    return ""


async def _watcher(watcher: Watcher, clusters: dict[str, Cluster], leaders: Leaders) -> str:
    unwatched = []
    for name in watcher.clusters:
        cluster = clusters.get(name)
        if cluster is None:
            raise Bad(f"cluster {name} can't be made", "see the finding about parts")
        if not isinstance(cluster, Watchable):
            raise Bad(f"cluster {name} tells nothing by itself", "take it out of the watcher's `clusters`")
        if not await asyncio.to_thread(_shows_nodes, clusters[name]):
            raise Bad(f"cluster {name} shows no node", "look at its credentials' rights and its node selector")
        if await asyncio.to_thread(leaders.holder, f"watch/{watcher.name}/{name}", datetime.now(UTC)) is None:
            unwatched.append(name)
    if unwatched:
        raise Bad(f"nobody watches {', '.join(unwatched)}, which can be read", "start `medevac watch`")
    return f"{', '.join(watcher.clusters)} can be read, and is watched"


def _shows_nodes(cluster: Cluster) -> bool:
    return bool(list(islice(cluster.nodes(), 1)))
