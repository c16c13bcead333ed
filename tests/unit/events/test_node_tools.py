"""dcgm-exporter's metrics, nvidia-smi's formats and failures, gpud's answers."""

from __future__ import annotations

from typing import Any

import pytest

from medevac.events.event import HealthEvent, Kind
from medevac.events.parsing import ParseError, Payload
from medevac.events.registry import detect, read
from tests.unit.events.payloads import UUID, forms, only, parsed, payload

LABELS = f'gpu="2",UUID="{UUID}",pci_bus_id="00000000:3B:00.0",device="nvidia2",Hostname="worker-3"'


def faults(source: str, body: Any, code: int | None = None) -> list[HealthEvent]:
    raw = payload(body).body
    return [e for e in read(source, Payload(raw, {}, code)).events if e.kind is Kind.FAULT]


# --- dcgm-exporter -------------------------------------------------------------------------------------------


def test_gauge_and_counter_of_one_xid_are_one_fault() -> None:
    text = f'DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 94\nDCGM_EXP_XID_ERRORS_COUNT{{{LABELS},xid="94"}} 3\n'
    (found,) = faults("dcgm_exporter", text)
    assert (found.fault, found.subject) == ("xid/94", "worker-3")
    assert found.entities == ("gpu:2", f"gpu-uuid:{UUID}", "pci:0000:3b:00")


@pytest.mark.parametrize("value", ["0", "9223372036854775794", "NaN", "+Inf"])
def test_no_xid(value: str) -> None:
    assert faults("dcgm_exporter", f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} {value}\n") == []
    assert faults("dcgm_exporter", f'DCGM_EXP_XID_ERRORS_COUNT{{{LABELS},xid="79"}} 0\n') == []


@pytest.mark.parametrize(
    "sample",
    [
        f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 79 1772352000.250",
        f'DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 79 # {{trace="1"}} 1',
        f"DCGM_FI_DEV_XID_ERRORS {{ {LABELS.replace(',', ' , ')} }} 7.9e1",
        f'DCGM_FI_DEV_XID_ERRORS{{{LABELS},note="a }} \\" b"}} 79',
    ],
)
def test_whatever_the_text_format_allows(sample: str) -> None:
    assert [(e.fault, e.subject) for e in faults("dcgm_exporter", sample + "\n")] == [("xid/79", "worker-3")]


def test_temperature_is_a_measurement_and_remap_a_fault() -> None:
    text = f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 88 1740816000000\nDCGM_FI_DEV_ROW_REMAP_FAILURE{{{LABELS}}} 1\n"
    measured, failed = parsed("dcgm_exporter", text).events
    assert measured.measurement is not None
    assert (measured.kind, measured.measurement.name, measured.measurement.value) == (Kind.MEASUREMENT, "gpu_temp", 88)
    assert failed.fault == "row-remap/failure"


def test_clock_reasons_health_watches_and_switch_errors() -> None:
    assert [e.fault for e in faults("dcgm_exporter", f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{LABELS}}} 72\n")] == [
        "throttle/hw-thermal"
    ]
    watch = f'DCGM_EXP_GPU_HEALTH_STATUS{{{LABELS},health_watch="PCIE",health_error_code="3"}} 20\n'
    assert [e.fault for e in faults("dcgm_exporter", watch)] == ["dcgm/DCGM_FR_PCI_REPLAY_RATE"]
    switch = 'DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS{nvswitch="1",Hostname="worker-3"} 20034\n'
    (found,) = faults("dcgm_exporter", switch)
    assert (found.fault, found.entities) == ("sxid/20034", ("nvswitch:1",))


def test_the_exporters_pod_is_no_machine() -> None:
    text = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="nvidia-dcgm-exporter-x7k2q"} 79\n'
    assert faults("dcgm_exporter", text)[0].subject is None


def test_lines_that_are_no_samples_are_named() -> None:
    found = parsed("dcgm_exporter", f"DCGM_FI_DEV_XID_ERRORS{{{LABELS}}} 79\nnonsense\n")
    assert len(found.events) == 1
    assert str(found.refused[0]).startswith("line 2")
    with pytest.raises(ParseError, match="Prometheus"):
        parsed("dcgm_exporter", "<html>\n")


# --- nvidia-smi ----------------------------------------------------------------------------------------------


def smi_xml(inner: str, version: int = 13) -> str:
    return (
        f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{version}.dtd">\n<nvidia_smi_log>'
        f'<gpu id="00000000:3B:00.0"><uuid>{UUID}</uuid>{inner}</gpu></nvidia_smi_log>'
    )


