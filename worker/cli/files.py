"""Payloads from files or standard input, as a parser takes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from medevac.events.parsing import MAX_PAYLOAD_BYTES, Payload
from worker.cli.output import Failed


def read_payload(path: str, headers: Path | None = None, exit_code: int | None = None) -> Payload:
    """`-` is standard input. `headers`: a JSON object, or lines `Name: value`."""
    try:
        if path == "-":
            body = sys.stdin.buffer.read(MAX_PAYLOAD_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                body = file.read(MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}", 2) from error
    if len(body) > MAX_PAYLOAD_BYTES:
        raise Failed(f"{path}: larger than {MAX_PAYLOAD_BYTES} bytes; split it", 2)
    return Payload(body, read_headers(headers) if headers else {}, exit_code)


def read_headers(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: cannot be read: {error}", 2) from error
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise Failed(f"{path}: not JSON: {error}", 2) from error
        return {str(name).lower(): str(value) for name, value in found.items()}
    lines: Sequence[str] = [line for line in text.splitlines() if ":" in line]
    return {line.split(":", 1)[0].strip().lower(): line.split(":", 1)[1].strip() for line in lines}
