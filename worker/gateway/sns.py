"""The signature on an SNS message: who published it is Amazon's word, which topic may publish is ours."""

from __future__ import annotations

import base64
import binascii
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from worker.gateway.authentication import AuthError

if TYPE_CHECKING:
    from cryptography import x509

SNS_HOST = re.compile(r"sns\.[a-z]{2}(-[a-z]{1,10}){1,3}-[0-9]{1,2}\.amazonaws\.com(\.cn)?")
_PEM = re.compile(r"/SimpleNotificationService-[A-Za-z0-9]{1,64}\.pem")
FRESH_S = 3_900.0
"""SNS itself retries a delivery for an hour. Older ones may be replays."""
CERTIFICATES = 16
MOST_CERTIFICATE_BYTES = 32 * 1024

NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")

Load = Callable[[str], bytes]
"""Fetches a certificate (PEM). Called for addresses that were checked only."""


class SnsVerifier:
    """Blocking; call it on a thread. Certificates are kept, and each is fetched once."""

    def __init__(self, load: Load | None = None, clock: Callable[[], float] = time.time) -> None:
        self._load = load or _fetch
        self._clock = clock
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def verify(self, message: object) -> str:
        """The topic's ARN. Raises `AuthError`."""
        if not isinstance(message, dict) or not all(isinstance(value, str) for value in message.values()):
            raise AuthError(401, "the body is no signed SNS message (raw message delivery carries no signature)")
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.asymmetric import padding, rsa
        except ImportError:
            raise AuthError(401, "SNS signatures can't be checked here; install `medevac[senders]`") from None

        algorithms: dict[str, hashes.HashAlgorithm] = {"1": hashes.SHA1(), "2": hashes.SHA256()}  # noqa: S303  AWS's choice
        algorithm = algorithms.get(message.get("SignatureVersion", ""))
        if algorithm is None:
            raise AuthError(401, "an SNS SignatureVersion other than 1 and 2")
        self._fresh(message.get("Timestamp", ""))
        key = self._certificate(message.get("SigningCertURL", "")).public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise AuthError(401, "the SNS signing certificate holds no RSA key")
        try:
            signature = base64.b64decode(message.get("Signature", ""), validate=True)
            key.verify(signature, canonical(message), padding.PKCS1v15(), algorithm)
        except (binascii.Error, InvalidSignature):
            raise AuthError(401, "the SNS signature doesn't fit the message") from None
        return str(message["TopicArn"])

    def _fresh(self, stamp: str) -> None:
        try:
            at = datetime.fromisoformat(stamp).astimezone(UTC).timestamp()
        except ValueError:
            raise AuthError(401, "the SNS message has no readable Timestamp") from None
        if abs(self._clock() - at) > FRESH_S:
            raise AuthError(
                401, f"the SNS message is more than {FRESH_S / 60:.0f} minutes from our clock; it may be a replay"
            )

    def _certificate(self, url: str) -> x509.Certificate:
        from cryptography import x509

        parts = urlsplit(url)
        plain = parts.scheme == "https" and parts.netloc == parts.hostname and not parts.query and not parts.fragment
        if not plain or not SNS_HOST.fullmatch(parts.netloc) or not _PEM.fullmatch(parts.path):
            raise AuthError(401, "SigningCertURL is no certificate address of SNS")
        with self._lock:
            if (known := self._known.get(url)) is not None:
                found: x509.Certificate = known
            else:
                try:
                    found = x509.load_pem_x509_certificate(self._load(url))
                except (httpx.HTTPError, ValueError) as error:
                    raise AuthError(503, f"the SNS signing certificate can't be had: {type(error).__name__}") from error
                self._known[url] = found
                while len(self._known) > CERTIFICATES:
                    self._known.popitem(last=False)
        now = datetime.fromtimestamp(self._clock(), UTC)
        if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            raise AuthError(401, "the SNS signing certificate is not valid now")
        return found


def canonical(message: Mapping[str, str]) -> bytes:
    """What SNS signs. Raises `AuthError` when a field is missing."""
    names = NOTIFICATION if message.get("Type") == "Notification" else CONFIRMATION
    missing = [name for name in names if name not in message and name != "Subject"]
    if missing:
        raise AuthError(401, f"the SNS message has no {missing[0]}")
    return "".join(f"{name}\n{message[name]}\n" for name in names if name in message).encode()


def _fetch(url: str) -> bytes:
    answer = httpx.get(url, timeout=3.0, follow_redirects=False)
    answer.raise_for_status()
    if len(answer.content) > MOST_CERTIFICATE_BYTES:
        raise ValueError("the certificate is too large")
    return answer.content
