#!/usr/bin/env python3
"""Ships what one GPU node says about itself to medevac: kernel log, DCGM health, the cloud's metadata service.

It decides nothing: what it reads goes to the gateway as it stands, under the node's name. Python >= 3.10 and nothing
else. Nothing is lost while the gateway is away: positions move on only after it has taken what was before them.

    NODE_NAME, CLUSTER        the node as its cluster calls it, the cluster as medevac calls it
    MEDEVAC_URL               https://…; http only with MEDEVAC_PLAINTEXT=yes (the token would be readable on the way)
    MEDEVAC_TOKEN_FILE        the sender's bearer token; read anew for each delivery, so that it can be rotated
    MEDEVAC_CA_FILE           certificate authority, where it is your own
    KERNEL_LOG                `syslog` (the default: the kernel's own call, needs CAP_SYSLOG), a path, or `none`
    DCGM_FILE                 what dcgm-health.sh writes; unset: no DCGM here
    METADATA                  aws, azure, gcp, none, or auto (the default: whichever answers first)
    STATE_FILE                what was said already; kept over restarts
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

EVERY_S = 5.0
METADATA_AGAIN_S = 300.0  # while no metadata service answers; else with everything: a Spot notice leaves 2 minutes
AGAIN_S = 900.0  # what still holds is said again, so that an answer lost anywhere heals
LOOK_BACK_S = 300.0  # how old a line may be at the first start; older ones are history, not news
DCGM_STALE_S = 300.0
MOST_LINES = 500
WANTED = re.compile(r"NVRM:|SXid \(")
FAULT = re.compile(r"Xid")
UPTIME = re.compile(r"\[ *(\d+\.\d+)\]")


def log(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token wherever it points."""

    def redirect_request(self, *_: object) -> None:
        return None


class Gateway:
    def __init__(self, env: dict[str, str], boot_id: str) -> None:
        self.url = env["MEDEVAC_URL"].rstrip("/")
        if not self.url.startswith("https://") and env.get("MEDEVAC_PLAINTEXT") != "yes":
            raise SystemExit("MEDEVAC_URL is not https; set MEDEVAC_PLAINTEXT=yes to send the token readable to all")
        self.token_file = env.get("MEDEVAC_TOKEN_FILE", "/etc/medevac/token")
        self.headers = {
            "X-Medevac-Node": env["NODE_NAME"],
            "X-Medevac-Cluster": env["CLUSTER"],
            "X-Medevac-Boot-Id": boot_id,
            "User-Agent": "medevac-node-agent",
        }
        context = ssl.create_default_context(cafile=env.get("MEDEVAC_CA_FILE") or None)
        self.opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPSHandler(context=context))

    def post(self, source: str, body: str, exit_code: str = "") -> bool:
        """True when it is held, or can never be; False when it must be sent again."""
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
            kind = "application/json" if body[:1] in "{[" else "text/plain; charset=utf-8"
            headers = {**self.headers, "Authorization": f"Bearer {token}", "Content-Type": kind}
            if exit_code:
                headers["X-Medevac-Exit-Code"] = exit_code
            request = urllib.request.Request(  # noqa: S310
                f"{self.url}/v1/events/{source}", body.encode(), headers
            )
            with self.opener.open(request, timeout=20) as answer:
                for part in json.load(answer).get("parts", ()):
                    log(f"{source}: {part.get('fault')} {part.get('outcome')} {part.get('reason')}".rstrip())
            return True
        except urllib.error.HTTPError as error:
            unreadable = error.code in (400, 413, 415)
            said = error.read(500).decode("utf-8", "replace")
            log(f"{source}: {error.code} {said}; {'dropped' if unreadable else 'sent again later'}")
            return unreadable
        except (OSError, ValueError) as error:
            log(f"{source}: the gateway was not reached: {error}; sent again later")
            return False


class State:
    """`said`: what holds, by name; `line`: the last kernel line that was dealt with; of one boot."""

    def __init__(self, path: str | None, boot_id: str) -> None:
        self.path = Path(path) if path else None
        self.said: dict[str, dict[str, Any]] = {}
        self.line: str | None = None
        self.seen_before = False
        try:
            held = json.loads(self.path.read_text(encoding="utf-8")) if self.path else {}
            self.said, self.seen_before = held["said"], True
            self.line = held["line"] if held["boot_id"] == boot_id else None
        except (OSError, ValueError, KeyError, TypeError):
            pass
        self.boot_id = boot_id

    def save(self) -> None:
        if self.path:
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps({"said": self.said, "line": self.line, "boot_id": self.boot_id}))
            new.replace(self.path)


