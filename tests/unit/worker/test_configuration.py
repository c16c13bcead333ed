"""Settings and the configuration file: every mistake is said with its place and what to do."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from pydantic import JsonValue

from activities.failures import redact
from activities.registry import ConfigurationError
from medevac.policy.loading import load, preset
from worker import parts
from worker.children import environment, free_port
from worker.config import ConfigError, Part, load_config
from worker.gateway.people import People, Right
from worker.gateway.secrets import SecretError
from worker.gateway.senders import AuthError, Senders
from worker.home import Home
from worker.installation import NotReady, check_policy
from worker.parts import build_registry
from worker.settings import SettingsError, load_settings

GOOD = """\
installation: acme
clusters:
  - {name: main, kind: simulation}
providers:
  - {name: skyline, kind: simulation}
senders:
  - name: prom
    sources: [alertmanager]
    clusters: [main]
    bearer: {env: PROM_TOKEN}
people:
  - id: ada
    groups: [operator]
    token: {sha256: "%s"}
""" % ("a" * 64)


def config(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "medevac.yaml"
    file.write_text(text)
    return file


def test_a_good_file_is_read(tmp_path: Path) -> None:
    found = load_config(config(tmp_path, GOOD))
    assert (found.installation, found.simulated, found.senders[0].name) == ("acme", True, "prom")


@pytest.mark.parametrize(("options", "says"), [
    ({"token": "hunter2"}, "`token`: Extra inputs are not permitted"),
    ({"commands": {"state": ["/bin/true"]}, "secret_key": "hunter2"}, "`secret_key`: Extra inputs"),
    ({"commands": {"state": "/bin/true"}}, "`commands.state`: Input should be a valid tuple"),
])  # fmt: skip
def test_an_option_named_like_a_secret_is_still_named_where_secrets_are_blanked(
    options: dict[str, JsonValue], says: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parts._made("providers", Part(name="own", kind="command", options=options))
    assert says in redact(str(caught.value))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("installation: acme", "installation: acme\ninstalation: x", 2, "instalation"),
        ("kind: simulation}\nproviders", "kind: kubernetes}\nproviders", 1, "mixed"),
        ("clusters: [main]\n", "clusters: [man]\n", 1, "man"),
        ("    bearer: {env: PROM_TOKEN}\n", "", 7, "bearer"),
        ("bearer: {env: PROM_TOKEN}", "bearer: {env: A, file: b}", 10, "exactly one"),
        ("bearer: {env: PROM_TOKEN}", "bearer: hunter2", 10, "bearer"),
        ('sha256: "' + "a" * 64, 'sha256: "secret', 14, "sha256"),
        ("providers:", "providers: [", 0, "YAML"),
        ("  - {name: skyline, kind: simulation}", "  - {name: skyline, kind: simulation}\n" * 2, 1, "twice"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(ConfigError) as refused:
        load_config(config(tmp_path, text))
    message = str(refused.value)
    assert says in message
    place = message.split("medevac.yaml:")[1].split(":")
    assert place[0].isdigit()
    assert place[1].isdigit()
    if line:
        assert int(place[0]) == line
    assert "hunter2" not in message, "what was written in place of a secret is not repeated"


def test_a_missing_file_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="MEDEVAC_CONFIG"):
        load_config(tmp_path / "none.yaml")


def test_secrets_come_from_where_the_file_says_and_weak_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load_config(config(tmp_path, GOOD))
    monkeypatch.delenv("PROM_TOKEN", raising=False)
    with pytest.raises(SecretError, match="PROM_TOKEN is not set"):
        Senders(found.senders)
    monkeypatch.setenv("PROM_TOKEN", "short")
    with pytest.raises(SecretError, match="shorter") as weak:
        Senders(found.senders)
    assert "short-" not in str(weak.value)
    monkeypatch.setenv("PROM_TOKEN", "long-enough-to-be-a-token")
    signed_in = Senders(found.senders).by_headers({"authorization": "Bearer long-enough-to-be-a-token"})
    assert signed_in is not None
    assert signed_in.name == "prom"


def test_rights_grow_with_groups_and_unknown_groups_only_read_stop_and_vote(tmp_path: Path) -> None:
    text = GOOD.replace("groups: [operator]", "groups: [night-shift]")
    token = "x" * 20
    import hashlib

    text = text.replace("a" * 64, hashlib.sha256(token.encode()).hexdigest())
    person = People(load_config(config(tmp_path, text)).people).sign_in(f"Bearer {token}")
    for right in (Right.READ, Right.STOP, Right.VOTE):
        person.require(right)
    for right in (Right.OPERATE, Right.THAW, Right.NARROW, Right.WIDEN):
        with pytest.raises(AuthError):
            person.require(right)


def test_a_policy_for_simulated_fleets_is_refused_where_anything_is_real() -> None:
    class Real:
        simulated = False

    policy = load(preset("demo"))
    assert policy.simulated_only
    with pytest.raises(ConfigurationError, match="simulated"):
        check_policy(policy, Real(), "demo.yaml")  # type: ignore[arg-type]


def test_an_unknown_kind_lists_the_installed_ones(tmp_path: Path) -> None:
    text = GOOD.replace("kind: simulation", "kind: nosuch")
    with pytest.raises(ConfigurationError, match=r"nosuch.*simulation"):
        build_registry(load_config(config(tmp_path, text)), tmp_path)


def test_a_simulated_installation_without_its_world_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="medevac up"):
        build_registry(load_config(config(tmp_path, GOOD)), tmp_path)


# -- settings --------------------------------------------------------------------------------------------------


def test_a_wrong_setting_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDEVAC_GATEWAY_PORT", "http")
    with pytest.raises(SettingsError, match="MEDEVAC_GATEWAY_PORT"):
        load_settings()


def test_any_setting_may_come_from_a_mounted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://medevac:pass-word@db/medevac\n")
    monkeypatch.setenv("MEDEVAC_DATABASE_URL_FILE", str(secret))
    settings = load_settings()
    assert settings.database == "postgresql://medevac:pass-word@db/medevac"
    assert "pass-word" not in repr(settings)
    monkeypatch.setenv("MEDEVAC_DATABASE_URL_FILE", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="MEDEVAC_DATABASE_URL_FILE"):
        load_settings()


# -- the embedded home -----------------------------------------------------------------------------------------


def test_a_home_is_made_once_and_its_tokens_are_its_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    before = (home.config.read_text(), home.token("ada"))
    home.make()
    assert (home.config.read_text(), home.token("ada")) == before
    assert home.token("ada") not in home.config.read_text()
    assert home.token_file("ada").stat().st_mode & 0o077 == 0
    config = load_config(home.config)
    assert config.simulated
    assert build_registry(config, home.path).simulated
    person = People(config.people).sign_in(f"Bearer {home.token('grace')}")
    assert person.id == "grace"


def test_one_stack_at_a_time_on_the_same_files(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    first = home.lock()
    try:
        with pytest.raises(NotReady, match="in use"):
            home.lock()
    finally:
        import os

        os.close(first)
    os.close(home.lock())


def test_children_do_not_inherit_settings_meant_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "production:7233")
    monkeypatch.setenv("MEDEVAC_DATABASE_URL", "postgresql://production/ledger")
    passed = environment(MEDEVAC_TIMING="demo")
    assert passed["MEDEVAC_TIMING"] == "demo"
    assert "production" not in " ".join(passed.values())


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (0, port)


@pytest.mark.parametrize(
    ("group", "kind", "options"),
    [
        ("tickets", "jira", {"url": "https://jira.example.com", "project": "GPU", "token": "s3cr3t-typed-here"}),
        ("pagers", "pagerduty", {"routing_key": "s3cr3t-typed-here"}),
        ("chat", "slack", {"bot_token": "s3cr3t-typed-here"}),
        ("providers", "command", {"programs": "s3cr3t-typed-here"}),
    ],
)
def test_a_secret_that_was_typed_into_options_is_not_said_again(
    group: str, kind: str, options: dict[str, object]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parts._made(group, Part.model_validate({"name": "x", "kind": kind, "options": options}))
    whole = "".join(traceback.format_exception(caught.value))
    assert "s3cr3t" not in whole
    assert "x" in str(caught.value)


def test_the_form_of_a_provider_is_all_of_it_but_its_secrets() -> None:
    def of(kind: str = "aws", **options: JsonValue) -> str:
        return parts.form(Part(name="aws", kind=kind, options=options))

    forms = [
        of(),
        of("command"),
        of(reboot="stop_start"),
        of(endpoint="https://one.example"),
        of(accounts=[{"id": "123456789012"}]),
        of(commands={"state": ["/opt/a"]}),
        of(commands={"state": ["/opt/b"]}),
        of(credential="env:ONE"),
        of(credential="env:OTHER"),
    ]
    assert len(set(forms)) == len(forms)
    assert of(a=1, b=2) == of(b=2, a=1)
    assert of(endpoint="https://bot:hunter2@one.example") == of(endpoint="https://bot:hunter3@one.example")
