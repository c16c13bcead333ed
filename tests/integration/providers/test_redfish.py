"""What only bare metal has: machines that don't go down by themselves, boots that are armed once, BMCs of all kinds."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activities import hurry
from activities.inventory_file import read_inventory
from activities.last_look import Frozen, looking
from activities.ports import NotAllowed, NotSent, TakesInventory, Unclear, Unreadable, Verb
from activities.providers.redfish import provider as redfish
from activities.providers.redfish.provider import make
from activities.registry import ConfigurationError
from activities.signatures import Precondition
from medevac.fleet.node import Capability
from medevac.fleet.order import Order
from medevac.incident import Outcome
from tests.contracts.desk import Desk
from tests.contracts.rigs import ProviderRig, Trouble
from tests.integration.providers.bmcs import PASSWORD, SYSTEMS, Bmcs
from tests.integration.providers.redfish_rig import RedfishRig

Opens = Callable[[ProviderRig], Desk]
TAG = "inc-1"


def ways(far: Bmcs) -> list[str]:
    return [call.how for call in far.calls if call.how]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "POLL_S", 0.0)


# -- power -----------------------------------------------------------------------------------------------------


def test_who_can_hear_it_is_asked_nicely_and_forced_once_where_nothing_came_of_it(bmcs: Bmcs, desk: Opens) -> None:
    rig = RedfishRig(bmcs, graceful_s=0.1)
    bmcs.script("restart", Trouble.LIE)
    first = desk(rig)
    assert first.act(Verb.REBOOT).outcome is Outcome.DONE
    assert first.prove(Verb.REBOOT, deadline_s=6.0).outcome is Outcome.TIMED_OUT
    assert ways(bmcs) == ["GracefulRestart", "ForceRestart"]
    # The next worker waits for the same proof, and forces nothing again.
    another = RedfishRig(bmcs, graceful_s=0.1)
    another.node, another._nodes = rig.node, rig._nodes
    assert desk(another).prove(Verb.REBOOT, deadline_s=1.0).outcome is Outcome.TIMED_OUT
    assert ways(bmcs) == ["GracefulRestart", "ForceRestart"]
    rig.pass_time()
    assert first.prove(Verb.REBOOT).outcome is Outcome.DONE


def test_who_comes_back_in_time_is_not_forced(bmcs: Bmcs, desk: Opens) -> None:
    rig = RedfishRig(bmcs, graceful_s=0.1)
    one = desk(rig)
    one.act(Verb.REBOOT)
    rig.pass_time()
    assert one.prove(Verb.REBOOT).outcome is Outcome.DONE
    assert ways(bmcs) == ["GracefulRestart"]


@pytest.mark.parametrize(("reset", "forced"), [(None, False), (timedelta(hours=-1), True), (timedelta(hours=1), False)])
def test_a_machine_that_may_be_in_mid_boot_is_not_hit(bmcs: Bmcs, reset: timedelta | None, forced: bool) -> None:
    """Nobody hears its node any more: only its BMC can tell whether it went down."""
    rig = RedfishRig(bmcs, graceful_s=0.1)
    silent = rig.change(rig.node.machine.id, reachable=False)
    since = datetime.now(UTC) - timedelta(minutes=10)
    if reset is not None:
        bmcs.more[rig.node.machine.id]["LastResetTime"] = (since + reset).isoformat()
    assert rig.redfish.overdue(Verb.REBOOT, silent, TAG, since) is forced
    bmcs.turn(rig.node.machine.id, "Off")
    assert not rig.redfish.overdue(Verb.REBOOT, silent, TAG, since)


def test_who_cannot_hear_it_is_forced_at_once(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    rig.provider.do(Verb.REBOOT, rig.change(rig.node.machine.id, reachable=False), TAG)
    assert ways(bmcs) == ["ForceRestart"]


def test_a_machine_that_is_off_is_turned_on(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    bmcs.turn(rig.node.machine.id, "Off")
    assert rig.provider.state(rig.node, TAG).power == "off"
    rig.provider.do(Verb.REBOOT, rig.node, TAG)
    assert ways(bmcs) == ["On"]


def test_what_went_down_and_stayed_down_is_turned_on_by_whoever_waits_for_it(
    bmcs: Bmcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = RedfishRig(bmcs)
    assert rig.redfish.proceed(Verb.REBOOT, rig.node, TAG) is None
    bmcs.turn(rig.node.machine.id, "Off")
    assert rig.redfish.proceed(Verb.REBOOT, rig.node, TAG) is None, "it may be in the middle of a restart"
    monkeypatch.setattr(redfish, "OFF_S", 0.0)
    assert rig.redfish.proceed(Verb.REBOOT, rig.node, TAG) == "turned on"
    assert rig.redfish.proceed(Verb.TERMINATE, rig.node, TAG) is None
    assert ways(bmcs) == ["On"]


def test_off_is_proved_by_its_bmc_alone(bmcs: Bmcs, desk: Opens) -> None:
    rig = RedfishRig(bmcs)
    one = desk(rig)
    assert one.act(Verb.TERMINATE).outcome is Outcome.DONE
    bmcs.script("read", Trouble.TIMEOUT_BEFORE, times=1000)
    rig.pass_time()
    late = one.prove(Verb.TERMINATE, deadline_s=0.5)
    assert late.outcome is Outcome.TIMED_OUT
    assert "unreadable" in late.reason
    bmcs.scripts.clear()
    assert one.prove(Verb.TERMINATE).outcome is Outcome.DONE


def test_a_bmc_that_does_not_know_its_machine_proves_nothing(bmcs: Bmcs) -> None:
    """Many answer so while they start: it is no proof that a machine is gone."""
    rig = RedfishRig(bmcs)
    bmcs.script("read", Trouble.REFUSE, status=404)
    with pytest.raises(Unreadable, match="404"):
        rig.provider.state(rig.node, TAG)


# -- boots -----------------------------------------------------------------------------------------------------


def test_a_reinstall_boots_the_ordered_image_once_and_takes_it_out_again(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    ordered = f"{bmcs.url}/images/os.iso?v=2"
    node = rig.change(rig.node.machine.id, image=ordered)
    rig.provider.do(Verb.REINSTALL, node, TAG)
    board = rig.redfish._board(node)
    assert board.inserted(board.look()) == [ordered]
    assert [call.kind for call in bmcs.effects][-1] == "install"
    assert rig.redfish.proceed(Verb.REINSTALL, node, TAG) is None
    assert board.inserted(board.look()) == [ordered], "it is being installed from"
    rig.pass_time()
    [node] = rig.nodes()
    assert rig.redfish.proceed(Verb.REINSTALL, node, TAG) == "the image is ejected"
    assert board.inserted(board.look()) == []


def test_a_campaign_s_image_is_the_one_that_is_installed(
    bmcs: Bmcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ordered(Desk):
        def _pre(self) -> Precondition:
            order = Order(campaign="c-1", approval="a-1", rung="reinstall", image=f"{bmcs.url}/images/os.iso?of=c-1")
            return super()._pre().model_copy(update={"order": order})

    class Counted:
        """The people's yes; it is counted in tests of its own."""

        def check_order(self, *_: object) -> None: ...

    rig = RedfishRig(bmcs)
    desk = Ordered(rig, tmp_path / "ledger.sqlite")
    monkeypatch.setattr(desk._machines._look, "_approved", Counted(), raising=False)
    assert desk.act(Verb.REINSTALL).outcome is Outcome.DONE
    board = rig.redfish._board(rig.node)
    assert board.inserted(board.look()) == [f"{bmcs.url}/images/os.iso?of=c-1"]
    desk.close()


