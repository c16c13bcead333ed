"""Who is signed in. A session is a signed cookie, good at every gateway that has the same key; nothing is stored.

A person's token is part of the key: whoever gets a new token, or leaves the configuration, is signed out everywhere.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.gateway.people import People, Principal

LONGEST_SAID = 1_000
"""Characters of an answer that is shown on the next page."""


@dataclass(frozen=True, slots=True)
class Session:
    person: Principal
    id: str
    csrf: str
    """Stands in each form; another site can't know it."""
    by_proxy: bool = False


class Sessions:
    def __init__(self, key: bytes, people: People, lasts: timedelta) -> None:
        self._key = key
        self._people = people
        self._ended: dict[str, datetime] = {}
        self.lasts = lasts

    def begin(self, person: Principal, now: datetime) -> str:
        """The cookie's value."""
        id, until = secrets.token_urlsafe(16), int((now + self.lasts).timestamp())
        return f"{person.id}~{id}~{until}~{self._sign_session(person.id, id, until)}"

    def find(self, cookie: str, now: datetime) -> Session | None:
        """None for one that is forged, over, or ended here."""
        parts = cookie.split("~")
        if len(parts) != 4 or not parts[2].isascii() or not parts[2].isdigit():
            return None
        who, id, until, mac = parts
        person = self._people.named(who)
        if person is None or not hmac.compare_digest(mac.encode(), self._sign_session(who, id, int(until)).encode()):
            return None
        if int(until) <= now.timestamp() or id in self._ended:
            return None
        return Session(person, id, self.csrf(id))

    def of_proxy(self, person: Principal) -> Session:
        """Of a request that a trusted proxy has signed in; it is asked anew each time."""
        id = f"proxy:{person.id}"
        return Session(person, id, self.csrf(id), by_proxy=True)

    def end(self, session: Session, now: datetime) -> None:
        """Here at once; the browser forgets it in any case."""
        self._ended = {id: at for id, at in self._ended.items() if at > now} | {session.id: now + self.lasts}

    def csrf(self, id: str) -> str:
        return self._sign("csrf", id)

    def carry(self, text: str, session_id: str) -> str:
        """An answer for the next page that this session sees."""
        words = base64.urlsafe_b64encode(text[:LONGEST_SAID].encode()).decode()
        return f"{words}~{self._sign('said', session_id, words)}"

    def carried(self, cookie: str, session_id: str) -> str:
        words, _, mac = cookie.partition("~")
        if not hmac.compare_digest(mac.encode(), self._sign("said", session_id, words).encode()):
            return ""
        try:
            return base64.urlsafe_b64decode(words).decode()
        except (binascii.Error, UnicodeDecodeError):
            return ""

    def _sign_session(self, who: str, id: str, until: int) -> str:
        return self._sign("session", who, id, str(until), self._people.fingerprint(who).hex())

    def _sign(self, *parts: str) -> str:
        return hmac.new(self._key, "\0".join(parts).encode(), hashlib.sha256).hexdigest()
