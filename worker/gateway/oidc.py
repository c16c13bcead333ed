"""Senders that sign in with an identity token (OpenID Connect, RS256): Pub/Sub push, NVSentinel, workloads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpx

from worker.gateway.authentication import AuthError
from worker.speakers import Oidc, Sender

KEEP_S = 3_600.0
"""How long keys are used without asking for newer ones."""
AGAIN_S = 60.0
"""Least time between two fetches that an unknown key may cause."""
LEEWAY_S = 60

Load = Callable[[str], dict[str, Any]]
"""Fetches a JWKS. Called only for addresses from our own configuration."""


class OidcSenders:
    """Blocking; call it on a thread."""

    def __init__(
        self, senders: Iterable[tuple[Sender, Oidc]], load: Load | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._senders = list(senders)
        self._load = load or _fetch
        self._clock = clock
        self._keys: dict[str, tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._senders)

    def by_token(self, token: str) -> Sender:
        """Raises `AuthError`, which never says which part of a token was wrong to whom it isn't ours to tell."""
        try:
            import jwt
        except ImportError:
            raise AuthError(401, "identity tokens can't be checked here; install `medevac[senders]`") from None

        if len(token) > 16_384:
            raise AuthError(401, "the identity token is too long")
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            said = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except jwt.PyJWTError:
            raise AuthError(401, "the bearer token is no readable identity token") from None
        reason = "nobody signs in with tokens of that issuer"
        for sender, oidc in self._senders:
            if said not in oidc.issuers:
                continue
            try:
                claims = jwt.decode(
                    token,
                    self._key(oidc.jwks_url, str(kid)),
                    algorithms=["RS256"],
                    audience=oidc.audience,
                    issuer=list(oidc.issuers),
                    leeway=LEEWAY_S,
                    options={"require": ["exp", "iat", "aud", "iss"]},
                )
            except jwt.PyJWTError as error:
                reason = f"the identity token doesn't hold: {type(error).__name__}"
                continue
            if oidc.email is not None and not (
                claims.get("email") == oidc.email and claims.get("email_verified") is True
            ):
                reason = "the identity token is somebody else's"
                continue
            if oidc.subject is not None and claims.get("sub") != oidc.subject:
                reason = "the identity token is somebody else's"
                continue
            return sender
        raise AuthError(401, reason)

    def _key(self, url: str, kid: str) -> Any:
        import jwt

        with self._lock:
            at, keys = self._keys.get(url, (-KEEP_S, {}))
            age = self._clock() - at
            if age >= KEEP_S or (kid not in keys and age >= AGAIN_S):
                try:
                    found = jwt.PyJWKSet.from_dict(self._load(url))
                    keys = {key.key_id: key.key for key in found.keys if key.key_id and key.key_type == "RSA"}
                    self._keys[url] = self._clock(), keys
                except (httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
                    if kid not in keys:
                        raise AuthError(503, f"the issuer's keys can't be had: {type(error).__name__}") from error
        if kid not in keys:
            raise AuthError(401, "the identity token is signed with a key that its issuer doesn't have")
        return keys[kid]


def _fetch(url: str) -> dict[str, Any]:
    answer = httpx.get(url, timeout=3.0, follow_redirects=False)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found
