"""What `Step.lint` finds: waits that point forward, buffers held twice or for ever, elements reduced not just once."""

from __future__ import annotations

import pytest

from zerosim.errors import ZerosimError
from zerosim.step import Buffer, Op, Slice, Step

A, B = Buffer("a", "gradients", 8.0), Buffer("b", "gradients", 8.0)


def step(*ops: Op, resident: frozenset[int] = frozenset(), parameters: tuple[int, ...] = ()) -> Step:
    buffers = (A, B) if any(op.acquires or op.releases for op in ops) or resident else ()
    return Step(ops, buffers, resident, {}, 1, parameters, reductions=(0,))


Numbers = tuple[int, ...]


def op(
    number: int,
    after: Numbers = (),
    host_waits: Numbers = (),
    acquires: Numbers = (),
    releases: Numbers = (),
    reduces: tuple[Slice, ...] = (),
) -> Op:
    name = f"op{number}"
    return Op(number, name, "compute", None, after, host_waits, acquires=acquires, releases=releases, reduces=reduces)


def reducing(*slices: tuple[int, int, int]) -> Step:
    """A step of two parameters, of 10 elements and frozen."""
    ops = [op(number, reduces=(Slice(*piece),)) for number, piece in enumerate(slices)]
    return step(*ops, parameters=(10, 0))


def test_a_clean_program_is_itself() -> None:
    clean = step(op(0, acquires=(0, 1)), op(1, after=(0,), releases=(0, 1)))
    assert clean.lint() == []
    assert clean.check() is clean


@pytest.mark.parametrize("first", [op(0, after=(1,)), op(0, host_waits=(1,)), op(0, after=(0,)), op(0, after=(-1,))])
def test_a_wait_points_backward(first: Op) -> None:
    assert step(first, op(1)).lint() == ["op 0 (op0) waits for an op that is issued later"]


def test_numbers_are_places() -> None:
    assert step(op(1)).lint() == ["op 0 (op1) has number 1"]


@pytest.mark.parametrize(
    ("ops", "resident", "fault"),
    [
        ([op(0, acquires=(0, 1)), op(1, acquires=(0,), releases=(0, 1))], (), "op 1 (op1) acquires a, which is held"),
        ([op(0, acquires=(0, 1), releases=(0,))], (), "b is never released"),
        ([op(0, acquires=(0,), releases=(0, 1))], (1,), "b is resident and not held at the end"),
        (
            [op(0, acquires=(0, 1), releases=(0, 1)), op(1, releases=(0,))],
            (),
            "op 1 (op1) releases a, which is not held",
        ),
        ([op(0, acquires=(0,), releases=(0,))], (), "b is never acquired"),
    ],
)
def test_a_buffer_is_acquired_once_and_released_once(ops: list[Op], resident: tuple[int, ...], fault: str) -> None:
    assert step(*ops, resident=frozenset(resident)).lint() == [fault]


def test_pieces_in_any_order_make_a_whole() -> None:
    assert reducing((0, 4, 10), (0, 0, 4)).lint() == []


@pytest.mark.parametrize(
    ("slices", "fault"),
    [
        ([], "element 0 is not reduced"),
        ([(0, 0, 4)], "element 4 is not reduced"),
        ([(0, 0, 4), (0, 5, 10)], "element 4 is not reduced"),
        ([(0, 0, 6), (0, 5, 10)], "element 5 is reduced once too often"),
        ([(0, 0, 10), (0, 0, 10)], "element 0 is reduced once too often"),
        ([(0, 0, 10), (0, 9, 10)], "element 9 is reduced once too often"),
    ],
)
def test_an_element_is_reduced_just_once(slices: list[tuple[int, int, int]], fault: str) -> None:
    assert reducing(*slices).lint() == [f"parameter 0: {fault} in micro-batch 0"]


def test_a_frozen_parameter_is_never_reduced() -> None:
    faults = reducing((0, 0, 10), (1, 0, 3)).lint()
    assert faults == ["parameter 1: element 0 is reduced once too often in micro-batch 0"]


def test_check_raises_the_first_faults() -> None:
    with pytest.raises(ZerosimError, match=r"faulty program: parameter 0: element 4 is not reduced in micro-batch 0"):
        reducing((0, 0, 4)).check()
