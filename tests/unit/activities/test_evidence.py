"""Evidence is gathered once, bounded, without secrets, and stops nothing unless the policy says so."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from temporalio.exceptions import ApplicationError

from activities import evidence as module
from activities.evidence import Bundle, Evidence, cleaned
from activities.evidence_store import EvidenceOptions, FolderStore, S3Options, open_store
from activities.machines import MachineActivities
from activities.ports import Unreadable, Verb
from activities.registry import Registry
from medevac.fleet.node import Node
from medevac.incident import Outcome
from medevac.policy.loading import preset
from tests.unit.activities.house import CLUSTER, INCIDENT, House, run

Piece = tuple[str, bytes]


class Telling:
    """A cluster of the house that has something to say."""

    def __init__(self, cluster: Any, pieces: Iterable[Piece | Exception]) -> None:
        self._cluster = cluster
        self.pieces = list(pieces)
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def evidence(self, node: Node, incident: str) -> Iterator[Piece]:
        self.asked += 1
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Desk:
    def __init__(self, house: House, path: Path, *pieces: Piece | Exception) -> None:
        self.house = house
        self.root = path / "evidence"
        self.cluster = Telling(house.registry.cluster(CLUSTER), pieces)
        registry = Registry(clusters=[self.cluster], providers=house.parts.providers, chat=house.parts.chat)
        self.evidence = Evidence(registry, FolderStore(self.root), house.policies, house.bounded)
        self.node = house.marked(house.busy_node())

    def gather(self, seconds: float = 30, **how: Any) -> Bundle:
        found = self.evidence.gather(self.house.pre(self.node), self.node, seconds, **how)
        assert found is not None
        return found

    def require(self) -> None:
        text = preset("demo") + "\nevidence: required\n"
        now = datetime.now(UTC)
        version = self.house.policies.propose(text, "test", now)
        self.house.policies.activate(version, self.house.policies.active().version, now)


def stored(bundle: Bundle, name: str) -> bytes:
    (piece,) = (piece for piece in bundle.pieces if piece.name == name)
    content = Path(urlparse(piece.url).path).read_bytes()
    assert (piece.size, piece.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    return content


def test_it_is_gathered_once_for_an_incident_and_referred_to_by_content(house: House, tmp_path: Path) -> None:
    desk = Desk(house, tmp_path, ("node.json", b"{}"), ("", b""), ("events.json", b"[1]"))
    first = desk.gather()
    assert [piece.name for piece in first.pieces] == ["cluster/node.json", "cluster/events.json"]
    assert stored(first, "cluster/events.json") == b"[1]"
    assert desk.gather() == first
    assert desk.cluster.asked == 1
    folder = desk.root / INCIDENT / "cluster"
    assert stat.S_IMODE((folder / "node.json").stat().st_mode) == 0o600


def test_no_secret_is_stored(house: House, tmp_path: Path) -> None:
    said = "boot ok\nAWS_SECRET_ACCESS_KEY=hunter2hunter2\nAuthorization: Bearer hunter2hunter2\n"
    key = "-----BEGIN RSA PRIVATE KEY-----\nhunter2\nhunter2\n-----END RSA PRIVATE KEY-----\nafter"
    content = stored(Desk(house, tmp_path, ("console.txt", (said + key).encode())).gather(), "cluster/console.txt")
    assert b"hunter2" not in content
    assert b"boot ok" in content
    assert b"after" in content


def test_it_stays_small(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1_000)
    monkeypatch.setattr(module, "MOST_IN_ALL", 2_500)
    monkeypatch.setattr(module, "MOST_PIECES", 9)
    desk = Desk(house, tmp_path, *((f"{n}.txt", b"line\n" * 1_000) for n in range(20)))
    bundle = desk.gather()
    assert all(piece.size <= 1_000 and piece.cut for piece in bundle.pieces)
    assert sum(piece.size for piece in bundle.pieces) <= 2_500
    assert "too much" in bundle.missing[0]


def test_what_takes_for_ever_to_clean_is_cut_in_time() -> None:
    clean, cut = cleaned(b"token" + b"0" * 5_000_000, 6_000_000, float("inf"))
    assert cut
    assert len(clean) <= 2 * module.LONGEST_LINE
    assert cleaned(b"a\nb", 10, float("-inf")) == (b"", True)


@pytest.mark.parametrize("name", ["../index.json", "a/b", ".hidden", "x" * 200])
def test_a_name_is_a_file_name(house: House, tmp_path: Path, name: str) -> None:
    bundle = Desk(house, tmp_path, ("fine.txt", b"1"), (name, b"2")).gather()
    assert [piece.name for piece in bundle.pieces] == ["cluster/fine.txt"]
    assert "no file name" in bundle.missing[0]


@pytest.mark.parametrize("error", [Unreadable("403: token=hunter2"), KeyError("what")])
def test_what_fails_is_named_and_stops_nothing(house: House, tmp_path: Path, error: Exception) -> None:
    bundle = Desk(house, tmp_path, ("node.json", b"{}"), error).gather()
    assert [piece.name for piece in bundle.pieces] == ["cluster/node.json"]
    assert len(bundle.missing) == 1
    assert "hunter2" not in bundle.missing[0]


def test_a_store_that_is_away_is_named_and_stops_nothing(house: House, tmp_path: Path) -> None:
    desk = Desk(house, tmp_path, ("node.json", b"{}"))
    desk.root.write_text("no folder")
    assert "evidence can't be" in desk.gather().missing[0]


def test_where_the_policy_requires_it_nothing_goes_on_without(house: House, tmp_path: Path) -> None:
    desk = Desk(house, tmp_path, Unreadable("not now"))
    desk.require()
    with pytest.raises(ApplicationError, match="requires evidence") as waits:
        desk.gather()
    assert waits.value.next_retry_delay
    desk.cluster.pieces = [("node.json", b"{}")]
    assert desk.gather().missing == ()


def test_a_cancel_gets_through(house: House, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def between() -> None:
        raise Stop

    with pytest.raises(Stop):
        Desk(house, tmp_path, ("node.json", b"{}")).gather(between=between)


def test_time_that_is_over_is_said(house: House, tmp_path: Path) -> None:
    bundle = Desk(house, tmp_path, ("a.txt", b"1"), ("b.txt", b"2")).gather(0)
    assert "time was over" in bundle.missing[0]


def test_an_index_of_which_half_was_written_is_made_anew(house: House, tmp_path: Path) -> None:
    desk = Desk(house, tmp_path, ("node.json", b"{}"))
    desk.gather()
    (desk.root / INCIDENT / "index.json").write_text('{"incident":')
    assert desk.gather().pieces
    assert desk.cluster.asked == 2


def test_who_has_nothing_to_say_is_not_asked(house: House, tmp_path: Path) -> None:
    evidence = Evidence(house.registry, FolderStore(tmp_path / "none"), house.policies, house.bounded)
    node = house.busy_node()
    assert evidence.gather(house.pre(node), node, 1) is None
    assert not (tmp_path / "none").exists()


def test_a_call_without_a_drain_keeps_what_is_known_first(house: House, tmp_path: Path) -> None:
    desk = Desk(house, tmp_path, ("node.json", b"{}"))
    machines = MachineActivities(house.registry, house.look, house.intents, house.ledger, evidence=desk.evidence)
    acted = run(machines.act, house.act_request(desk.node, Verb.RESTART_AGENT))
    assert acted.outcome is Outcome.DONE
    kept = acted.proof["evidence"]
    assert isinstance(kept, dict)
    assert kept["missing"] == []
    assert desk.cluster.asked == 1


def test_half_of_it_gathered_in_a_hurry_is_not_the_last_word(house: House, tmp_path: Path) -> None:
    desk = Desk(house, tmp_path, Unreadable("not now"))
    hurried = desk.evidence.at_once(house.pre(desk.node), desk.node)
    assert hurried is not None
    assert hurried.missing
    desk.cluster.pieces = [("node.json", b"{}")]
    assert desk.gather().missing == ()


def test_a_store_is_opened_as_configured(tmp_path: Path) -> None:
    open_store(None, tmp_path).put("inc-1/a.txt", b"1")
    assert (tmp_path / "evidence/inc-1/a.txt").read_bytes() == b"1"
    open_store(EvidenceOptions(path=tmp_path / "here"), tmp_path).put("a.txt", b"2")
    assert (tmp_path / "here/a.txt").read_bytes() == b"2"
    with pytest.raises(ValueError, match="bucket"):
        open_store(EvidenceOptions(kind="s3"), tmp_path)


def test_a_bucket_keeps_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("moto")
    import boto3
    from moto.server import ThreadedMotoServer

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint)
        client.create_bucket(Bucket="evidence")
        options = S3Options(bucket="evidence", region="us-east-1", endpoint=endpoint)
        store = open_store(EvidenceOptions(kind="s3", s3=options), tmp_path)
        assert store.get("inc-1/index.json") is None
        assert store.put("inc-1/index.json", b"{}") == "s3://evidence/medevac/inc-1/index.json"
        assert store.get("inc-1/index.json") == b"{}"
        store.remove("inc-1/index.json")
        store.remove("inc-1/index.json")
        assert store.get("inc-1/index.json") is None
        assert str(store) == "s3://evidence/medevac/"
        lost = open_store(EvidenceOptions(kind="s3", s3=options.model_copy(update={"bucket": "nowhere"})), tmp_path)
        with pytest.raises(Unreadable, match="nowhere"):
            lost.put("a", b"1")
        with pytest.raises(Unreadable, match="nowhere"):
            lost.get("a")
        with pytest.raises(Unreadable, match="nowhere"):
            lost.remove("a")
        client.close()
    finally:
        server.stop()
