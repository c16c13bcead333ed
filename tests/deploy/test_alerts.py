"""The alert rules fire when they must, know the metrics that exist, and lead to a runbook that exists."""

import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client import Counter, Gauge, Histogram
from ruamel.yaml import YAML

from tests.deploy.compose import ROOT, environment
from worker import metrics

DEPLOY = ROOT / "deploy"
RULES = [
    rule
    for group in YAML(typ="safe").load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]


@pytest.fixture
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed (Debian and Ubuntu: apt-get install prometheus)")
    return path


@pytest.mark.parametrize(
    "arguments",
    [["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]],
    ids=lambda arguments: " ".join(arguments),
)
def test_promtool_agrees(promtool: str, arguments: list[str]) -> None:
    done = subprocess.run([promtool, *arguments], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def exported() -> Iterator[str]:
    for thing in vars(metrics).values():
        if isinstance(thing, Counter | Gauge | Histogram):
            (family,) = thing.describe()
            yield from (family.name, f"{family.name}_total", f"{family.name}_bucket")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_tested_explained_and_can_fire(rule: dict[str, dict[str, str]]) -> None:
    tests = (DEPLOY / "alerts_test.yaml").read_text(encoding="utf-8")
    assert tests.count(f"{rule['alert']}") >= 2, "one case where it fires, one where it doesn't"
    assert rule["labels"]["severity"] in {"page", "warning"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    assert (ROOT / rule["annotations"]["runbook"]).is_file()
    for name in re.findall(r"\bmedevac_[a-z_]+", str(rule["expr"])):
        assert name in set(exported()), f"no process exports {name}"


def test_every_metric_is_explained() -> None:
    explained = (DEPLOY / "metrics.md").read_text(encoding="utf-8")
    for thing in vars(metrics).values():
        if isinstance(thing, Counter | Gauge | Histogram):
            (family,) = thing.describe()
            suffix = "_total" if isinstance(thing, Counter) else ""
            assert f"`{family.name}{suffix}`" in explained
    for name in re.findall(r"^\| `(medevac_\w+)`", explained, re.MULTILINE):
        assert name in set(exported()), f"metrics.md explains {name}, which nothing exports"


def test_prometheus_finds_every_process_on_its_port() -> None:
    config = YAML(typ="safe").load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    scraped = set()
    for job in config["scrape_configs"]:
        for found in job.get("dns_sd_configs", ()):
            scraped |= {(name, found["port"]) for name in found["names"]}
        for found in job.get("static_configs", ()):
            scraped |= {(host, int(port)) for host, _, port in (t.partition(":") for t in found["targets"])}
    worker, gateway = environment("worker"), environment("gateway")
    assert scraped == {
        ("worker", int(worker["MEDEVAC_WORKER_PORT"])),
        ("worker", int(worker["MEDEVAC_TEMPORAL_METRICS"].rpartition(":")[2])),
        ("gateway", int(gateway["MEDEVAC_GATEWAY_PORT"])),
        ("temporal", int(environment("temporal")["PROMETHEUS_ENDPOINT"].rpartition(":")[2])),
    }
