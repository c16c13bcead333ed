"""The data directory of an embedded installation: its lock, its simulated world, its tokens, its configuration."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medevac.policy.loading import preset
from simulation.layout import DEMO, Layout
from simulation.world import World
from worker.installation import CONFIG, NotReady
from worker.parts import WORLD
from worker.vote_keys import write_pair

SENDER = "sender"
PEOPLE = {
    "ada": ("viewer", "operator", "approver", "capacity-owners", "admin"),
    "grace": ("viewer", "operator", "approver"),
    "kim": ("viewer", "operator"),
}
"""Some things take two people, and who asks for one has no vote in it."""
SPARES = 4
"""Of each pool: work that is evicted moves there, and with none left the guard makes the next node wait."""


@dataclass(frozen=True, slots=True)
class Home:
    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def world(self) -> Path:
        return self.path / WORLD

    def token_file(self, whose: str) -> Path:
        return self.path / f"{whose}.token"

    def token(self, whose: str) -> str:
        """Made once, readable by its owner only."""
        file = self.token_file(whose)
        if not file.exists():
            handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "w") as out:
                out.write(secrets.token_urlsafe(32))
        return file.read_text().strip()

    @property
    def vote_key(self) -> Path:
        return self.path / "vote.key"

    def make(self, layout: Layout | None = None, seed: int = 0) -> None:
        """A simulated installation, as far as it isn't there yet."""
        self.path.mkdir(parents=True, exist_ok=True)
        layout = layout or Layout(durations=DEMO, spares=SPARES)
        if not self.world.exists():
            World.create(self.world, layout, seed).close()
        if not self.vote_key.exists():
            write_pair(self.vote_key)
        if not self.config.exists():
            self.config.write_text(self._written(layout), encoding="utf-8")
        elif "\nvote_keys:" not in (written := self.config.read_text(encoding="utf-8")):
            self.config.write_text(written + "\n".join(self._votes()) + "\n", encoding="utf-8")

    def demo_policy(self) -> Path:
        """A file of its own, to be read and changed; refused where anything is real."""
        file = self.path / "policy.yaml"
        if not file.exists():
            file.write_text(preset("demo"), encoding="utf-8")
        return file

    def lock(self) -> int:
        """Held by this process and its children; a second stack on the same files would corrupt both."""
        self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            pids = self.running().get("pids", {})
            known = ", ".join(f"{name} {pid}" for name, pid in pids.items())
            # Children outlive an `up` that was killed: they go on healing, and Ctrl-C reaches them no more.
            stop = f"Ctrl-C there, or `kill {' '.join(map(str, pids.values()))}`, stops it" if pids else "stop it"
            raise NotReady(
                f"{self.path} is in use ({known or 'by a process unknown here'}); {stop}; "
                "or set another MEDEVAC_DATA_DIR"
            ) from None
        return handle

    @property
    def running_file(self) -> Path:
        return self.path / "running.json"

    def running(self) -> dict[str, Any]:
        try:
            found = json.loads(self.running_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _votes(self) -> list[str]:
        return ["vote_keys:", f"  - {{file: {json.dumps(str(self.vote_key) + '.pub')}}}"]

    def _written(self, layout: Layout) -> str:
        def sha(whose: str) -> str:
            return hashlib.sha256(self.token(whose).encode()).hexdigest()

        lines = [
            "# Made by `medevac up`: a simulated fleet. A real installation has its own file; see the handbook.",
            "installation: simulated",
            "clusters:",
            *(f"  - {{name: {name}, kind: simulation}}" for name in layout.clusters),
            "providers:",
            *(f"  - {{name: {name}, kind: simulation}}" for name in layout.providers),
            "checks:",
            "  - {name: checks, kind: simulation}",
            "tickets:",
            "  - {name: tickets, kind: simulation}",
            "senders:",
            f"  - name: {SENDER}",
            "    sources: [alertmanager, cloudevents, nvsentinel, kmsg, generic]",
            f"    clusters: [{', '.join(layout.clusters)}]",
            f"    bearer: {{sha256: {sha(SENDER)}}}",
            *self._votes(),
            "people:",
        ]
        for person, groups in PEOPLE.items():
            lines += [
                f"  - id: {person}",
                f"    groups: [{', '.join(groups)}]",
                f"    token: {{sha256: {sha(person)}}}",
            ]
        return "\n".join(lines) + "\n"
