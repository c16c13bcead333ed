"""Settings of one process, from `MEDEVAC_*` environment variables. What an installation *has* stands in its
configuration file (`worker.config`); Temporal is configured by its own `TEMPORAL_*` variables.

Any variable may be given as `<NAME>_FILE` instead, naming a file that holds the value (mounted secrets).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX = "MEDEVAC_"


class SettingsError(ValueError):
    """A setting is wrong. The message says which variable, what is wrong, and what to do."""


class FileSource(PydanticBaseSettingsSource):
    """Reads `<PREFIX><FIELD>_FILE`: a path whose content is the value."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = f"{PREFIX}{field_name.upper()}_FILE"
        path = os.environ.get(variable)
        if not path:
            return None, field_name, False
        try:
            return Path(path).read_text(encoding="utf-8").strip(), field_name, False
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"{variable}: cannot read {path}: {error}; mount the file or unset the variable"
            ) from error

    def __call__(self) -> dict[str, Any]:
        values = {}
        for name, field in self.settings_cls.model_fields.items():
            value, key, _ = self.get_field_value(field, name)
            if value is not None:
                values[key] = value
        return values


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, validate_default=True)

    config: Path | None = None
    """Configuration file. `medevac up` without one makes a simulated installation in `data_dir`."""
    data_dir: Path = Path(".medevac")
    """Where the embedded stack keeps its files."""
    database_url: SecretStr | None = None
    """SQLAlchemy URL of the ledger. Default: `ledger.sqlite` in `data_dir`."""
    timing: Literal["production", "demo", "test"] = "production"
    """Profile of activity time-outs (`activities.signatures.TIMINGS`)."""

    gateway_host: str = "127.0.0.1"
    gateway_port: int = Field(default=8080, ge=0, le=65535)
    worker_host: str = "127.0.0.1"
    """Of the worker's own `/healthz`, `/readyz` and `/metrics`."""
    worker_port: int = Field(default=8081, ge=0, le=65535)
    intake_port: int = Field(default=8082, ge=0, le=65535)
    """Of `consume`, `poll` and `watch`: their `/healthz`, `/readyz` and `/metrics`, on `worker_host`."""
    temporal_metrics: str = ""
    """`host:port` for the Temporal SDK's Prometheus metrics; empty = off."""

    build_id: str = ""
    """Set it to use Temporal worker versioning; `medevac setup --current BUILD` makes it current."""
    deployment: str = "medevac"
    """Worker deployment name, with `build_id`."""
    versioning: Literal["pinned", "auto_upgrade"] = "pinned"
    """Whether running incidents stay on the build that started them."""

    activity_slots: int = Field(default=100, ge=1, le=1_000)
    """Activities at once on the main queue; as many threads. Waits for proof hold a slot each."""
    machine_slots: int = Field(default=20, ge=1, le=1_000)
    chat_slots: int = Field(default=10, ge=1, le=1_000)
    machine_calls_per_s: float = Field(default=10.0, gt=0)
    """Calls to machines per second over all workers (their queue's rate)."""
    chat_calls_per_s: float = Field(default=1.0, gt=0)
    """Messages per second over all workers; chat systems take about one."""
    cached_workflows: int = Field(default=1_000, ge=0)
    shutdown_s: float = Field(default=30.0, gt=0)
    """How long a stopping worker lets its activities end. Keep the supervisor's kill time above it."""
    sweep_s: float = Field(default=30.0, gt=0)
    """Between two sweeps for stuck incidents."""
    temporal_wait_s: float = Field(default=60.0, ge=0)
    """How long a starting worker waits for a Temporal that starts with it."""
    retention_days: int = Field(default=30, ge=30)
    """Least retention of the Temporal namespace that `setup` sets."""

    vote_key: SecretStr | None = None
    """Of the gateway alone: its private key (PEM), which signs votes. Its public half stands under `vote_keys`."""
    max_body_bytes: int = Field(default=16 * 1024 * 1024, ge=1_024)
    signal_timeout_s: float = Field(default=3.0, gt=0)
    """Of one signal to a workflow. A delivery waits one second at most, then what is left of it goes to the inbox."""
    inventory_s: float = Field(default=30.0, gt=0)
    """How old the gateway's list of nodes may get."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False

    @field_validator("data_dir", "config")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path else None

    @property
    def database(self) -> str:
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'ledger.sqlite'}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, FileSource(settings_cls)


def load_settings(**overrides: Any) -> Settings:
    """The process's settings; `SettingsError` names the variable that is wrong."""
    from pydantic import ValidationError

    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
        raise SettingsError(f"{name}: {first['msg']}; correct or unset the variable") from error
