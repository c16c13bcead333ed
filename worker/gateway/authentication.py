"""The one refusal of everything that signs in."""

from __future__ import annotations


class AuthError(Exception):
    """Why a request is refused. `status` 401 (who are you), 403 (you may not), 503 (it can't be told just now)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