ECC_OLD = "<ecc_errors><volatile><double_bit><total>2</total></double_bit></volatile></ecc_errors>"
ECC_NEW = "<ecc_errors><volatile><dram_uncorrectable>1</dram_uncorrectable></volatile></ecc_errors>"
HW_POWER = "clocks_event_reason_hw_power_brake_slowdown"


@pytest.mark.parametrize(
    ("inner", "fault"),
    [
        ("<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>", "row-remap/pending"),
        ("<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>", "row-remap/failure"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "recovery-action/reset"),
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", "recovery-action/reboot"),
        ("<gpu_recovery_action>Drain and Reset</gpu_recovery_action>", "recovery-action/drain-and-reset"),
        (ECC_OLD, "ecc/uncorrected"),
        (ECC_NEW, "ecc/uncorrected"),
        (f"<clocks_event_reasons><{HW_POWER}>Active</{HW_POWER}></clocks_event_reasons>", "throttle/hw-power-brake"),
        ("<fan_speed>[Unknown Error]</fan_speed>", "gpu-lost"),
    ],
)
def test_findings_in_xml(inner: str, fault: str) -> None:
    (found,) = faults("nvidia_smi", smi_xml(inner))
    assert found.fault == fault
    assert set(found.entities) == {f"gpu-uuid:{UUID}", "pci:0000:3b:00"}


def test_modes_and_absent_values_are_no_findings() -> None:
    inner = (
        "<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>"
        "<remapped_rows>N/A</remapped_rows><gpu_recovery_action>None</gpu_recovery_action>"
        "<ecc_errors><volatile><sram_uncorrectable>0</sram_uncorrectable></volatile></ecc_errors>"
        "<clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>"
        "</clocks_throttle_reasons>"
    )
    assert faults("nvidia_smi", smi_xml(inner, 11)) == []


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY x "lol"><!ENTITY y "&x;&x;">]><nvidia_smi_log>&y;</nvidia_smi_log>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><nvidia_smi_log>&x;</nvidia_smi_log>',
        "<nvidia_smi_log><gpu>",
        "<" + "a><" * 50 + "a>",
        "<other/>",
    ],
)
def test_hostile_xml_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="XML"):
        parsed("nvidia_smi", text)


def test_text_belongs_to_the_gpu_above_it() -> None:
    text = (
        "==============NVSMI LOG==============\n\nAttached GPUs                             : 2\n"
        "GPU 00000000:3B:00.0\n    Remapped Rows\n        Pending                           : No\n"
        "GPU 00000000:9B:00.0\n    GPU UUID                              : " + UUID + "\n"
        "    Clocks Event Reasons\n        HW Slowdown                       : Active\n"
        "            HW Thermal Slowdown           : Active\n"
    )
    (found,) = faults("nvidia_smi", text)
    assert found.fault == "throttle/hw-thermal"
    assert set(found.entities) == {"pci:0000:9b:00", f"gpu-uuid:{UUID}"}


def test_csv_reads_by_its_header() -> None:
    text = (
        "index, uuid, pci.bus_id, temperature.gpu, remapped_rows.pending, ecc.errors.uncorrected.volatile.total\n"
        f"0, {UUID}, 00000000:1B:00.0, 41, No, 0\n"
        f"1, {UUID}, 00000000:43:00.0, 90, Yes, [N/A]\n"
    )
    (found,) = faults("nvidia_smi", text)
    assert found.fault == "row-remap/pending"
    assert found.entities[0] == "gpu:1"
    old = f"index, uuid, clocks_throttle_reasons.active\n3, {UUID}, 0x00000000000000C8\n"
    assert [e.fault for e in faults("nvidia_smi", old)] == ["throttle/hw-thermal", "throttle/hw-power-brake"]


