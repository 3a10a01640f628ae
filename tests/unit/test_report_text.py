"""The screen of a step: what it says of a timeline whose numbers are known, and that it never breaks its frame."""

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine_programs import GATHER, Program, supply, takes
from tests.timelines import MATMUL, MB, host_optimizer, many, offloaded, skewed, tiny
from zerosim.errors import Finding
from zerosim.report.bars import Part, Pen, bar, cells, colour_wanted
from zerosim.report.parts import MEMORY_LETTERS, time_parts
from zerosim.report.tables import cell_width
from zerosim.report.text import render, render_comparison
from zerosim.report.waits import shortened
from zerosim.resources import Demand, Hold, Use
from zerosim.step import HostCompute, Transfer
from zerosim.timeline import Timeline
from zerosim.views.summary import Facts, Summary, summarize

NOTE = Finding("ignored-key", "note", "zero_optimization.foo changes nothing.", "Leave it out.")
ANSI = re.compile(r"\x1b\[\d+m")


def summary(timeline: Timeline, title: str = "two layers", findings: tuple[Finding, ...] = ()) -> Summary:
    facts = Facts(title, 1, 2, 5400.0, 2.0, 1350.0, 100.0, findings, ("No padding.",))
    return summarize(timeline, facts)


def test_the_screen_of_a_step() -> None:
    assert render(summary(tiny(), findings=(NOTE,)), width=80) == (
        """\
two layers                                              2 GPUs on 1 node, seed 0
step 27 s   200 tokens/s   100 tokens/s/GPU   50 FLOP/s per GPU   MFU 50 %

where the time goes
  CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCXXXXXXXXXXXXXXTTT...
  C  compute                20 s  74.1 %
  X  exposed communication   5 s  18.5 %  50 % of 10 s hidden
  T  exposed transfer        1 s   3.7 %
  H  host compute            0 s   0.0 %
  .  idle                    1 s   3.7 %
  phases: forward 8 s (29.6 %), backward 15 s (55.6 %), optimizer 4 s (14.8 %)

memory at its peak
  gpu  per GPU  [PPGGOOOOOAAAAAAABBBBx                  ] 550 MB of 1 GB, 55.0 %
       P parameters 40 MB  G gradients 60 MB  O optimizer 120 MB
       A activations 200 MB  B buffers 80 MB  x overhead 50 MB
       peak when the host issued backward 1 (backward), 2 s into the step;
       allocated 500 MB, reserved 559.6 MB
  dram per node [P                                      ] 80 MB of 4 GB, 2.0 %
       P parameters 80 MB
       held all along; allocated 80 MB

why the GPU waits
  reduce-scatter, backward   3 s  11.1 %  NIC 20 B/s, 37.0 % busy
  all-gather, forward        2 s   7.4 %  NIC 20 B/s, 37.0 % busy
  host not ready, optimizer  1 s   3.7 %
  copies, optimizer          1 s   3.7 %  PCIe, 3.7 % busy

findings
  note     zero_optimization.foo changes nothing. Leave it out.

assumed
  No padding.
"""
    )


def test_what_does_not_fit_is_said_in_words_and_marked_in_the_bar() -> None:
    screen = render(summary(tiny(capacity=400 * MB)))
    assert screen.split("\n")[1] == "DOES NOT FIT: gpu 150 MB too much (see findings)"
    gpu = next(line for line in screen.split("\n") if line.startswith("  gpu"))
    drawn = gpu[gpu.index("[") + 1 : gpu.index("]")]
    assert drawn.index("|") == round(len(drawn) * 400 / 550)
    assert screen.index("error    gpu: 550 MB") > screen.index("findings")


def test_unequal_ranks_are_told_apart() -> None:
    screen = render(summary(skewed()))
    assert "waiting for a slower rank, backward" in screen
    assert "rank 1 arrives last" in screen
    assert "waited for other ranks: 1 rank like rank 0" in screen


