"""Who posts: a bearer or identity token, basic auth, or one of the senders' signatures over the raw body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from worker.gateway import secrets
from worker.gateway.authentication import AuthError
from worker.gateway.oidc import OidcSenders
from worker.gateway.sns import SnsVerifier
from worker.speakers import Sender

__all__ = ["AuthError", "Senders"]

TOLERANCE_S = 300.0
"""A signature older or newer than this is refused: it may be a replay."""
MOST_SIGNATURES = 10
"""Of one delivery that are looked at; more than one stand there while a secret is changed."""

STANDARD = "webhook-signature"
PAGERDUTY = "x-pagerduty-signature"
GRAFANA = "x-grafana-alerting-signature"
GRAFANA_STAMP = "x-grafana-alerting-timestamp"
SNS = "x-amz-sns-message-type"


@dataclass(frozen=True, slots=True)
class _Key:
    sender: Sender
    user: str
    secret: bytes


class Senders:
    """Blocking where keys or certificates must be fetched; call it on a thread."""

    def __init__(
        self,
        senders: Iterable[Sender],
        clock: Callable[[], float] = time.time,
        *,
        sns: SnsVerifier | None = None,
        oidc: Callable[[str], dict[str, object]] | None = None,
    ) -> None:
        self._clock = clock
        self._sns = sns or SnsVerifier(clock=clock)
        self._tokens: list[_Key] = []
        self._passwords: list[_Key] = []
        self._signers: dict[str, list[_Key]] = {STANDARD: [], PAGERDUTY: [], GRAFANA: []}
        self._topics: dict[str, Sender] = {}
        self._all = {sender.name: sender for sender in senders}
        identities = []
        for sender in self._all.values():
            whose = f"sender {sender.name}"
            if sender.bearer is not None:
                self._tokens.append(_Key(sender, "", secrets.token_digest(sender.bearer, whose)))
            elif sender.basic is not None:
                digest = secrets.token_digest(sender.basic.password, whose)
                self._passwords.append(_Key(sender, sender.basic.user, digest))
            elif sender.sns is not None:
                self._topics.update(dict.fromkeys(sender.sns.topics, sender))
            elif sender.oidc is not None:
                identities.append((sender, sender.oidc))
            for header, secret in ((STANDARD, sender.hmac), (PAGERDUTY, sender.pagerduty), (GRAFANA, sender.grafana)):
                if secret is not None:
                    self._signers[header].append(_Key(sender, "", secrets.hmac_key(secret, whose)))
        self._identities = OidcSenders(identities, oidc, clock)

    def named(self, name: str) -> Sender | None:
        return self._all.get(name)

    def fetches(self, headers: Mapping[str, str]) -> bool:
        """Whether signing in may take a call to elsewhere, and so a thread."""
        return bool(self._identities and "authorization" in headers) or bool(self._topics and headers.get(SNS))

    def by_headers(self, headers: Mapping[str, str]) -> Sender | None:
        """Before the body is read. None = it is signed, so the body must be read first (`by_signature`)."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if self._identities and credentials.count(".") == 2:
                return self._identities.by_token(credentials.strip())
            return self._one(self._tokens, "", credentials.strip())
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                raise AuthError(401, "the basic credentials are not base64 of user:password") from None
            return self._one(self._passwords, user, password)
        if headers.get(STANDARD) and self._signers[STANDARD]:
            self._standard_stamp(headers)
            return None
        if any(headers.get(name) and self._signers[name] for name in (PAGERDUTY, GRAFANA)):
            return None
        if headers.get(SNS) and self._topics:
            return None
        raise AuthError(401, "sign in with a bearer token, basic auth or a webhook signature")

    def by_signature(self, headers: Mapping[str, str], body: bytes) -> Sender:
        if headers.get(STANDARD) and self._signers[STANDARD]:
            signed = f"{headers.get('webhook-id', '')}.{self._standard_stamp(headers)}.".encode() + body
            given = [part.removeprefix("v1,") for part in headers[STANDARD].split() if part.startswith("v1,")]
            return self._signed(STANDARD, signed, given, lambda mac: base64.b64encode(mac).decode())
        if headers.get(PAGERDUTY) and self._signers[PAGERDUTY]:
            parts = [part.strip() for part in headers[PAGERDUTY].split(",")]
            given = [part.removeprefix("v1=").lower() for part in parts if part.startswith("v1=")]
            return self._signed(PAGERDUTY, body, given, bytes.hex)
        if headers.get(GRAFANA) and self._signers[GRAFANA]:
            stamp = headers.get(GRAFANA_STAMP)
            if stamp is not None:
                self._recent(stamp, GRAFANA_STAMP)
            signed = body if stamp is None else stamp.encode() + b":" + body
            return self._signed(GRAFANA, signed, [headers[GRAFANA].strip().lower()], bytes.hex)
        return self._by_topic(body)

    def _by_topic(self, body: bytes) -> Sender:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            raise AuthError(401, "the body is no signed SNS message") from None
        topic = message.get("TopicArn") if isinstance(message, dict) else None
        sender = self._topics.get(topic) if isinstance(topic, str) else None
        if sender is None:
            raise AuthError(401, "no sender is this SNS topic; name its ARN in the sender's `sns: {topics: [...]}`")
        self._sns.verify(message)
        return sender

    def _signed(self, header: str, signed: bytes, given: list[str], text: Callable[[bytes], str]) -> Sender:
        found = None
        for key in self._signers[header]:
            wanted = text(hmac.new(key.secret, signed, hashlib.sha256).digest())
            for signature in given[:MOST_SIGNATURES]:
                if hmac.compare_digest(signature.encode(), wanted.encode()):
                    found = key.sender
        if found is None:
            raise AuthError(
                401, "the webhook signature fits no sender; check its secret and that the body is unchanged"
            )
        return found

    def _standard_stamp(self, headers: Mapping[str, str]) -> str:
        stamp = headers.get("webhook-timestamp", "")
        if not headers.get("webhook-id"):
            raise AuthError(401, "a signed delivery needs webhook-id and webhook-timestamp (unix seconds)")
        self._recent(stamp, "webhook-timestamp")
        return stamp

    def _recent(self, stamp: str, name: str) -> None:
        if not stamp.isascii() or not stamp.isdigit():
            raise AuthError(401, f"a signed delivery needs {name} (unix seconds)")
        if abs(self._clock() - int(stamp[:12])) > TOLERANCE_S:
            raise AuthError(401, f"{name} is more than {TOLERANCE_S:.0f} s from our clock; check both")

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
