"""What a look at a point proves: no play is shorter than its bound, none holds less than its least."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine_programs import Program
from tests.properties.test_engine import MACHINE, programs
from tests.tuned import CASES, Case, asked
from zerosim.costs.bounds import longest_chain
from zerosim.simulation import facts, simulate
from zerosim.simulation import programs as steps_of
from zerosim.studies.tuning.asked import space_of
from zerosim.studies.tuning.looking import look
from zerosim.views import memory
from zerosim.views.least_memory import least_peaks

NEAR = 1e-9


@given(programs())
def test_no_step_is_shorter_than_its_longest_chain(program: Program) -> None:
    chain = longest_chain(program.ops, program.demands, MACHINE)
    assert program.play(MACHINE).makespan >= chain * (1 - NEAR)


def test_a_chain_is_waits_and_ops_alone() -> None:
    """1 s of the host, 2 s on one stream; 3 s on another that waits for them; then the host waits, and 1 s more."""
    from tests.engine_programs import supply, takes

    program, machine = Program(), supply(sm=1.0, link=1.0)
    first = program.add("compute", takes(host=1.0, sm=2.0))
    second = program.add("gather", takes(link=3.0), [first])
    program.add("compute", takes(sm=1.0), waits=[second])
    program.add("reduce", takes(sm=9.0))
    assert longest_chain(program.ops, program.demands, machine) == 6.0 + 9.0
    assert program.play(machine).makespan == 6.0 + 10.0  # the last two share the SMs: 2 s for the 1 s of the first


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@settings(max_examples=4)
@given(data=st.data())
def test_a_look_bounds_the_play(case: Case, data: st.DataObject) -> None:
    question = asked(case)
    space, _ = space_of(question, question.looking.scenario(()))
    scenario = question.looking.scenario(space.changes(data.draw(st.sampled_from(space.points()))))
    seen, timeline = look(scenario), simulate(scenario)
    tiers = memory(timeline, facts(scenario).ranks_per_node)
    assert seen["bound_seconds"] <= timeline.makespan
    assert seen["gpu_bytes"] == pytest.approx(tiers["gpu"].peak, rel=NEAR)
    assert set(seen["too_small"]) <= {name for name, tier in tiers.items() if tier.excess}
    for tier, size in least_peaks(steps_of(scenario), timeline.supply, facts(scenario).ranks_per_node).items():
        assert size <= tiers[tier].peak * (1 + NEAR)
