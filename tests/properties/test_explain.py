"""What holds for attribution, path and slack of every step: sums that are exact, and slack that is just enough."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine_programs import Program
from tests.properties.test_engine import MACHINE, programs
from tests.properties.test_views import same, timelines
from zerosim.timeline import Call, Timeline
from zerosim.views import breakdown, critical_path, phases, stalls
from zerosim.views.attribution import attribution
from zerosim.views.path_runs import path_runs
from zerosim.views.slack import slack, slacks


def by_phase(rows: object) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for row in rows:  # type: ignore[attr-defined]  # rows of any kind
        found[row.phase] += row.seconds
    return found


def check_attribution(timeline: Timeline) -> None:
    step, rows = timeline.makespan, attribution(timeline)
    assert same(sum(row.seconds for row in rows), step - breakdown(timeline).compute, step)
    attributed, stalled = by_phase(rows), by_phase(stalls(timeline))
    assert all(same(attributed[phase], stalled[phase], step) for phase in phases(timeline))
    assert all(row.seconds > 0 and row.ops > 0 for row in rows)
    assert sum(row.seconds for row in rows if row.cause == "idle") <= 1e-9 * step  # no wait is without a cause
    runs = path_runs(timeline)
    assert same(sum(run.end - run.start for run in runs), step, step)
    assert all(same(sum(part.seconds for part in run.parts), run.end - run.start, step) for run in runs)


def check_slack(timeline: Timeline) -> None:
    found, step = slack(timeline), timeline.makespan
    assert min((min(each, default=0.0) for each in found.values()), default=0.0) >= -1e-9 * step
    for link in critical_path(timeline):
        if link.why == "work":
            assert same(found[link.rank_class][link.op], 0.0, step)
    for kind in slacks(timeline, found):
        assert kind.critical_seconds <= kind.seconds + 1e-9 * step
        assert kind.critical or kind.least_seconds > 0


def ends(timeline: Timeline, late: Call, by: float) -> float:
    """The end of the step with one op later, found forwards, and all ops as long as they were."""
    together = timeline.collectives() if len(timeline.classes) > 1 else {}
    end: dict[Call, float] = {}
    moved = True
    while moved:
        moved = False
        for each in timeline.classes:
            issued, tail = 0.0, dict[str, float]()
            for op, span in zip(timeline.program(each).ops, timeline.spans[each.name], strict=True):
                call = Call(each.name, op.number)
                waited = [end.get(Call(each.name, other), 0.0) for other in op.host_waits]
                issued = max([issued, *waited]) + timeline.demands[each.name][op.number].host
                before = [end.get(Call(each.name, other), 0.0) for other in op.after]
                start = max([issued, tail.get(op.stream, 0.0), *before])
                known = max([end.get(other, 0.0) for other in together.get(call, (call,))])
                later = max(known, start + span.end - span.start)
                later = max(later, span.end + by) if late in together.get(call, (call,)) else later
                moved |= later > end.get(call, -1.0)
                end[call] = tail[op.stream] = later
    return max(end.values(), default=0.0)


@given(timelines())
@settings(max_examples=120, deadline=None)
def test_every_second_without_compute_has_a_root(timeline: Timeline) -> None:
    check_attribution(timeline)


@given(programs())
@settings(max_examples=60, deadline=None)
def test_so_it_has_where_resources_are_shared(program: Program) -> None:
    timeline = program.play(MACHINE)
    check_attribution(timeline)
    check_slack(timeline)


@given(timelines())
@settings(max_examples=120, deadline=None)
def test_nobody_has_less_than_no_slack_and_the_critical_path_has_none(timeline: Timeline) -> None:
    check_slack(timeline)


@given(timelines(), st.data())
@settings(max_examples=80, deadline=None)
def test_an_op_may_end_as_late_as_its_slack_and_no_later(timeline: Timeline, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([each.name for each in timeline.classes]))
    op = data.draw(st.sampled_from(timeline.program(name).ops))
    step, call, seconds = timeline.makespan, Call(name, op.number), slack(timeline)[name][op.number]
    assert same(ends(timeline, call, seconds), step, max(step, 1.0))
    assert ends(timeline, call, seconds + 0.5) >= step + 0.5 - 1e-9 * max(step, 1.0)
