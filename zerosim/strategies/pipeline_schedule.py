"""What a stage of a pipeline does with its micro-batches, and in which order: GPipe and 1F1B, as plain data.

The order of calls is torch 2.13's, distributed/pipelining/schedules.py: ScheduleGPipe (Huang et al. 2019) and
Schedule1F1B (Narayanan et al. 2021, PipeDream-Flush). Both wait for what they receive at once and let sends go on; a
send that meets a receive is one batched call with it (`_batch_p2p`), so neighbours can never wait for each other in a
ring. torch refuses 1F1B with fewer micro-batches than stages, where the last send of a warm-up would be batched on one
side only; there the rule is Megatron-LM's, core/pipeline_parallel/schedules.py,
forward_backward_pipelining_without_interleaving, which is torch's wherever torch has one [R].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from zerosim.step import Phase

What = Literal["activation", "gradient"]
AHEAD: dict[tuple[bool, What], bool] = {  # whether a message is exchanged with the next stage, or with the one before
    (True, "activation"): True, (False, "gradient"): True,
    (False, "activation"): False, (True, "gradient"): False,
}  # fmt: skip


class Compute(NamedTuple):
    """The forward or the backward of a micro-batch."""

    phase: Phase
    micro_batch: int


class Message(NamedTuple):
    """What is `sent`, or received: the output of a forward, or the gradient of an input."""

    sent: bool
    what: What
    micro_batch: int

    @property
    def ahead(self) -> bool:
        """Whether it concerns the next stage."""
        return AHEAD[self.sent, self.what]


class Call(NamedTuple):
    """One call of point-to-point communication with one neighbour: a message, or one each way at the same time.

    The next computation waits for what is received, and with it for what is sent in the same call.
    """

    messages: tuple[Message, ...]


class Settle(NamedTuple):
    """Wait for the sends that are out, and let go of the gradients that were sent."""


Action = Compute | Call | Settle


def actions(schedule: Literal["gpipe", "1f1b"], stage: int, stages: int, micro_batches: int) -> Iterator[Action]:
    """What a stage does until its last backward; `Compute` of each micro-batch comes once in either phase."""
    order = gpipe(micro_batches) if schedule == "gpipe" else one_forward_one_backward(stage, stages, micro_batches)
    for action in order:
        if not isinstance(action, Call) or (stage < stages - 1 if action.messages[0].ahead else stage > 0):
            yield action


def gpipe(micro_batches: int) -> Iterator[Action]:
    """All forwards, then all backwards, of a stage between two others."""
    for i in range(micro_batches):
        yield _receive("activation", i)
        yield Compute("forward", i)
        yield _send("activation", i)
    yield Settle()
    for i in range(micro_batches):
        yield _receive("gradient", i)
        yield Compute("backward", i)
        yield _send("gradient", i)
    yield Settle()


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> Iterator[Action]:
    """Forwards until the next stages have work, then one and one, then the backwards that are left."""
    warm = min(micro_batches, stages - 1 - stage)
    for i in range(warm):
        yield from (_receive("activation", i), Compute("forward", i), Settle(), _send("activation", i))
    for i in range(micro_batches - warm):
        if i == 0:
            yield from (_receive("activation", warm), Compute("forward", warm), Settle())
        else:
            yield from (_exchange("gradient", i - 1, "activation", warm + i), Compute("forward", warm + i))
        yield from (_exchange("activation", warm + i, "gradient", i), Compute("backward", i), Settle())
    if warm < micro_batches:
        yield _send("gradient", micro_batches - warm - 1)
    for i in range(micro_batches - warm, micro_batches):
        yield from (_receive("gradient", i), Compute("backward", i), Settle(), _send("gradient", i))
    yield Settle()


def _receive(what: What, micro_batch: int) -> Call:
    return Call((Message(False, what, micro_batch),))


def _send(what: What, micro_batch: int) -> Call:
    return Call((Message(True, what, micro_batch),))


def _exchange(sent: What, one: int, received: What, other: int) -> Call:
    return Call((Message(True, sent, one), Message(False, received, other)))
