"""docker-compose.yml keeps its promises: valid, pinned, nothing open without a login, nothing secret in it."""

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.deploy.compose import COMPOSE, ROOT, Unset, environment, example_env, interpolated, load
from worker.settings import PREFIX, Settings

SERVICES: dict[str, Any] = load()["services"]
JOBS = {"temporal-schema", "simulated-fleet", "setup"}
OURS = {"simulated-fleet", "setup", "worker", "gateway"}


def seconds(text: str) -> float:
    units = {"s": "seconds", "m": "minutes", "h": "hours"}
    return sum(timedelta(**{units[unit]: float(n)}).total_seconds() for n, unit in re.findall(r"(\d+)([smh])", text))


def test_compose_itself_would_accept_the_file() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="no wheel of compose-spec for this Python")
    parsed = compose_spec.PyOptions(apply_merge=True).from_yaml(interpolated(example_env()))
    parsed.validate()
    assert set(parsed.service_names()) == set(SERVICES)


def test_a_missing_setting_says_what_to_do() -> None:
    for name in example_env():
        without = {key: value for key, value in example_env().items() if key != name}
        with pytest.raises(Unset, match=rf"{name}: .*\.env"):
            interpolated(without)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_pinned_bounded_and_unprivileged(name: str) -> None:
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert tag == "local" if name in OURS else re.search(r"\d+\.\d+", tag), f"{name}: image is not pinned"
    limits = service["deploy"]["resources"]["limits"]
    assert limits["cpus"]
    assert limits["memory"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not {"privileged", "network_mode", "pid", "devices"} & set(service)
    assert service["logging"]["options"]["max-size"], f"{name}: its log may fill the disk"
    assert service["restart"] == ("on-failure" if name in JOBS else "unless-stopped")


@pytest.mark.parametrize("name", sorted(set(SERVICES) - JOBS - {"worker"}))
def test_every_service_says_whether_it_is_healthy(name: str) -> None:
    # The worker's and the gateway's is the image's own, see test_dockerfile.
    assert name in OURS or SERVICES[name]["healthcheck"]["test"][0] == "CMD"


def test_only_the_gateway_listens_beyond_this_machine() -> None:
    published = {name: port for name, service in SERVICES.items() for port in service.get("ports", ())}
    assert published.pop("gateway") == "127.0.0.1:8080:8080"
    assert set(published) == {"temporal", "temporal-ui", "prometheus"}
    assert all(port.startswith("127.0.0.1:") for port in published.values())
    assert load()["networks"]["database"]["internal"] is True
    assert SERVICES["postgres"]["networks"] == ["database"]


def test_no_secret_stands_in_the_file_or_in_an_environment() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if re.search(r"PASS|PWD|SECRET|TOKEN|KEY|DATABASE_URL", key):
                assert key.endswith("_FILE"), f"{name}: {key}"
                assert value.startswith("/run/secrets/")
    assert all(set(secret) == {"file"} for secret in load()["secrets"].values())
    assert not re.search(r"://\w+:[^@/\s]+@", COMPOSE.read_text(encoding="utf-8"))


def test_every_secret_used_is_mounted_and_is_made_by_the_script() -> None:
    script = (ROOT / "deploy" / "secrets.sh").read_text(encoding="utf-8")
    made = set(re.findall(r"^make (\w+)", script, re.MULTILINE))
    assert made == set(load()["secrets"])
    for name, service in SERVICES.items():
        text = f"{service.get('environment', '')}{service.get('entrypoint', '')}"
        for used in re.findall(r"/run/secrets/(\w+)", text):
            assert used in service["secrets"], f"{name} reads {used}, which isn't mounted"


def test_every_mounted_file_is_there_and_read_only() -> None:
    mounted = [v for s in SERVICES.values() for v in s.get("volumes", ()) if v.startswith("./")]
    assert mounted
    for volume in mounted:
        source, _, mode = volume.split(":")
        assert (ROOT / source).exists(), source
        assert mode == "ro", volume


@pytest.mark.parametrize("name", sorted(OURS))
def test_our_processes_understand_their_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = environment(name)
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    for key in given:
        assert not key.startswith(PREFIX) or key.removesuffix("_FILE") in known, f"{key} is no setting"
    for key, value in given.items():
        if key.startswith(PREFIX) and not key.endswith("_FILE"):
            monkeypatch.setenv(key, value)
    settings = Settings()
    if name == "worker":
        assert seconds(SERVICES[name]["stop_grace_period"]) >= settings.shutdown_s + 15


def test_everything_starts_after_what_it_needs() -> None:
    def waits(name: str) -> dict[str, str]:
        return {other: how["condition"] for other, how in SERVICES[name].get("depends_on", {}).items()}

    assert waits("temporal-schema") == {"postgres": "service_healthy"}
    assert waits("temporal") == {"temporal-schema": "service_completed_successfully"}
    assert waits("setup") == {
        "postgres": "service_healthy",
        "temporal": "service_healthy",
        "simulated-fleet": "service_completed_successfully",
    }
    assert waits("worker") == waits("gateway") == {"setup": "service_completed_successfully"}
