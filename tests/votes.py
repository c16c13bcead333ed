"""A gateway's vote key for tests: what it signs counts where `KEYS` are known."""

from __future__ import annotations

from medevac.approvals.signing import Signer, new_key

_PRIVATE, _PUBLIC = new_key()
SIGNER = Signer(_PRIVATE)
KEYS = (_PUBLIC,)
