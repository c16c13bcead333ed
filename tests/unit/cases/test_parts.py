"""Parts by their names: what is at fault, what was exchanged, and what must be known again."""

from __future__ import annotations

import pytest

from medevac.cases.parts import GPU, MACHINE, Part, changes, gone, known, names_in, sent_back

A, B, C = "GPU-0000000a-1111", "GPU-0000000b-1111", "GPU-0000000c-1111"


def gpu(*names: str, place: str = "", faulty: bool = False) -> Part:
    return Part(kind=GPU, names=names, place=place, faulty=faulty)


def test_the_part_at_fault_is_the_one_that_the_event_names() -> None:
    seen = [gpu(A, "1", place="pci:0000:1b:00"), gpu(B, "2", place="pci:0000:4e:00")]
    for entities in (["gpu:1", "pci:0000:4e:00"], [f"gpu-uuid:{B}"], ["gpu-serial:2"]):
        machine, one, other = known("SN", seen, (), entities)
        assert (machine.kind, one.faulty, other.faulty) == (MACHINE, False, True)
    assert [part.faulty for part in known("", seen, (), ["gpu:1"])] == [False, False], "an index names no part"


def test_a_gpu_that_no_check_shows_is_known_by_its_event() -> None:
    assert known("", [gpu(A)], (), [f"gpu-uuid:{B}"])[1] == gpu(B, faulty=True)
    two = known("", [gpu(A)], (), [f"gpu-uuid:{A}", f"gpu-uuid:{B}"])
    assert [str(part) for part in two if part.faulty] == [f"GPU {A}", f"GPU {B}"], "one of two fell off the bus"
    assert known("", (), ("1", "2"), ["gpu-serial:2"]) == (gpu("1"), gpu("2", faulty=True))
    assert names_in([f"gpu-uuid:{A}", "gpu:3", "gpu-serial:7", "ib:mlx5_0"]) == (A, "7")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ([gpu("1"), gpu("2")], [gpu("1"), gpu("3")], ("GPU 2 is now GPU 3",)),
        ([gpu(A, place="p"), gpu(B)], [gpu(C, "3", place="p")], (f"GPU {A} is now GPU {C} = 3", f"GPU {B} is gone")),
        ([gpu(A)], [gpu("1"), gpu("2")], ()),  # a UUID and serials can't be compared
        ([gpu(A)], [gpu(B), gpu(C)], (f"GPU {A} is gone",)),  # only one of several was known before
        ([gpu("1")], [], ()),  # nothing is known of it now
        ([gpu("1")], [gpu("1", A)], ()),
        ([gpu("1"), gpu("2", faulty=True)], [gpu("1"), gpu("2")], ("GPU 2, which was at fault, is still there",)),
    ],
)  # fmt: skip
def test_what_has_changed(was: list[Part], now: list[Part], said: tuple[str, ...]) -> None:
    assert changes(was, now) == said


def test_what_was_sent_back_is_what_left() -> None:
    machine, well, bad = Part(kind=MACHINE, names=("SN",)), gpu("1"), gpu("2", faulty=True)
    assert sent_back([machine, well, bad], [], machine_left=True) == (machine, bad), "the others were never bad"
    assert sent_back([machine, well, bad], [machine, well, gpu("3")], machine_left=False) == (bad,)
    assert sent_back([machine, well, bad], [machine, well, bad], machine_left=False) == ()
    assert gone([bad], [well]) == (bad,)
