"""What holds of errors whatever they are: order does not matter, percentiles are bounded, groups part the lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerosim.studies.validation.case import MetricName
from zerosim.studies.validation.groups import fitting, groups, statistics, worst
from zerosim.studies.validation.lines import Labels, Line
from zerosim.studies.validation.prediction import Pair

positive = st.floats(1e-3, 1e3)
names = st.sampled_from("abcdefghij")
METRICS: tuple[MetricName, ...] = ("step_seconds", "step_seconds", "forward_seconds", "reserved_memory_bytes", "fits")
kinds = st.sampled_from(METRICS)
of = st.builds(
    Labels,
    study=st.sampled_from(("one", "two")),
    quality=st.sampled_from("AB"),
    strategy=st.sampled_from(("DDP", "ZeRO-3")),
    gpu=st.sampled_from(("A100", "H100", "V100")),
)


@st.composite
def a_line(draw: st.DrawFn) -> Line:
    metric: MetricName = draw(kinds)
    if metric == "fits":
        measured, predicted = draw(st.tuples(*[st.sampled_from((0.0, 1.0))] * 2))
    else:
        measured, predicted = draw(st.tuples(positive, positive))
    pair = Pair(metric, measured, 0.0, predicted)
    shipped = draw(st.none() | positive)
    return Line(
        draw(names), draw(of), metric, measured, 0.0, predicted, pair.error, (), "", draw(positive), 1.0, shipped
    )  # fmt: skip


some = st.lists(a_line(), max_size=12)


@given(st.lists(st.floats(-1, 100), min_size=1, max_size=30))
def test_percentiles_are_bounded(errors: list[float]) -> None:
    found = statistics(errors)
    sizes = [abs(error) for error in errors]
    assert found.rows == len(errors)
    assert min(sizes) <= found.median <= found.p90 <= max(sizes)
    assert min(sizes) <= found.mean * (1 + 1e-12)
    assert found.mean <= max(sizes) * (1 + 1e-12)
    assert min(errors) <= found.bias <= max(errors)
    assert abs(found.bias) <= max(sizes)


@given(some, st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(lines: list[Line], random: object) -> None:
    shuffled = list(lines)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis's own Random
    assert groups(lines) == groups(shuffled)
    assert fitting(lines) == fitting(shuffled)
    assert [line.error for line in worst(lines, 5)] == [line.error for line in worst(shuffled, 5)]


@given(some)
def test_groups_part_the_lines(lines: list[Line]) -> None:
    found = {group.name: group.found for group in groups(lines)}
    steps = [line for line in lines if line.metric == "step_seconds"]
    assert found["all"].rows == len(steps) if steps else "all" not in found
    for kind in ("quality", "study", "strategy", "gpu"):
        assert sum(each.rows for name, each in found.items() if name.startswith(f"{kind} ")) == len(steps)
    told = fitting(lines).as_json()
    assert told["right"] + told["wrong"] + len(told["close"]) == sum(line.metric == "fits" for line in lines)
