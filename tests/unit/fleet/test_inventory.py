"""What an inventory says of a machine reaches its node; what could be another machine's is refused, with its line."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from activities.inventory_file import read_inventory
from medevac.fleet.inventory import Inventory, InventoryError, Source, lacking
from medevac.fleet.node import Capability, Machine, Node

HEAD = "node,provider_id,serial,bmc,bmc_credential,rack,gpus,support\n"
TODAY = date(2026, 5, 1)


def node(name: str = "n1", serial: str | None = None, **given: object) -> Node:
    machine = Machine(provider="metal", id=f"metal:///hall-1/id-{name}", serial=serial, virtual=False)
    return Node.model_validate({"cluster": "c", "name": name, "machine": machine, **given})


def read(tmp_path: Path, **files: str) -> Inventory:
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("_", ".")
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return read_inventory(paths, ["c"])


def refused(tmp_path: Path, **files: str) -> str:
    with pytest.raises(InventoryError) as caught:
        read(tmp_path, **files)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("row", ["n1,,,", ",id-n1,,", ",metal:///hall-1/ID-N1,,", ",,SN1,"])
def test_a_row_is_joined_by_node_id_or_serial(tmp_path: Path, row: str) -> None:
    known = read(tmp_path, a_csv=f"node,provider_id,serial,rack\n{row}r7\n")
    assert known.enrich(node(serial="sn1")).topology == {"rack": "r7"}


def test_rows_of_several_files_complement_each_other(tmp_path: Path) -> None:
    known = read(
        tmp_path,
        hall_csv=f"{HEAD},,SN1,,,r7,GPU-1 GPU-2,\n",
        bmc_yaml="machines:\n- {node: n1, bmc: 10.0.0.7, bmc_credential: 'secret:ops/bmc-7', warranty: 2027-01-31}\n",
    )
    record = known.join(node(serial="SN1")).record
    assert record is not None
    assert (record.rack, record.bmc, record.warranty) == ("r7", "10.0.0.7", date(2027, 1, 31))
    assert record.bmc_credential == (Source.SECRET, "ops/bmc-7")
    assert {"GPU-1", "GPU-2", "10.0.0.7", "SN1"} <= set(known.enrich(node(serial="SN1")).aliases)


def test_the_clusters_own_word_stands(tmp_path: Path) -> None:
    known = read(tmp_path, a_csv=f"{HEAD}n1,,,,,r7,,\n")
    assert known.enrich(node(topology={"rack": "r1", "region": "x"})).topology == {"rack": "r1", "region": "x"}


def test_a_row_about_the_machine_that_was_here_before_isnt_believed(tmp_path: Path) -> None:
    known = read(tmp_path, a_csv=f"{HEAD}n1,,SN1,10.0.0.7,env:BMC,r7,,\n")
    record, trouble = known.join(node(serial="SN2"))
    assert record is None
    assert "`serial` contradicts" in trouble
    assert f"{tmp_path}/a.csv:2" in trouble
    assert known.enrich(node(serial="SN2")) == node(serial="SN2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEAD}n1,,,,,r7,,\nn1,,,,,r8,,\n", "a.csv:3: `rack` contradicts a.csv:2: r8 and r7"),
        (
            f"{HEAD}n1,,,10.0.0.7,,,,\nn2,,,10.0.0.7,,,,\n",
            "a.csv:3: BMC 10.0.0.7 is another machine's as well (a.csv:2)",
        ),
        (f"{HEAD}n1,,,,,,GPU-1,\nn2,,,,,,gpu-1,\n", "a.csv:3: GPU gpu-1 is another machine's as well"),
        (f"{HEAD},,,,,r7,,\n", "a.csv:2: names no machine"),
        (f"{HEAD}n1,,,,,r7\n", "a.csv:2: has another number of cells"),
        ("node,colour\nn1,red\n", "a.csv:1: no column is called 'colour'"),
        ("node,cluster\nn1,d\n", "a.csv:2: no cluster is called d"),
    ],
)
def test_what_contradicts_or_fits_two_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, a_csv=text)


def test_a_node_name_alone_is_ambiguous_among_clusters(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("node,rack\nn1,r7\n")
    with pytest.raises(InventoryError, match=r"a.csv:2: node n1 could be in several clusters; give `cluster`"):
        read_inventory([path], ["c", "d"])


@pytest.mark.parametrize("column", ["bmc_credential", "bmc"])
def test_a_password_in_the_file_is_refused_and_not_repeated(tmp_path: Path, column: str) -> None:
    secret = "root:hunter2@10.0.0.7"
    said = refused(tmp_path, a_yaml=f"machines:\n- node: n1\n  {column}: {secret}\n")
    assert said.startswith(f"a.yaml:2: `{column}`")
    assert "hunter2" not in said


def test_what_a_ladder_needs_and_nobody_knows_is_listed(tmp_path: Path) -> None:
    bare = {"reboot", "reinstall", "rma"}
    said = " ".join(lacking(node(), Inventory().join(node()), bare, (), TODAY))
    for what in ("BMC address", "has reboot", "has reinstall", "rack", "serial", "support contract"):
        assert what in said
    known = read(
        tmp_path, a_csv=f"{HEAD}n1,,SN1,10.0.0.7,file:/run/bmc,r7,,gold\nn2,,SN2,10.0.0.8,,r7,,gold\n"
    )  # fmt: skip
    can = (Capability.REBOOT, Capability.REINSTALL)
    assert lacking(known.enrich(node()), known.join(node()), bare, can, TODAY) == []
    second = lacking(known.enrich(node("n2")), known.join(node("n2")), bare, can, TODAY)
    assert second == ["no reference to its BMC's credential (`bmc_credential`)"]


def test_a_cloud_machine_needs_no_bmc() -> None:
    cloud = Node(cluster="c", name="v1", machine=Machine(provider="sky", id="i-1"), topology={"rack": "r"})
    assert lacking(cloud, Inventory().join(cloud), {"reboot", "replace"}, (), TODAY) == []
