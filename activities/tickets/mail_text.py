"""What an e-mail says: its key, its sender, its words, and the headers that tell automatic ones."""

from __future__ import annotations

import email.policy
import hashlib
import html
import re
from datetime import UTC, datetime
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import parseaddr, parsedate_to_datetime

from activities.ports import Said

MOST_TEXT = 50_000
KEY = re.compile(r"\[(case-[0-9a-f]{12})\]")
MARKED = re.compile(r"\[([^\[\]\s]{1,100})\]")
"""A key in a subject of ours, a token in the last line of a comment."""
ID = re.compile(r"<([^<>\s]{1,200})>")
HEADERS = (
    "auto-submitted", "x-autoreply", "x-autorespond", "x-auto-response-suppress", "precedence", "return-path",
)  # fmt: skip
_BREAKS = re.compile(r"<(?:br|/p|/div|/tr|/li)\b[^>]*>", re.IGNORECASE)
_HIDDEN = re.compile(r"<(style|script|head|blockquote)\b.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
_TAGS = re.compile(r"<[^>]*>")


def parse(raw: bytes) -> EmailMessage:
    return BytesParser(EmailMessage, policy=email.policy.default).parsebytes(raw)


def header(message: EmailMessage, name: str) -> str:
    try:
        return str(message.get(name, ""))
    except Exception:  # a header of no form: the parser of it may raise anything
        return ""


def answered(message: EmailMessage) -> tuple[str, ...]:
    """Ids of the letters that it answers, the first of the correspondence in front. Help desks keep them where they
    write subjects of their own."""
    return tuple(ID.findall(f"{header(message, 'references')} {header(message, 'in-reply-to')}"))


def ticket_of(message: EmailMessage) -> str | None:
    """The case by its key in the subject, else the ticket by the letter that opened it."""
    found = KEY.search(header(message, "subject"))
    return found[1] if found else next(iter(answered(message)), None)


def id_of(key: str, own: str) -> str:
    """Of our letter about this key, or with this token: the same each time, so that it is known again by it."""
    return f"{hashlib.sha256(key.encode()).hexdigest()[:40]}@{own.rpartition('@')[2]}"


def is_ours(message: EmailMessage, own: str) -> bool:
    """By the Message-ID that we made for what it is about; our address in From, anybody can write."""
    if not own or _author(message).lower() != own.lower():
        return False
    last = words(message).rpartition("\n")[2]
    keys = MARKED.findall(header(message, "subject")) + MARKED.findall(last[:300])
    return header(message, "message-id").strip() in {f"<{id_of(key, own)}>" for key in keys}


def said(message: EmailMessage, received_at: datetime, own: str = "") -> Said:
    """`own`: our address. The sender's clock only stands in where ours doesn't know."""
    id = header(message, "message-id").strip() or hashlib.sha256(bytes(message)).hexdigest()[:32]
    return Said(
        id=id[:200],
        at=min(_date(message) or received_at, received_at),
        author=_author(message)[:100],
        text=words(message),
        ours=is_ours(message, own),
        headers={name: header(message, name)[:200] for name in HEADERS if message.get(name) is not None},
        subject=header(message, "subject")[:300],
    )


def words(message: EmailMessage) -> str:
    """Of its plain part, else of its HTML without what is quoted."""
    part = message.get_body(preferencelist=("plain", "html"))
    if part is None:
        return ""
    try:
        text = str(part.get_content())
    except Exception:  # an encoding of no name, or bytes that don't keep to it
        payload = part.get_payload(decode=True)
        text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""
    if part.get_content_subtype() == "html":
        text = html.unescape(_TAGS.sub("", _BREAKS.sub("\n", _HIDDEN.sub("", text[: 4 * MOST_TEXT]))))
    return text[:MOST_TEXT].replace("\r\n", "\n").strip()


def _author(message: EmailMessage) -> str:
    return parseaddr(header(message, "from"))[1] or header(message, "from")


def _date(message: EmailMessage) -> datetime | None:
    try:
        found = parsedate_to_datetime(header(message, "date"))
    except (ValueError, TypeError):
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
