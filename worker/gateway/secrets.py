"""Secrets by reference become digests in memory; comparisons take the same time whatever is presented."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from pathlib import Path

from activities.secret import Secret
from worker.speakers import Token

LEAST_SECRET = 16
"""Characters. Shorter ones can be guessed, and are refused at start."""


class SecretError(ValueError):
    """A referenced secret is missing or too weak. The message names the reference, never the value."""


def token_digest(token: Token, whose: str) -> bytes:
    if token.sha256 is not None:
        return bytes.fromhex(token.sha256)
    return hashlib.sha256(_read(token.file, token.env, whose)).digest()


def hmac_key(secret: Secret, whose: str) -> bytes:
    """`whsec_<base64>` as Standard Webhooks writes it, or the text itself."""
    value = _read(secret.file, secret.env, whose)
    if value.startswith(b"whsec_"):
        try:
            return base64.b64decode(value.removeprefix(b"whsec_"), validate=True)
        except binascii.Error as error:
            raise SecretError(f"{whose}: the secret starts with whsec_ but is not base64 after it") from error
    return value


def matches(presented: str, digest: bytes) -> bool:
    return hmac.compare_digest(hashlib.sha256(presented.encode()).digest(), digest)


def _read(file: Path | None, env: str | None, whose: str) -> bytes:
    if file is not None:
        try:
            value = file.expanduser().read_bytes().strip()
        except OSError as error:
            raise SecretError(f"{whose}: cannot read {file}: {error.strerror}; create it") from error
        where = str(file)
    else:
        value = os.environ.get(env or "", "").encode().strip()
        where = f"the variable {env}"
        if not value:
            raise SecretError(f"{whose}: {where} is not set; set it")
    if len(value) < LEAST_SECRET:
        raise SecretError(
            f"{whose}: the secret in {where} is shorter than {LEAST_SECRET} characters; make a longer one"
        )
    return value