@pytest.mark.parametrize(
    ("words", "code", "fault"),
    [
        (
            "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system",
            None,
            "gpu-lost",
        ),
        ("Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error", 15, "gpu-lost"),
        ("No devices were found", 6, "device-count/none"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "nvidia-smi/version-mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "nvidia-smi/no-driver"),
        ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0", 14, "inforom/corrupt"),
        ("", 8, "power/external"),
    ],
)
def test_failures_by_words_and_exit_code(words: str, code: int | None, fault: str) -> None:
    if not words:
        words = " "
    (found,) = faults("nvidia_smi", words, code)
    assert found.fault == fault
    assert found.entities == (("pci:0000:3b:00",) if "3B" in words else ())


TABLE = """Sun Mar  1 08:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.127.05             Driver Version: 550.127.05     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
| N/A   29C    P8             23W /  300W |       1MiB /  81559MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                    2 |
|ERR!   ERR!  ERR!            ERR / ERR!  |       1MiB /  81559MiB |    ERR!      Default |
+-----------------------------------------+------------------------+----------------------+
"""


LOST_ONE = "Unable to determine the device handle for GPU 0000:5E:00.0: GPU is lost.  Reboot the system\n"
CORRUPT = "WARNING: infoROM is corrupted at gpu 0000:5E:00.0\n"
WELL = f"index, uuid, temperature.gpu\n0, {UUID}, 40\n"


@pytest.mark.parametrize(
    "text",
    [LOST_ONE + WELL, WELL + LOST_ONE, WELL.replace("\n0,", f"\n{LOST_ONE}0,"), WELL.replace("\n", "\r\n") + LOST_ONE],
)
def test_a_failure_among_rows_is_about_its_gpu_alone_and_hides_none(text: str) -> None:
    said = read("nvidia_smi", Payload(text.encode())).events
    assert [(e.fault, e.entities) for e in said if e.kind is Kind.FAULT] == [("gpu-lost", ("pci:0000:5e:00",))]
    assert [e.entities for e in said if e.kind is Kind.MEASUREMENT] == [("gpu:0", f"gpu-uuid:{UUID}")]


def test_words_around_the_xml_are_read_beside_it() -> None:
    xml = smi_xml("<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>")
    for text in (CORRUPT + xml, xml + "\n" + CORRUPT):
        assert sorted(e.fault or "" for e in faults("nvidia_smi", text, 14)) == ["inforom/corrupt", "row-remap/failure"]


def test_a_lost_gpus_cells_are_said_once_and_of_that_gpu() -> None:
    rows = f"index, uuid, temperature.gpu\n0, {UUID}, [GPU is lost]\n1, [Unknown Error], [N/A]\n"
    assert [e.entities for e in faults("nvidia_smi", rows)] == [("gpu:0", f"gpu-uuid:{UUID}"), ("gpu:1",)]
    text = "====NVSMI LOG====\nGPU 00000000:3B:00.0\n    Temperature\n        GPU Current Temp   : GPU is lost\n"
    assert [e.entities for e in faults("nvidia_smi", text)] == [("pci:0000:3b:00",)]
    table = (
        "| NVIDIA-SMI 570.1     Driver Version: 570.1    CUDA Version: 12.8     |\n"
        "|   0  NVIDIA H100                    On  | 00000000:1B:00.0 Off |                    0 |\n"
        "|   1  GPU is lost                    On  | 00000000:3B:00.0 Off |          GPU is lost |\n" + LOST_ONE
    )
    assert {e.entities for e in faults("nvidia_smi", table)} == {("gpu:1", "pci:0000:3b:00"), ("pci:0000:5e:00",)}


@pytest.mark.parametrize(
    ("words", "code", "fault"),
    [
        ("Unable to determine the device handle for GPU 0000:5E:00.0: Not Found", 6, "gpu-lost"),
        (
            "Unable to determine the device handle for gpu 0000:5E:00.0: Insufficient External Power",
            None,
            "power/external",
        ),
        ("index, ecc.errors.uncorrected.volatile.device_memory\n0, 1", None, "ecc/uncorrected"),
        ("index, ecc.errors.uncorrected.volatile.l2_cache\n0, 1", None, "ecc/uncorrected"),
        ("index, gpu_recovery_action\n0, [Unknown Error]", None, "gpu-lost"),
    ],
)
def test_each_is_one_finding(words: str, code: int | None, fault: str) -> None:
    assert [e.fault for e in faults("nvidia_smi", words + "\n", code)] == [fault]


def test_the_plain_table() -> None:
    found = faults("nvidia_smi", TABLE)
    assert {e.fault for e in found} == {"ecc/uncorrected", "nvidia-smi/unreadable"}
    assert {e.entities for e in found} == {("gpu:1", "pci:0000:43:00")}
    assert detect(payload(TABLE)).SOURCE == "nvidia_smi"


# --- gpud ----------------------------------------------------------------------------------------------------


def test_nested_states_and_their_clear() -> None:
    def state(health: str, reason: str) -> list[Any]:
        held = {"time": "2026-03-01T08:00:00Z", "name": "error_xid", "health": health, "reason": reason}
        held["suggested_actions"] = {"repair_actions": ["REBOOT_SYSTEM"]}  # type: ignore[assignment]
        return [{"component": "accelerator-nvidia-error-xid", "states": [held]}]

    bad = only("gpud", state("Unhealthy", "XID 79(GPU has fallen off the bus) detected on PCI:0000:3b:00"))
    assert (bad["fault"], bad["entities"]) == ("xid/79", ["pci:0000:3b:00"])
    assert bad["detail"]["repair_actions"] == ["REBOOT_SYSTEM"]
    good = only("gpud", state("Healthy", ""))
    assert (good["kind"], good["dedupe_key"]) == ("recovered", bad["dedupe_key"])
    assert only("gpud", state("Initializing", ""))["kind"] == "info"


def test_older_boolean_health_and_event_types() -> None:
    assert only("gpud", [{"component": "disk", "states": [{"name": "disk", "healthy": False}]}])["fault"] == "gpud/disk"
    events = [{"name": n, "type": t, "message": "m", "time": "2026-03-01T08:00:00Z"} for n, t in
              (("a", "Critical"), ("b", "Warning"), ("c", "Info"))]  # fmt: skip
    found = forms("gpud", [{"component": "cpu", "events": events}])
    assert [(e["kind"], e["severity"]) for e in found] == [
        ("fault", "critical"),
        ("fault", "warning"),
        ("info", "info"),
    ]
    with pytest.raises(ParseError):
        parsed("gpud", [{"component": "cpu"}])


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("dcgm_exporter", f"# HELP x\nDCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 40\n"),
        ("nvidia_smi", smi_xml("")),
        ("nvidia_smi", f"index, uuid, temperature.gpu\n0, {UUID}, 40\n"),
        ("nvidia_smi", "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error"),
        ("gpud", [{"component": "cpu", "events": []}]),
    ],
)
def test_recognised(source: str, body: Any) -> None:
    assert source == detect(payload(body)).SOURCE


