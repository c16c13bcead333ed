"""Votes are signed by the gateway, which alone knows who is speaking, and checked wherever they count.

Ed25519 (RFC 8032): whoever can reach Temporal or runs a worker holds the public key only, and can't make a vote.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from medevac.approvals.approval import Vote
from medevac.model import digest

PURPOSE = b"medevac vote 1\n"
"""Keeps a signature made for anything else from passing as a vote."""


class BadKey(ValueError):
    """A key that can't be used; the message never holds the key."""


def new_key() -> tuple[str, str]:
    """A fresh pair: private (PKCS 8) and public (SPKI), both PEM."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


class Signer:
    """The gateway's pen. Raises `BadKey`."""

    def __init__(self, private_pem: str) -> None:
        try:
            key = load_pem_private_key(private_pem.encode(), password=None)
        except (ValueError, TypeError) as error:
            raise BadKey("the vote key is not an unencrypted PEM private key") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey("the vote key is not an Ed25519 key")
        self._key = key

    @property
    def public_pem(self) -> str:
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def sign(self, vote: Vote) -> Vote:
        signature = base64.b64encode(self._key.sign(_meant(vote))).decode()
        return vote.model_copy(update={"signature": signature})


class Signatures:
    """Tells which votes a gateway signed. Several keys while one takes over from another. Raises `BadKey`."""

    def __init__(self, public_pems: Iterable[str]) -> None:
        self._keys = tuple(_public(pem) for pem in public_pems)

    def genuine(self, vote: Vote) -> bool:
        """False for a vote without a signature, and for every vote where no key is configured."""
        try:
            signature = base64.b64decode(vote.signature, validate=True)
        except (binascii.Error, ValueError):
            return False
        return any(_verifies(key, signature, _meant(vote)) for key in self._keys)


def _meant(vote: Vote) -> bytes:
    return PURPOSE + digest(vote.model_dump(mode="json", exclude={"signature"})).encode()


def _public(pem: str) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(pem.encode())
    except ValueError as error:
        raise BadKey("a vote's public key is not PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey("a vote's public key is not an Ed25519 key")
    return key


def _verifies(key: Ed25519PublicKey, signature: bytes, meant: bytes) -> bool:
    try:
        key.verify(signature, meant)
    except InvalidSignature:
        return False
    return True
