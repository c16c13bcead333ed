"""What was known about a machine before anything irreversible was done to it: gathered once, kept by reference."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from pydantic import JsonValue, ValidationError
from temporalio import activity

from activities.clock import Clock, utcnow
from activities.evidence_store import EvidenceStore
from activities.failures import UNREADABLE_RETRY_S, Bounded, redact, unreadable, waits
from activities.ports import HasEvidence, Unreadable
from activities.registry import NotConfigured, Registry
from activities.signatures import Precondition
from activities.storage.policies import Policies
from medevac.fleet.node import Node
from medevac.model import Model

MOST_PIECES = 30
MOST_BYTES = 8 * 1024 * 1024
"""Of one piece; its beginning is kept."""
MOST_IN_ALL = 32 * 1024 * 1024
INDEX = "index.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST_LINE = 2_000
PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?")
SUSPECT = re.compile(
    r"pass|secret|token|key|signature|credential|bearer|basic|eyJ|xox|xapp|AKIA|ASIA|gh[opsur]_|glpat|sk-|hooks|://",
    re.IGNORECASE,
)
"""Lines without any of these hold nothing that `redact` looks for; most have none, and this is quicker."""
AT_ONCE_S = 1.2
"""What a step that doesn't heartbeat gives it."""


class Reference(Model):
    name: str
    url: str
    sha256: str
    """Of what is stored."""
    size: int
    cut: bool = False
    """There was more."""


class Bundle(Model):
    incident: str
    at: datetime
    pieces: tuple[Reference, ...] = ()
    missing: tuple[str, ...] = ()
    """What could not be had, and why."""

    def proof(self) -> dict[str, JsonValue]:
        """For a step's result, and so for the ledger."""
        return {"evidence": self.model_dump(mode="json", include={"pieces", "missing"})}


class Evidence:
    """Asks the cluster and the provider; each may have something to say or not."""

    def __init__(
        self, registry: Registry, store: EvidenceStore, policies: Policies, bounded: Bounded, clock: Clock = utcnow
    ) -> None:
        self._registry = registry
        self._store = store
        self._policies = policies
        self._bounded = bounded
        self._clock = clock

    def gather(
        self,
        pre: Precondition,
        node: Node,
        seconds: float,
        between: Callable[[], None] = lambda: None,
        *,
        final: bool = True,
    ) -> Bundle | None:
        """Once for an incident, however often it is called; None where nobody has anything to say.

        What can't be had is named in the bundle and stops nothing, unless the policy requires evidence: then a
        retryable error is raised. `between` is called between two pieces and may raise. Not `final`: a bundle that
        lacks something is not the incident's, the next call gathers anew.
        """
        sources = self._sources(pre)
        if not sources:
            return None
        known, why = self._known(pre.incident)
        if known is not None:
            return known
        bundle = self._gathered(pre.incident, node, sources, time.monotonic() + seconds, between)
        if why:
            bundle = bundle.model_copy(update={"missing": (*bundle.missing, why)})
        if bundle.missing and self._required():
            raise waits(
                f"the policy requires evidence before this step, and it lacks: {'; '.join(bundle.missing)}",
                UNREADABLE_RETRY_S,
                "Evidence",
            )
        if bundle.missing and not final:
            return bundle
        try:
            self._store.put(f"{pre.incident}/{INDEX}", bundle.model_dump_json(indent=1).encode())
        except Unreadable as error:
            activity.logger.warning("evidence of %s: %s", pre.incident, redact(str(error)))
        return bundle

    def at_once(self, pre: Precondition, node: Node) -> Bundle | None:
        """As `gather`, for a step that may not wait: what isn't there in a moment is missing."""
        try:
            return self._bounded.call(2 * AT_ONCE_S, self.gather, pre, node, AT_ONCE_S, final=False)
        except Unreadable as error:
            if self._required():
                raise unreadable("the evidence", error) from None
            return Bundle(incident=pre.incident, at=self._clock(), missing=(redact(str(error)),))

    # -- parts -------------------------------------------------------------------------------------------------

    def _sources(self, pre: Precondition) -> dict[str, HasEvidence]:
        found: dict[str, HasEvidence] = {}
        cluster = self._registry.cluster(pre.cluster)
        if isinstance(cluster, HasEvidence):
            found["cluster"] = cluster
        try:
            provider = self._registry.provider(pre.provider)
        except NotConfigured:
            return found
        if isinstance(provider, HasEvidence):
            found["provider"] = provider
        return found

    def _known(self, incident: str) -> tuple[Bundle | None, str]:
        try:
            text = self._store.get(f"{incident}/{INDEX}")
            return (Bundle.model_validate_json(text) if text is not None else None), ""
        except Unreadable as error:
            return None, redact(str(error))
        except ValidationError:
            return None, ""  # a half of one, or of another release: gathered anew

    def _required(self) -> bool:
        """What the policy says can't be read: then nothing irreversible happens without."""
        try:
            return self._policies.active().policy.evidence == "required"
        except Exception as error:
            raise unreadable("the policy", error) from None

    def _gathered(
        self,
        incident: str,
        node: Node,
        sources: dict[str, HasEvidence],
        until: float,
        between: Callable[[], None],
    ) -> Bundle:
        pieces: list[Reference] = []
        missing: list[str] = []
        for source, adapter in sources.items():
            try:
                self._take(f"{incident}/{source}", adapter.evidence(node, incident), pieces, until, between)
            except Unreadable as error:
                missing.append(f"{source}: {redact(str(error))}")
            except Exception as error:
                between()  # a cancel or a lost lease is no missing evidence
                missing.append(f"{source}: {type(error).__name__}: {redact(str(error))}")
        return Bundle(incident=incident, at=self._clock(), pieces=tuple(pieces), missing=tuple(missing))

    def _take(
        self,
        where: str,
        given: Iterable[tuple[str, bytes]],
        pieces: list[Reference],
        until: float,
        between: Callable[[], None],
    ) -> None:
        for name, content in given:
            between()
            if name:
                if not NAME.fullmatch(name):
                    raise Unreadable(f"a piece is called {name[:100]!r}, which is no file name")
                left = MOST_IN_ALL - sum(piece.size for piece in pieces)
                if len(pieces) >= MOST_PIECES or left <= 0:
                    raise Unreadable(f"too much: the rest from {name} on is not kept")
                clean, cut = cleaned(content, min(left, MOST_BYTES), until)
                url = self._store.put(f"{where}/{name}", clean)
                pieces.append(
                    Reference(
                        name=f"{where.rpartition('/')[2]}/{name}",
                        url=url,
                        size=len(clean),
                        cut=cut,
                        sha256=hashlib.sha256(clean).hexdigest(),
                    )
                )
            if time.monotonic() >= until:
                raise Unreadable("its time was over before it had told everything")


def cleaned(content: bytes, most: int, until: float) -> tuple[bytes, bool]:
    """Without what looks like a secret, and whether something is missing at its end or within a line.

    Line by line and no longer than its time: a node that is broken, or not ours any more, may print anything.
    """
    text = content[:most].decode("utf-8", "replace")
    text = PRIVATE_KEY.sub("[redacted]", text)
    lines: list[str] = []
    cut = len(content) > most
    for line in text.split("\n"):
        if time.monotonic() >= until:
            cut = True
            break
        cut = cut or len(line) > LONGEST_LINE
        short = line[:LONGEST_LINE]
        lines.append(redact(short, 2 * LONGEST_LINE) if SUSPECT.search(short) else short)
    return "\n".join(lines).encode()[:most], cut