def test_a_gpu_without_an_id_is_known_by_its_bus() -> None:
    remap = "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>"
    xml = f"<nvidia_smi_log><gpu><pci><pci_bus_id>00000000:3B:00.0</pci_bus_id></pci>{remap}</gpu></nvidia_smi_log>"
    assert [e.entities for e in faults("nvidia_smi", xml)] == [("pci:0000:3b:00",)]


def test_health_is_the_same_word_in_any_case() -> None:
    state = {"component": "accelerator-nvidia-error-xid", "states": [{"health": "unhealthy", "reason": "XID 79."}]}
    assert [e.fault for e in faults("gpud", [state])] == ["xid/79"]


QUERY = "index,uuid,temperature.gpu,clocks_throttle_reasons.hw_thermal_slowdown"
ROWS = f"0, {UUID}, 91, Active\r\n1, {UUID[:-1]}7, 40, Not Active\r\n"


def test_csv_without_its_header_row_is_refused_with_the_way_out() -> None:
    for rows in (ROWS, "[N/A], 40\n", "NVIDIA H100, 79\n"):
        with pytest.raises(ParseError, match="leave `noheader` out of --format") as error:
            parsed("nvidia_smi", rows)
        assert "X-Medevac-Query" in str(error.value)
    said = parsed("nvidia_smi", ROWS + "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n")
    assert [(e.fault, e.entities) for e in said.events] == [("gpu-lost", ("pci:0000:3b:00",))]
    assert [r.where for r in said.refused] == ["rows"]


def test_csv_without_its_header_row_is_read_by_the_query_that_the_request_names() -> None:
    headed = parsed("nvidia_smi", QUERY.replace(",", ", ") + "\n" + ROWS)
    assert parsed("nvidia_smi", ROWS, x_medevac_query=QUERY) == headed
    assert [e.fault for e in headed.events if e.kind is Kind.FAULT] == ["throttle/hw-thermal"]
    for query in ("index", "nonsense,words", "index;uuid", "index,'x'"):
        with pytest.raises(ParseError, match="header X-Medevac-Query is"):
            parsed("nvidia_smi", ROWS, x_medevac_query=query)


def test_a_row_of_another_width_is_refused_for_its_values_may_be_another_columns() -> None:
    found = parsed("nvidia_smi", f"index, uuid, temperature.gpu\n0, {UUID}, a, 40\n1, {UUID}, 41\n2, {UUID}")
    assert [(e.entities[0], e.measurement and e.measurement.value) for e in found.events] == [("gpu:1", 41.0)]
    assert [str(r) for r in found.refused] == [
        "row 1: has 4 values for 3 columns", "row 3: has 2 values for 3 columns",
    ]  # fmt: skip
    assert parsed("nvidia_smi", ROWS, x_medevac_query="index,uuid").events == ()
