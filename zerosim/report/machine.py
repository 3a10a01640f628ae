"""A machine as a picture needs it: kinds of server with their parts and wires, groups of equal switches, cables.

Rule: plain values and words, already said for people. Where they come from (a topology, a run) is not known here, so
that anything which can be told in these terms can be drawn. Equal servers stand here once, with how many there are.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from zerosim.report.machine_heat import Busy
from zerosim.units import show_rate


class Part(NamedTuple):
    """A device of a server. `model` and `size` are short words for its box, `said` is everything about it; `mark` is
    the number of a GPU's class of ranks, `compute` the fraction of its rate that it computes at; `rate` is bytes/s of a
    network port."""

    name: str
    kind: str
    model: str = ""
    size: str = ""
    said: str = ""
    mark: int | None = None
    compute: float = 1.0
    rate: float = 0.0


class Wire(NamedTuple):
    """A link inside a server: bytes/s from `a` to `b`, and `back`. `word` is how it is called ("PCIe 4", "NV2")."""

    a: str
    b: str
    kind: str
    rate: float
    back: float
    word: str = ""

    def said(self, several: int = 1) -> str:
        """Everything about it, or about so many like it."""
        ends = f"{self.a} – {self.b}" if several == 1 else f"{several} links, such as {self.a} – {self.b}"
        back = "each way" if self.rate == self.back else f"there, {show_rate(self.back)} back"
        return f"{ends}: {self.word or self.kind}, {show_rate(self.rate)} {back}"


class Server(NamedTuple):
    """A kind of server, and which hosts are such ("hosts 0-3")."""

    hosts: str
    number: int
    parts: tuple[Part, ...]
    wires: tuple[Wire, ...]


class Switches(NamedTuple):
    """Equal switches between servers; level 1 has servers on it. `cable`: no switch, wires from server to server."""

    kind: Literal["leaf", "spine", "nvswitch", "cable"]
    names: tuple[str, ...]
    said: str
    level: int = 1


class End(NamedTuple):
    """The place of one end of a cable in the machine's list of servers or of switches."""

    what: Literal["server", "switches"]
    place: int


class Cable(NamedTuple):
    """All links of a kind from a server of a kind (or a switch) to a group of switches: rates and how many. `each`:
    from how many of them ("from each", "from 6 nodes"), where there are several."""

    source: End
    target: End
    kind: str
    rates: tuple[tuple[float, int], ...]
    each: str = ""

    @property
    def rate(self) -> float:
        return sum(rate * count for rate, count in self.rates)


class Machine(NamedTuple):
    """`classes`: words for each class of ranks. `busy`: shares of the step by place, after a run; None before one."""

    name: str
    about: tuple[str, ...]
    servers: tuple[Server, ...]
    switches: tuple[Switches, ...]
    cables: tuple[Cable, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    busy: Busy = None