def test_a_reinstall_by_the_network(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs, reinstall="pxe")
    rig.provider.do(Verb.REINSTALL, rig.node, TAG)
    assert [call.kind for call in bmcs.calls] == ["Boot", "install"]
    with pytest.raises(NotSent, match="the network decides") as refused:
        rig.provider.do(Verb.REINSTALL, rig.change(rig.node.machine.id, image="https://images/os.iso"), TAG)
    assert refused.value.final


@pytest.mark.parametrize("trouble", [Trouble.REFUSE, Trouble.THROTTLE])
def test_a_reset_that_is_refused_leaves_no_boot_armed(bmcs: Bmcs, trouble: Trouble) -> None:
    rig = RedfishRig(bmcs)
    bmcs.script("install", trouble)
    with pytest.raises(NotSent):
        rig.provider.do(Verb.REINSTALL, rig.node, TAG)
    assert bmcs.once == {}


@pytest.mark.parametrize("step", ["InsertMedia", "Boot"])
def test_before_the_reset_nothing_has_happened_and_all_may_begin_anew(bmcs: Bmcs, step: str) -> None:
    rig = RedfishRig(bmcs)
    bmcs.script(step, Trouble.TIMEOUT_AFTER)
    with pytest.raises(NotSent, match="not begun") as failed:
        rig.provider.do(Verb.REINSTALL, rig.node, TAG)
    assert not failed.value.final
    assert bmcs.once == {}
    rig.provider.do(Verb.REINSTALL, rig.node, TAG)
    assert (bmcs.count("install"), len(bmcs.done("InsertMedia"))) == (1, 2)


