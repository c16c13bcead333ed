"""Forks `medevac` processes that have their modules loaded already, so that a test can kill and restart many.

Orders come as lines of JSON on stdin: `{"start": [argv], "env": {...}, "log": path}` answers a pid, `{"wait": pid}`
answers the exit status once that process is gone, `{"gone": pid}` 1 when it is. It starts
no thread itself, or a fork would be unsafe.
"""

from __future__ import annotations

import json
import os
import sys

import boto3  # noqa: F401  type: ignore[import-untyped]

import worker.gateway.serve
import worker.intake.sqs
import worker.runtime  # noqa: F401
from worker.cli import main


def run(argv: list[str], env: dict[str, str], log: str) -> None:
    """In the child; never returns."""
    code: object = 70
    try:
        os.setsid()
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for descriptor in (1, 2):
            os.dup2(handle, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["medevac", *argv]
        main()
        code = 0
    except SystemExit as left:
        code = left.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
        elif "gone" in order:
            answer = int(os.waitid(os.P_PID, order["gone"], os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
        elif (answer := os.fork()) == 0:
            run(order["start"], order["env"], order["log"])
        print(answer, flush=True)


if __name__ == "__main__":
    serve()