def test_errors_come_first_and_are_always_shown() -> None:
    notes = tuple(replace(NOTE, message=f"Note number {index}.") for index in range(60))
    screen = render(summary(tiny(capacity=400 * MB), findings=notes))
    assert screen.index("  error ") < screen.index("  note ")
    assert re.search(r"and \d+ more, which --json shows", screen)
    assert screen.count("\n") <= 46


def test_an_empty_wait_and_an_absent_tier_leave_no_heading() -> None:
    screen = render(replace(summary(host_optimizer()), stalls=(), findings=(), assumptions=()))
    assert "why the GPU waits" not in screen
    assert "dram" not in screen


@pytest.mark.parametrize("timeline", [tiny(), tiny(100 * MB), skewed(), host_optimizer(), many(40)])
@pytest.mark.parametrize("width", [72, 100, 140])
def test_no_line_is_wider_than_the_screen_nor_the_screen_longer(timeline: Timeline, width: int) -> None:
    lines = render(summary(timeline, title="模型 " * 60), width).split("\n")
    assert max(map(cell_width, lines)) <= width
    assert len(lines) <= 46


@pytest.mark.parametrize("timeline", [tiny(), tiny(100 * MB), skewed()])
def test_colour_changes_nothing_but_colour(timeline: Timeline) -> None:
    told = summary(timeline, findings=(NOTE,))
    coloured = render(told, colour=True)
    assert coloured != render(told)
    assert ANSI.sub("", coloured) == render(told)


def test_a_long_label_keeps_what_it_is_and_where() -> None:
    label = "NIC 10 Gb/s Ethernet, one per node (node 1)"
    assert shortened(label, 50) == label
    assert shortened(label, 40) == "NIC … Ethernet, one per node (node 1)"
    assert shortened(label, 30) == "NIC …, one per node (node 1)"
    differing = "NICs 5 x 200, 2 x 100 and 1 x 25 Gb/s InfiniBand per node"
    assert shortened(differing, 50) == "NICs … InfiniBand per node"
    assert shortened(label, 12) == "…de (node 1)"
    assert shortened("PCIe 4 31.5 GB/s to the GPU", 20) == "PCIe 4 … to the GPU"
    uplink = "PCIe 4 31.5 GB/s switch uplink from the GPU, shared by 2 GPUs"
    assert shortened(uplink, 50) == "PCIe 4 31.5 GB/s switch uplink from the GPU"
    assert shortened(uplink, 40) == "PCIe 4 … switch uplink from the GPU"
    assert shortened("latency", 3) == "…cy"


def test_letters_of_a_bar_differ() -> None:
    letters = [part.letter for part in time_parts(summary(tiny()))]
    assert len(set(letters)) == len(letters)
    assert len({letter for letter, _ in MEMORY_LETTERS.values()}) == len(MEMORY_LETTERS)