def drive(rig: RedfishRig) -> list[str]:
    board = rig.redfish._board(rig.node)
    return board.inserted(board.look())


@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.parametrize("step", ["Boot", "install"])
def test_a_reinstall_that_does_not_start_leaves_no_image_in_the_drive(bmcs: Bmcs, step: str, status: int) -> None:
    rig = RedfishRig(bmcs)
    bmcs.script(step, Trouble.REFUSE, status=status)
    with pytest.raises(NotSent):
        rig.provider.do(Verb.REINSTALL, rig.node, TAG)
    assert len(bmcs.done("InsertMedia")) == 1
    assert (drive(rig), bmcs.once) == ([], {})


def test_a_freeze_between_image_and_boot_takes_the_image_out_again(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)

    def look() -> None:
        if bmcs.done("InsertMedia"):
            raise Frozen("frozen: cluster by ada")

    with pytest.raises(Frozen), looking(look):
        rig.provider.do(Verb.REINSTALL, rig.node, TAG)
    assert len(bmcs.done("InsertMedia")) == 1
    assert (drive(rig), bmcs.once, bmcs.count("install")) == ([], {}, 0)


def test_an_image_that_cannot_be_taken_out_is_said(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    bmcs.script("install", Trouble.REFUSE)
    bmcs.script("EjectMedia", Trouble.REFUSE, times=9)
    with pytest.raises(Unclear, match="image may still be in the drive"):
        rig.provider.do(Verb.REINSTALL, rig.node, TAG)
    assert bmcs.once == {}, "the other step is taken back all the same"


@pytest.mark.parametrize("armed", [True, False])
def test_a_reboot_takes_out_what_a_killed_reinstall_left_in_the_drive(bmcs: Bmcs, armed: bool) -> None:
    rig = RedfishRig(bmcs)
    board = rig.redfish._board(rig.node)
    ours = rig.redfish.options.image if not armed else f"{bmcs.url}/images/os.iso?of=c-1"
    board.insert(board.look(), ours)
    if armed:
        bmcs.once[rig.node.machine.id] = ("Once", "Cd")
    rig.provider.do(Verb.REBOOT, rig.node, TAG)
    assert drive(rig) == []
    assert [call.kind for call in bmcs.effects][-1] == "restart"
    assert bmcs.count("install") == 0


def test_a_reboot_leaves_somebody_elses_image_where_it_is(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    board = rig.redfish._board(rig.node)
    board.insert(board.look(), theirs := f"{bmcs.url}/images/os.iso?of=somebody")
    rig.provider.do(Verb.REBOOT, rig.node, TAG)
    assert drive(rig) == [theirs]


def test_a_boot_that_cannot_be_disarmed_is_said(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    bmcs.script("Boot", Trouble.TIMEOUT_AFTER, times=2)
    with pytest.raises(Unclear, match="may still be armed"):
        rig.provider.do(Verb.REINSTALL, rig.node, TAG)


def test_a_reboot_never_installs_what_a_killed_reinstall_left_armed(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    bmcs.once[rig.node.machine.id] = ("Once", "Cd")
    rig.provider.do(Verb.REBOOT, rig.node, TAG)
    assert [call.kind for call in bmcs.effects if call.kind != "Boot"] == ["restart"]


def test_no_reinstall_is_offered_that_could_not_be_proved(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    assert Capability.REINSTALL not in rig.provider.capabilities(rig.change(rig.node.machine.id, installation=None))
    assert rig.provider.capabilities(rig.node.model_copy(update={"machine": rig.node.machine.model_copy(
        update={"id": "unknown"})})) == frozenset()  # fmt: skip
    careful = make("metal", {"machines": rig.options["machines"], "verify": False})
    assert careful.capabilities(rig.node) == {Capability.REBOOT, Capability.POWER_STATE}


# -- whose machine ---------------------------------------------------------------------------------------------


def test_another_machine_at_the_address_is_not_touched(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    bmcs.more[rig.node.machine.id] |= {"UUID": "00000000-0000-4000-8000-000000000000"}
    assert not rig.provider.state(rig.node, TAG).exists
    with pytest.raises(NotSent, match="not " + rig.node.machine.id) as refused:
        rig.provider.do(Verb.REBOOT, rig.node, TAG)
    assert refused.value.final
    with pytest.raises(NotSent, match="not " + rig.node.machine.id):
        rig.redfish.force(Verb.REBOOT, rig.node, TAG)
    assert bmcs.calls == []


def test_a_machine_is_known_by_its_serial_where_its_id_says_nothing(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    id = rig.node.machine.id
    node = rig.change(id, id="metal3-host-7", serial=f"sn-{id[:8]}")
    at = {"address": bmcs.url, "system": f"{SYSTEMS}{id}"}
    told = make("metal", rig.options | {"machines": {"metal3-host-7": at}})
    assert told.state(node, TAG).exists
    unknown = node.model_copy(update={"machine": node.machine.model_copy(update={"serial": None})})
    with pytest.raises(NotAllowed, match="write its `serial`"):
        told.state(unknown, TAG)
    with pytest.raises(NotSent, match="write its `serial`"):
        told.do(Verb.REBOOT, unknown, TAG)


def test_located_by_its_id(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    found = rig.redfish.locate(rig.node.machine.id)
    assert found is not None
    assert (found.serial, found.virtual) == (f"SN-{rig.node.machine.id[:8]}", False)
    assert rig.redfish.locate("another") is None


def test_located_by_its_serial(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    id = rig.node.machine.id
    by_serial = {f"SN-{id[:8]}": {"address": bmcs.url, "system": f"{SYSTEMS}{id}"}}
    found = make("metal", rig.options | {"machines": by_serial}).locate(f"SN-{id[:8]}")
    assert found is not None
    assert (found.id, found.serial) == (id, f"SN-{id[:8]}"), "as its node shows it"


def test_the_inventory_is_read_anew_when_it_changes(bmcs: Bmcs, tmp_path: Path) -> None:
    rig = RedfishRig(bmcs)
    file = tmp_path / "machines.csv"
    file.write_text("provider_id,serial,bmc,bmc_credential\n")
    given = {name: value for name, value in rig.options.items() if name not in ("machines", "credential")}
    provider = make("metal", given | {"inventory": [str(file)]})
    with pytest.raises(NotAllowed, match="no BMC is known"):
        provider.state(rig.node, TAG)
    id = rig.node.machine.id
    row = f"{id},SN-{id[:8]},{bmcs.url}{SYSTEMS}{id},env:TEST_BMC\n"
    file.write_text(f"provider_id,serial,bmc,bmc_credential\n{row}")
    assert provider.state(rig.node, TAG).exists
    assert provider.missing_rights() == []
    file.write_text("nonsense\nx\n")
    with pytest.raises(NotAllowed, match="no column is called"):
        provider.state(rig.node, TAG)


def test_the_installations_inventory_serves_where_the_options_name_none(bmcs: Bmcs, tmp_path: Path) -> None:
    """With a credential in a mounted Secret, and a row that can't be used beside it."""
    rig = RedfishRig(bmcs)
    mounted = tmp_path / "secrets" / "medevac" / "bmc-hall-1"
    mounted.mkdir(parents=True)
    (mounted / "username").write_text("admin")
    (mounted / "password").write_text(PASSWORD)
    id = rig.node.machine.id
    file = tmp_path / "machines.yaml"
    file.write_text(
        "machines:\n"
        f"- {{provider_id: {id}, serial: SN-{id[:8]}, bmc: '{bmcs.url}{SYSTEMS}{id}',"
        " bmc_credential: 'secret:medevac/bmc-hall-1'}\n"
        "- {provider_id: other, bmc: 'https://10.9.0.31/elsewhere', bmc_credential: 'secret:medevac/bmc-hall-1'}\n"
    )
    given = {name: value for name, value in rig.options.items() if name not in ("machines", "credential")}
    provider = make("metal", given | {"secrets": str(tmp_path / "secrets")})
    assert isinstance(provider, TakesInventory)
    assert "name them in the inventory" in provider.missing_rights()[0]
    provider.take_inventory(read_inventory([file], ["prod"]))
    assert provider.state(rig.node, TAG).exists
    [said] = provider.missing_rights()
    assert said.startswith(f"{file}:3: BMC's system"), "the row is named, and the other is signed in to all the same"
    (mounted / "password").unlink()
    fresh = make(
        "metal", given | {"secrets": str(tmp_path / "secrets"), "inventory": [str(file)], "clusters": ["prod"]}
    )
    lines = fresh.missing_rights()
    assert any(f"mount the Secret at {mounted}" in line for line in lines), lines


def test_what_is_known_of_many_bmcs_is_told_in_time(bmcs: Bmcs, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RedfishRig(bmcs)
    monkeypatch.setattr(redfish, "ALL_S", 3.0)
    heard: set[str] = set()
    each = hurry.each

    def hears(ask: Callable[[str], None], *given: Any) -> None:
        def asks(id: str) -> None:
            ask(id)
            heard.add(id)

        each(asks, *given)

    # The time is over once all that can answer have, on however slow a machine; the others are still silent then.
    clock = SimpleNamespace(monotonic=lambda: float("inf") if heard >= set(rig.ids) else 0.0)
    monkeypatch.setattr(hurry, "each", hears)
    monkeypatch.setattr(hurry, "time", clock)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        deaf = {f"zz-{n:03}": {"address": address, "system": f"{SYSTEMS}{n}", "serial": f"{n}"} for n in range(130)}
        provider = make("metal", rig.options | {"machines": rig.options["machines"] | deaf, "read_timeout_s": 600.0})
        began = time.monotonic()
        [said] = provider.missing_rights()
        assert time.monotonic() - began < 300, "far less than their time-outs"
    assert said.startswith(f"{len(rig.ids)} BMCs answered, 130 didn't within 3 s: zz-000 (no answer yet), zz-001")
    assert said.endswith("and 127 more")


# -- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "final"), (403, "final"), (404, "final"), (501, "final"), (409, "later"), (503, "later"), (429, "later"),
     (500, "unclear"), (502, "unclear"), (504, "unclear")],
)  # fmt: skip
def test_each_code_has_one_meaning_and_no_call_is_repeated(bmcs: Bmcs, status: int, outcome: str) -> None:
    rig = RedfishRig(bmcs)
    bmcs.script("restart", Trouble.REFUSE, times=9, status=status)
    with pytest.raises((NotSent, Unclear)) as caught:
        rig.provider.do(Verb.REBOOT, rig.node, TAG)
    error = caught.value
    said = "unclear" if isinstance(error, Unclear) else "final" if error.final else "later"
    assert said == outcome
    assert bmcs.count("restart") == 1


def test_a_bmc_that_is_not_there(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs)
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}"
    provider = make("metal", rig.options | {"machines": {rig.node.machine.id: {"address": nobody}}})
    with pytest.raises(Unreadable) as caught:
        provider.state(rig.node, TAG)
    assert not isinstance(caught.value, NotAllowed)
    with pytest.raises(NotSent) as unsent:
        provider.do(Verb.REBOOT, rig.node, TAG)
    assert not unsent.value.final


def test_a_bmc_that_hangs_is_given_up_in_time(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs, read_timeout_s=8.0)
    given_up = threading.Event()
    bmcs.script("restart", lambda call, where: given_up.wait(60))
    with pytest.raises(Unclear, match="timed out"):
        rig.provider.do(Verb.REBOOT, rig.node, TAG)
    given_up.set()
    assert bmcs.count("restart") == 1


@pytest.mark.parametrize("credential", ["admin:wrong", "nothing", ""])
def test_wrong_credentials_are_final_and_never_said(
    bmcs: Bmcs, desk: Opens, monkeypatch: pytest.MonkeyPatch, credential: str
) -> None:
    rig = RedfishRig(bmcs)
    monkeypatch.setenv("TEST_BMC", credential)
    with pytest.raises(NotAllowed) as caught:
        rig.provider.state(rig.node, TAG)
    assert "wrong" not in str(caught.value)
    result = desk(rig).act(Verb.REBOOT)
    assert result.outcome is Outcome.FAILED
    [*lines] = rig.redfish.missing_rights()
    assert len(lines) == len(rig.ids)
    assert PASSWORD not in " ".join([*lines, result.reason])
    # Put right, it works at once.
    monkeypatch.setenv("TEST_BMC", f"admin:{PASSWORD}")
    assert rig.provider.state(rig.node, TAG).exists


def test_credentials_in_files(bmcs: Bmcs, tmp_path: Path) -> None:
    rig = RedfishRig(bmcs)
    (tmp_path / "username").write_text("admin\n")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "both").write_text(f"admin:{PASSWORD}\n")
    for where in (tmp_path, tmp_path / "both"):
        assert make("metal", rig.options | {"credential": f"file:{where}"}).state(rig.node, TAG).exists
    with pytest.raises(NotAllowed, match="can't be read"):
        make("metal", rig.options | {"credential": f"file:{tmp_path}/none"}).state(rig.node, TAG)


def test_a_certificate_must_be_trusted(bmcs: Bmcs, tmp_path: Path) -> None:
    rig = RedfishRig(bmcs)
    certificate = self_signed(tmp_path)
    bmcs._http.socket = server_side(certificate, tmp_path / "key.pem", bmcs._http.socket)
    address = bmcs.url.replace("http:", "https:")
    machines = {rig.node.machine.id: {"address": address, "system": f"{SYSTEMS}{rig.node.machine.id}"}}
    given: dict[str, Any] = {"machines": machines, "credential": "env:TEST_BMC"}
    provider = make("metal", given)
    with pytest.raises(NotAllowed, match="isn't trusted"):
        provider.state(rig.node, TAG)
    with pytest.raises(NotSent, match="isn't trusted") as refused:
        provider.do(Verb.REBOOT, rig.node, TAG)
    assert refused.value.final
    assert bmcs.reads == []
    assert make("metal", given | {"ca": str(certificate)}).state(rig.node, TAG).exists


def test_what_cannot_be_is_said_when_it_is_configured(bmcs: Bmcs) -> None:
    for given, said in [
        ({"machines": {"m": {"address": "http://bmc"}}}, "http shows the password"),
        ({"machines": {"m": {"address": "https://admin:pw@bmc"}}}, "address"),
        ({"machines": {"m": {"address": "https://bmc", "credential": "hunter2"}}}, "credential"),
    ]:
        with pytest.raises(ConfigurationError, match=said) as caught:
            make("metal", given)
        assert "hunter2" not in str(caught.value)
        assert "pw@" not in str(caught.value)


# -- the rest --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [Verb.REBOOT, Verb.REINSTALL, Verb.TERMINATE])
def test_a_dry_run_writes_nothing(bmcs: Bmcs, verb: Verb) -> None:
    rig = RedfishRig(bmcs, dry_run=True)
    with pytest.raises(NotSent, match="dry run, nothing was done: it would be") as refused:
        rig.provider.do(verb, rig.node, TAG)
    assert refused.value.final
    assert bmcs.calls == []


def test_evidence_is_its_state_and_its_event_log(bmcs: Bmcs) -> None:
    rig = RedfishRig(bmcs, log_entries=50)
    found = dict(rig.redfish.evidence(rig.node, TAG))
    assert sorted(found) == ["event-log-0.json", "system.json"]
    assert b'"Health": "OK"' in found["system.json"]
    assert b"event 49" in found["event-log-0.json"]
    assert b"event 50" not in found["event-log-0.json"]
    assert bmcs.calls == []


@pytest.mark.parametrize(("reinstall", "reads"), [("no", 1), ("pxe", 1), ("media", 4)])
def test_a_reboot_asks_its_bmc_no_more_than_it_must(bmcs: Bmcs, reinstall: str, reads: int) -> None:
    """Its drives are looked at only where something of ours may be in them."""
    rig = RedfishRig(bmcs, reinstall=reinstall)
    rig.provider.state(rig.node, TAG)
    bmcs.reads.clear()
    rig.provider.do(Verb.REBOOT, rig.node, TAG)
    assert (len(bmcs.reads), len(bmcs.calls)) == (reads, 1)


def self_signed(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bmc")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "bmc.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return folder / "bmc.pem"


def server_side(certificate: Path, key: Path, plain: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context.wrap_socket(plain, server_side=True)