def kernel_lines(where: str) -> list[str]:
    if where != "syslog":
        fd = os.open(where, os.O_RDONLY | os.O_NONBLOCK)
        parts = []
        try:
            while True:
                try:
                    part = os.read(fd, 65536)  # /dev/kmsg gives one record a read
                except BrokenPipeError:  # the record was overwritten while we read: on with the next
                    continue
                if not part:
                    break
                parts.append(part)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)
        return b"".join(parts).decode("utf-8", "replace").split("\n")
    libc = ctypes.CDLL(None, use_errno=True)
    size = max(libc.klogctl(10, None, 0), 1 << 16)  # SYSLOG_ACTION_SIZE_BUFFER
    buffer = ctypes.create_string_buffer(size)
    length = libc.klogctl(3, buffer, size)  # SYSLOG_ACTION_READ_ALL: takes nothing out of the log
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: reading the kernel log needs CAP_SYSLOG")
    return buffer.raw[:length].decode("utf-8", "replace").split("\n")


def news(lines: list[str], state: State, uptime: float) -> list[str]:
    """What came after the line that was dealt with last. At the very first start: what came just now."""
    wanted = [line for line in lines if WANTED.search(line)]
    if state.line is not None:
        found = [i for i, line in enumerate(wanted) if line == state.line]
        return wanted[found[-1] + 1 :] if found else wanted
    if state.seen_before:  # a new boot: all of it is new
        return wanted
    return [line for line in wanted if (m := UPTIME.search(line)) and uptime - float(m[1]) < LOOK_BACK_S]


def ship_kernel(where: str, state: State, gateway: Gateway) -> bool:
    lines = kernel_lines(where)
    fresh = news(lines, state, time.clock_gettime(time.CLOCK_MONOTONIC))
    for start in range(0, len(fresh), MOST_LINES):
        part = fresh[start : start + MOST_LINES]
        if any(map(FAULT.search, part)) and not gateway.post("kmsg", "\n".join(part) + "\n"):
            return False
        state.line = part[-1]
        state.save()
    if not state.seen_before:
        state.line = next((line for line in reversed(lines) if WANTED.search(line)), None)
        state.seen_before = True
        state.save()
    return True


# A statement that holds: (source, body, body that takes it back or None, whether to repeat it, and of a command's
# output its exit code).
Held = tuple[Any, ...]


def say(state: State, gateway: Gateway, now: dict[str, Held], kind: str, at: float) -> bool:
    """Says what is new or changed, takes back what no longer holds. Only for statements of this `kind`."""
    for name, (source, body, off, repeat, *exit_code) in now.items():
        digest = hashlib.sha256("".join((body, *exit_code)).encode()).hexdigest()
        before = state.said.get(name)
        due = repeat and before is not None and at - before["at"] >= AGAIN_S
        if before is None or before["digest"] != digest or due:
            if not gateway.post(source, body, *exit_code):
                return False
            state.said[name] = {"digest": digest, "at": at, "source": source, "off": off}
            state.save()
    for name in [n for n in state.said if n.startswith(f"{kind}/") and n not in now]:
        before = state.said[name]
        if before["off"] is not None and not gateway.post(before["source"], before["off"]):
            return False
        del state.said[name]
        state.save()
    return True


def dcgm(path: str, node: str, at: float) -> dict[str, Held]:
    """The report as it stands; where there is none, that is the monitor's own fault and never the node's."""
    body, why = "", f"dcgmi health has not been run for {DCGM_STALE_S:.0f} s"
    overall, exit_code = None, ""
    try:
        exit_code, _, body = Path(path).read_text(encoding="utf-8").partition("\n")
        if at - Path(path).stat().st_mtime < DCGM_STALE_S:
            why = f"dcgmi health ended with {exit_code}: {body[:200]!r}"
            overall = json.loads(body)["body"]["Overall Health"]["value"]
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        log(f"dcgm: {error}")
    about = {"node": node, "fault": "monitor/dcgm-unreachable", "key": f"dcgm-unreachable|{node}", "statement": "level"}
    if overall is None:
        return {"dcgm/silent": ("generic", json.dumps({**about, "kind": "fault", "summary": why}), None, True)}
    answers = json.dumps({**about, "kind": "recovered", "summary": "dcgmi health reports"})
    return {
        "dcgm/health": ("dcgm", body, None, overall != "Healthy", exit_code if exit_code.isdigit() else ""),
        "dcgm/answers": ("generic", answers, None, False),
    }


