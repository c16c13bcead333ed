"""A ticket desk as a program, for the adapter `command`: a folder of JSON files, and misfortunes on demand.

Usage: desk.py FOLDER. It reads one request from standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def main(folder: Path) -> int:
    request = json.load(sys.stdin)
    verb = request["verb"]
    with (folder / "calls").open("a") as calls:
        calls.write(f"{verb}\n")
    trouble = folder / f"trouble-{'read' if verb in ('find', 'thread', 'check') else 'write'}"
    how = trouble.read_text() if trouble.exists() else ""
    trouble.unlink(missing_ok=True)
    if how == "refuse":
        print("no such queue, password=hunter2", file=sys.stderr)
        return 64
    if how == "denied":
        return 77
    if how == "throttle":
        print(json.dumps({"retry_after_s": 7}))
        return 75
    if how == "unreadable":
        return 1
    if how == "timeout_before":
        time.sleep(60)
    answer = act(folder, verb, request)
    kills = folder / f"kill-{verb}"
    if kills.exists():
        # As the adapter's process dies between the effect and its answer.
        kills.unlink()
        os.kill(os.getppid(), signal.SIGKILL)
        return 0
    if how == "timeout_after":
        time.sleep(60)
    print(json.dumps(answer))
    return 0


def act(folder: Path, verb: str, request: dict[str, Any]) -> dict[str, Any]:
    tickets = {path.stem: json.loads(path.read_text()) for path in folder.glob("T-*.json")}
    if verb == "find":
        return next(({"id": id} for id, one in tickets.items() if one["key"] == request["key"]), {})
    if verb == "open":
        id = f"T-{len(tickets) + 1}"
        one = {"open": True, "said": [], **{name: request[name] for name in ("key", "title", "body", "provider")}}
    elif verb == "check":
        return {"missing": []}
    else:
        id, one = request["id"], tickets[request["id"]]
    if verb == "thread":
        return {"open": one["open"], "said": one["said"]}
    if verb == "comment":
        say(one, request["text"], ours=True)
    if verb == "close":
        one["open"] = False
    half = folder / f"half-{id}"
    half.write_text(json.dumps(one))
    half.rename(folder / f"{id}.json")
    return {"id": id, "url": f"https://desk.example/{id}"}


def say(one: dict[str, Any], text: str, *, ours: bool, author: str = "desk") -> None:
    at = datetime.now(UTC).isoformat()
    one["said"].append({"id": f"c{len(one['said'])}", "at": at, "text": text, "ours": ours, "author": author})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
