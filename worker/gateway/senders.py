"""Who posts: a bearer token, basic auth, or a Standard-Webhooks signature over the raw body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from worker.config import Sender
from worker.gateway import secrets

TOLERANCE_S = 300.0
"""A signature older or newer than this is refused: it may be a replay."""


class AuthError(Exception):
    """Why a request is refused. `status` 401 (who are you) or 403 (you may not)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Key:
    sender: Sender
    user: str
    secret: bytes


class Senders:
    def __init__(self, senders: Iterable[Sender], clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tokens: list[_Key] = []
        self._passwords: list[_Key] = []
        self._signers: list[_Key] = []
        for sender in senders:
            whose = f"sender {sender.name}"
            if sender.bearer is not None:
                self._tokens.append(_Key(sender, "", secrets.token_digest(sender.bearer, whose)))
            elif sender.basic is not None:
                digest = secrets.token_digest(sender.basic.password, whose)
                self._passwords.append(_Key(sender, sender.basic.user, digest))
            elif sender.hmac is not None:
                self._signers.append(_Key(sender, "", secrets.hmac_key(sender.hmac, whose)))

    def by_headers(self, headers: Mapping[str, str]) -> Sender | None:
        """Before the body is read. None = it is signed, so the body must be read first (`by_signature`)."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._one(self._tokens, "", credentials.strip())
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                raise AuthError(401, "the basic credentials are not base64 of user:password") from None
            return self._one(self._passwords, user, password)
        if headers.get("webhook-signature") and self._signers:
            self._fresh(headers)
            return None
        raise AuthError(401, "sign in with a bearer token, basic auth or a webhook signature")

    def by_signature(self, headers: Mapping[str, str], body: bytes) -> Sender:
        stamp = self._fresh(headers)
        signed = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
        given = [part.removeprefix("v1,") for part in headers["webhook-signature"].split() if part.startswith("v1,")]
        found = None
        for key in self._signers:
            wanted = base64.b64encode(hmac.new(key.secret, signed, hashlib.sha256).digest()).decode()
            for signature in given[:10]:
                if hmac.compare_digest(signature.encode(), wanted.encode()):
                    found = key.sender
        if found is None:
            raise AuthError(
                401, "the webhook signature fits no sender; check its secret and that the body is unchanged"
            )
        return found

    def _fresh(self, headers: Mapping[str, str]) -> str:
        stamp = headers.get("webhook-timestamp", "")
        if not stamp.isascii() or not stamp.isdigit() or not headers.get("webhook-id"):
            raise AuthError(401, "a signed delivery needs webhook-id and webhook-timestamp (unix seconds)")
        if abs(self._clock() - int(stamp[:12])) > TOLERANCE_S:
            raise AuthError(401, f"the webhook timestamp is more than {TOLERANCE_S:.0f} s from our clock; check both")
        return stamp

    @staticmethod
    def _one(keys: list[_Key], user: str, presented: str) -> Sender:
        found = None
        for key in keys:
            same_user = hmac.compare_digest(key.user.encode(), user.encode())
            if secrets.matches(presented, key.secret) and same_user:
                found = key.sender
        if found is None:
            raise AuthError(401, "no sender has these credentials")
        return found