class Metadata:
    """Each read raises OSError when the service can't be read: then nothing is new and nothing is over."""

    def __init__(self, cloud: str, node: str, base: str) -> None:
        self.cloud, self.node, self.base = cloud, node, base
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)

    def get(self, path: str, headers: dict[str, str], method: str = "GET") -> str | None:
        """None for 404: there is no such notice."""
        request = urllib.request.Request(f"{self.base}{path}", headers=headers, method=method)  # noqa: S310
        try:
            with self.opener.open(request, timeout=2) as answer:
                return str(answer.read(262_144), "utf-8", "replace").strip()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def read(self) -> dict[str, Held]:
        readers = {"aws": self.aws, "azure": self.azure, "gcp": self.gcp}
        if self.cloud != "auto":
            return readers[self.cloud]()
        for cloud, reader in readers.items():
            try:
                found = reader()
            except (OSError, ValueError, KeyError):
                continue
            self.cloud = cloud
            log(f"metadata: this is {cloud}")
            return found
        raise OSError("no metadata service answers")

    def aws(self) -> dict[str, Held]:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
        token = self.get("/latest/api/token", ttl, "PUT")
        if not token:
            raise OSError("no IMDSv2 token")
        headers = {"X-aws-ec2-metadata-token": token}
        now: dict[str, Held] = {}
        for path in ("spot/instance-action", "events/recommendations/rebalance"):
            if notice := self.get(f"/latest/meta-data/{path}", headers):
                now[f"metadata/{path}"] = ("aws", notice, None, True)
        for event in json.loads(self.get("/latest/meta-data/events/maintenance/scheduled", headers) or "[]"):
            over = json.dumps([{**event, "State": "completed"}])
            now[f"metadata/{event['EventId']}"] = ("aws", json.dumps([event]), over, True)
        return now

    def azure(self) -> dict[str, Held]:
        headers = {"Metadata": "true"}
        machine = self.get("/metadata/instance/compute/name?api-version=2021-02-01&format=text", headers)
        document = json.loads(self.get("/metadata/scheduledevents?api-version=2020-07-01", headers) or "{}")
        if "Events" not in document:
            raise OSError("no scheduled events")
        now: dict[str, Held] = {}
        for event in document["Events"]:
            # The document lists every machine of the set. This one speaks for itself, by its node's name.
            if machine in event.get("Resources", ()):
                mine = {**event, "Resources": [self.node]}
                body, over = (
                    json.dumps({"DocumentIncarnation": document.get("DocumentIncarnation"), "Events": [e]})
                    for e in (mine, {**mine, "EventStatus": "Completed"})
                )
                now[f"metadata/{event['EventId']}"] = ("azure", body, over, True)
        return now

    def gcp(self) -> dict[str, Held]:
        headers = {"Metadata-Flavor": "Google"}
        now: dict[str, Held] = {}
        answers = [self.get(f"/computeMetadata/v1/instance/{p}", headers) for p in ("maintenance-event", "preempted")]
        if answers == [None, None]:
            raise OSError("no maintenance-event and no preempted")
        for path, word in zip(("maintenance-event", "preempted"), answers, strict=True):
            if word not in (None, "NONE", "FALSE"):
                now[f"metadata/{path}"] = ("gcp", word, None, True)
        window = json.loads(self.get("/computeMetadata/v1/instance/upcoming-maintenance?alt=json", headers) or "null")
        if window:
            over = json.dumps({**window, "maintenance_status": "COMPLETE"})
            now["metadata/upcoming-maintenance"] = ("gcp", json.dumps(window), over, True)
        return now


class Agent:
    def __init__(self, env: dict[str, str]) -> None:
        boot_id = Path(env.get("BOOT_ID_FILE", "/proc/sys/kernel/random/boot_id")).read_text().strip()
        self.gateway, self.state = Gateway(env, boot_id), State(env.get("STATE_FILE"), boot_id)
        self.kernel, self.dcgm_file = env.get("KERNEL_LOG", "syslog"), env.get("DCGM_FILE")
        cloud = env.get("METADATA", "auto")
        base = env.get("METADATA_URL", "http://169.254.169.254")
        self.node = env["NODE_NAME"]
        if cloud not in ("auto", "aws", "azure", "gcp", "none"):
            raise SystemExit(f"METADATA is {cloud}; it is one of auto, aws, azure, gcp, none")
        self.metadata = None if cloud == "none" else Metadata(cloud, self.node, base)
        self.metadata_due = 0.0

    def once(self) -> bool:
        """One round over everything; True when all of it is held."""
        done, at = True, time.time()
        try:
            if self.kernel != "none":
                done &= ship_kernel(self.kernel, self.state, self.gateway)
        except OSError as error:
            log(f"kernel log: {error}")
            done = False
        if self.dcgm_file:
            done &= say(self.state, self.gateway, dcgm(self.dcgm_file, self.node, at), "dcgm", at)
        if self.metadata is not None and at >= self.metadata_due:
            try:
                now = self.metadata.read()
            except (OSError, ValueError, KeyError, TypeError) as error:
                log(f"metadata: {error}")
                self.metadata_due = at + METADATA_AGAIN_S
            else:
                done &= say(self.state, self.gateway, now, "metadata", at)
        return done


def main() -> None:
    env = dict(os.environ)
    alive = Path(env.get("STATE_FILE", "/tmp/medevac-agent")).with_suffix(".alive")  # noqa: S108
    if "--alive" in sys.argv:
        raise SystemExit(time.time() - alive.stat().st_mtime > 600)
    agent, failed = Agent(env), 0
    if "--once" in sys.argv:
        raise SystemExit(not agent.once())
    while True:
        failed = 0 if agent.once() else min(failed + 1, 4)
        alive.touch()
        time.sleep(EVERY_S * 2**failed)


if __name__ == "__main__":
    main()
