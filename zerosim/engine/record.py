"""What is written down while a step is played: the times of one class's ops, and who has reached a collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simpy import Event

from zerosim.engine.footprints import Footprint
from zerosim.step import Op

NOT_YET = -1.0  # the time of what has not happened


@dataclass(slots=True)
class Record:
    """The ops of one rank class: what each needs, and when each was issued, was ready, began and ended."""

    name: str
    ops: Sequence[Op]
    footprints: list[Footprint]
    host: list[float]  # seconds of the host to issue each
    issued: list[float] = field(init=False)
    ready: list[float] = field(init=False)
    start: list[float] = field(init=False)
    end: list[float] = field(init=False)
    bottleneck: list[str] = field(init=False)
    meetings: dict[int, Meeting] = field(default_factory=dict)  # by op: the collectives carried with other classes
    reached: int = 0  # the op the host is at; those before it are issued

    def __post_init__(self) -> None:
        count = len(self.footprints)
        self.issued, self.ready, self.start, self.end = ([NOT_YET] * count for _ in range(4))
        self.bottleneck = [""] * count


@dataclass(slots=True)
class Meeting:
    """One collective of several classes: who takes part, who has come, and when it was carried once all had."""

    over: Event
    members: Sequence[str]
    arrived: list[str] = field(default_factory=list)
    start: float = NOT_YET
    bottleneck: str = ""
