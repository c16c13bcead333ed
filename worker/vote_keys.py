"""The gateway's vote key and its public halves, as an installation has them."""

from __future__ import annotations

import os
from pathlib import Path

from medevac.approvals.signing import BadKey, Signatures, Signer, new_key
from worker.config import Config, ConfigError
from worker.settings import Settings, SettingsError
from worker.speakers import PublicKey


def public_keys(config: Config) -> tuple[str, ...]:
    """PEM texts. Raises `ConfigError`."""
    pems = tuple(_read(key) for key in config.vote_keys)
    try:
        Signatures(pems)
    except BadKey as error:
        raise ConfigError(f"vote_keys: {error}; `medevac vote-key FILE` makes a pair") from error
    return pems


def signer(settings: Settings, config: Config) -> Signer | None:
    """None where the gateway has no key: nobody can vote through it. Raises `SettingsError`."""
    if settings.vote_key is None:
        return None
    try:
        found = Signer(settings.vote_key.get_secret_value())
    except BadKey as error:
        raise SettingsError(f"MEDEVAC_VOTE_KEY: {error}; `medevac vote-key FILE` makes one") from error
    if found.public_pem.strip() not in {pem.strip() for pem in public_keys(config)}:
        raise SettingsError(
            "MEDEVAC_VOTE_KEY: its public half is not among `vote_keys` of the configuration, so no vote would count;"
            " add the .pub file that was made with it"
        )
    return found


def write_pair(file: Path) -> Path:
    """The private key, for its owner's eyes only, and beside it `.pub`. Never overwrites. Raises `FileExistsError`."""
    private, public = new_key()
    handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(private)
    beside = file.with_name(file.name + ".pub")
    beside.write_text(public, encoding="utf-8")
    return beside


def _read(key: PublicKey) -> str:
    if key.pem is not None:
        return key.pem
    if key.env is not None:
        if not (found := os.environ.get(key.env)):
            raise ConfigError(f"vote_keys: the variable {key.env} is not set")
        return found
    file = key.file or Path()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"vote_keys: {file} cannot be read: {error}") from error