@given(st.lists(st.floats(0, 1e12), max_size=8), st.floats(0, 2), st.integers(1, 120))
def test_a_bar_is_as_long_as_told_and_fair_to_a_cell(amounts: list[float], spare: float, width: int) -> None:
    whole = sum(amounts) * (1 + spare)
    counts = cells(amounts, whole, width)
    drawn = bar([Part("a", "", amount, "blue") for amount in amounts], whole, width, Pen(), rest="-")
    assert len(drawn) == width
    assert drawn.count("a") == sum(counts) <= width
    fair = [width * amount / whole if whole else 0.0 for amount in amounts]
    assert all(abs(count - exact) <= 1 + 1e-6 for count, exact in zip(counts, fair, strict=True))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_whose_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colour_wanted(Terminal())
    assert not colour_wanted(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour_wanted(Terminal())


def test_comparison_has_ratios_to_the_first() -> None:
    lines = render_comparison([summary(tiny(), "base"), summary(skewed(), "slow")]).split("\n")
    assert lines[:2] == ["A  base (baseline)", "B  slow"]
    row = {line[:20].strip(): line[20:].split() for line in lines[3:] if line}
    assert row["step time"] == ["27", "s", "45", "s", "1.67x"]  # 45 / 27
    assert row["fits in memory"] == ["yes", "yes"]
    assert row["host compute"][-1] == "-"  # nothing to divide by
    assert "rank" in lines[-2]


def test_comparison_of_a_tier_that_only_one_has() -> None:
    lines = render_comparison([summary(tiny()), summary(host_optimizer())]).split("\n")
    row = next(line for line in lines if line.startswith("DRAM at its peak"))
    assert row.split()[-4:] == ["80", "MB", "-", "-"]


def shared_node() -> Timeline:
    """Adam of 4 ranks, 3 s by itself and 12 s as it is, and a copy beside it that loses nothing; a gather that takes a
    quarter of the processors from a matmul."""
    program = Program()
    adam = Demand(0.0, (Use("dram", 1200.0, 1.0, 4.0),))
    program.add("host", adam, work=HostCompute("optimizer", 1.0, 1200.0))
    program.add("reduce", takes(link=20.0, dram=40.0), work=Transfer(20.0, "gpu", "dram"))
    program.add("compute", takes(sm=30.0), work=MATMUL)
    program.add("nccl.dp", takes(nic=30.0)._replace(holds=(Hold("sm", 0.25),)), work=GATHER)
    timeline = program.play(supply(dram=100.0, link=10.0, sm=10.0, nic=10.0))
    label = "host memory 100 B/s, shared by 4 GPUs"
    return replace(timeline, supply=replace(timeline.supply, labels={"dram": label}))


def test_who_is_slowed_by_whom_outside_the_gpu() -> None:
    lines = render(summary(shared_node()), width=100).split("\n")
    start = lines.index("lost by sharing, also where hidden")
    assert lines[start + 1 : start + 4] == [
        "  the CPU optimizer     9 s lost, 4.00 times as long, to 3 other GPUs         host memory 100 B/s",
        "  the CPU optimizer  400 ms lost, 1.13 times as long, to copies from the GPU  host memory 100 B/s",
        "",
    ]  # the matmul's 0.75 s are in the JSON alone
    narrow = render(summary(shared_node()), width=76).split("\n")
    assert "  the CPU optimizer     9 s lost, x4.00, to 3 other GPUs         host memory" in narrow
    assert max(map(cell_width, narrow)) <= 76


def test_nothing_is_said_of_sharing_where_nothing_is_outside_the_gpu() -> None:
    assert "lost by sharing" not in render(summary(tiny()))
    assert "lost by sharing" not in render(summary(offloaded()))  # the toy player shares nothing


def test_what_bounds_the_step_has_room_however_much_is_told() -> None:
    warnings = tuple(
        Finding("drive-cache", "warning", f"Warning {index}, {'of many words, ' * 12}.") for index in range(4)
    )
    screen = render(summary(offloaded(), findings=(*[NOTE] * 9, *warnings)))
    assert "note     47.8 % of the critical path (11 s) are copies between tiers" in screen
    assert screen.index("are copies between tiers") < screen.index("Warning 0") < screen.index("Warning 3")
    assert re.search(r"and \d more, which --json shows", screen)  # notes
    assert screen.count("\n") <= 45


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    for width in range(60, 100):
        told = render(summary(tiny(), findings=(replace(NOTE, message="It moves 31.5 GB/s of 40 GB. " * 9),)), width)
        assert not re.search(r"\d\n +GB", told)


def test_many_classes_that_wait_are_a_range() -> None:
    classes = tuple(replace(summary(skewed()).classes[0], waited_seconds=float(n), program=n) for n in range(1, 9))
    assert "waited for other ranks: 1 s to 8 s over 8 stages\n" in render(replace(summary(skewed()), classes=classes))
    alike = tuple(replace(each, program=0) for each in classes)
    assert "1 s to 8 s over 8 kinds of ranks\n" in render(replace(summary(skewed()), classes=alike))


def test_the_rounding_of_pinned_blocks_is_told() -> None:
    step = tiny().step
    *others, staged = step.buffers
    pinned = replace(step, buffers=(*others, staged._replace(pinned=True)))
    screen = render(summary(replace(tiny(), steps=(pinned,))))  # 2 x 40 MB in 2 x 64 MiB
    assert "allocated 134.2 MB, 54.22 MB of it lost to rounding of pinned blocks" in screen
