"""What carries other payloads: JSON inside JSON strings, SQS, SNS, Lambda, Pub/Sub, and newline-delimited JSON."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from medevac.events.parsing import ParseError
from medevac.events.reading import Fields, Reading, json_value, read_text

MAX_LAYERS = 6
"""Envelopes within envelopes that are opened."""


def json_documents(body: bytes, reading: Reading) -> list[tuple[str, JsonValue | ParseError]]:
    """One JSON document, or one on each line. A line that can't be read stands as its error beside the others."""
    return documents_of(read_text(body), reading)


def documents_of(text: str, reading: Reading) -> list[tuple[str, JsonValue | ParseError]]:
    try:
        return [("body", json_value(text))]
    except ParseError as whole:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines[:2]):
            raise
        found: list[tuple[str, JsonValue | ParseError]] = []
        for i, line in enumerate(reading.first(lines), 1):
            try:
                found.append((f"line {i}", json_value(line, f"line {i}")))
            except ParseError as e:
                found.append((f"line {i}", e))
        if all(isinstance(value, ParseError) for _, value in found):
            raise whole
        return found


def json_within(text: str) -> str:
    """The document that a tool printed between lines of its own: from the first line that opens an object to the last
    that closes one. The text as it is where there is none."""
    if text.strip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]"):
        return text
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.startswith(("{", "[{", "[ {"))), None)
    if first is None:
        return text
    last = next((i for i in range(len(lines) - 1, first, -1) if lines[i].rstrip().endswith(("}", "]"))), first)
    return "\n".join(lines[first : last + 1])


@dataclass(frozen=True, slots=True)
class Inner:
    """A document taken out of its envelopes. `document` is None for text that never meant to be JSON."""

    where: str
    document: JsonValue
    error: ParseError | None = None


def aws_inner(reading: Reading, document: JsonValue, where: str = "body", layer: int = 0) -> Iterator[Inner]:
    """Through SQS ReceiveMessage, Lambda's SQS and SNS events and SNS notifications, down to what they carry."""
    if not isinstance(document, dict):
        yield Inner(where, document)
        return
    if layer > MAX_LAYERS:
        yield Inner(where, None, ParseError(f"more than {MAX_LAYERS} envelopes within each other"))
        return
    for key, body_key in (("Messages", "Body"), ("Records", "body")):
        if isinstance(document.get(key), list):
            for i, item in enumerate(reading.first(Fields.of(document, where).parts(key)), 1):
                yield from _carried(reading, item, body_key, f"{key} {i}", layer)
            return
    if "Body" in document and ("ReceiptHandle" in document or "MessageId" in document):
        yield from _carried(reading, document, "Body", where, layer)
    elif "body" in document and "receiptHandle" in document:
        yield from _carried(reading, document, "body", where, layer)
    elif document.get("Type") == "Notification" and "Message" in document:
        yield from _carried(reading, document, "Message", where, layer)
    else:
        yield Inner(where, document)


def _carried(reading: Reading, item: JsonValue, key: str, where: str, layer: int) -> Iterator[Inner]:
    try:
        fields = Fields.of(item, where)
        if "Sns" in fields:
            fields, key = fields.fields("Sns"), "Message"
        elif key == "body" and "body" not in fields:  # another service's record, as S3's
            yield Inner(where, None)
            return
        text = fields.text(key)
        if not text.lstrip().startswith(("{", "[")):
            yield Inner(where, None)
            return
        inner = json_value(text, f"{where} {key}")
    except ParseError as e:
        yield Inner(where, None, e)
        return
    yield from aws_inner(reading, inner, where, layer + 1)


def pubsub_data(message: Fields) -> str | None:
    """The text in `data`; None where there is none. Raises for what is no base64 of UTF-8."""
    data = message.maybe_text("data")
    if data is None:
        return None
    try:
        raw = base64.b64decode(data.encode(), altchars=b"-_" if ("-" in data or "_" in data) else None, validate=True)
        return raw.decode("utf-8")
    except (binascii.Error, ValueError):
        raise ParseError(f"{message.where or 'message'}.data is not valid base64") from None
