"""One kind of server on a sheet: memory and drives, sockets, PCIe switches, then GPUs and ports, NVLink at the bottom.

What hangs on a part stands below it and within its width, so that wires are straight and cross nothing. Equal wires
beside each other are labelled once. Whatever has no place in this order (a second way, an odd link) is told in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from zerosim.report import machine_nvlink
from zerosim.report.machine import Server, Wire
from zerosim.report.machine_heat import Busy, hottest, percent, warmth
from zerosim.report.machine_marks import LINE, Box, Line, Sheet, Words, beside, cut, span, thickness, wide, wide_badge
from zerosim.report.machine_tree import Branch, Tree, tree_of
from zerosim.report.machine_wires import in_words, label, share_of
from zerosim.units import show_rate, show_share

WIDTH, NARROW, GAP = 88.0, 64.0, 8.0  # of the box of a GPU, a port, a drive; where there are many; between two
MANY = 20  # boxes in the row of GPUs
PAD, HEAD = 12.0, 26.0  # around everything; above it, for the title
ROOT_GAP, LABEL_ROOM = 50.0, 82.0  # between trees, without and with a labelled link from one to the next
SOCKET, SWITCH = 34.0, 22.0  # heights
BESIDE = "beside"  # the row of memory and drives
BELOW = {"pcie_switch", "gpu", "nic"}  # the rest stands above its socket
WORDS = {"pcie_switch": "PCIe switch", "nic": "NIC", "dram": "DRAM", "nvme": "NVMe"}


class Drawn(NamedTuple):
    """A server's sheet with its size, and what it could only tell in words."""

    sheet: Sheet
    width: float
    height: float
    notes: tuple[str, ...]


class Rows(NamedTuple):
    """The y of the tops of all rows, and of the bottom of the last."""

    beside: float  # memory and drives
    sockets: float
    switches: tuple[float, ...]
    leaves: float
    end: float


def draw_server(server: Server, busy: Busy, least: float = 0.0) -> Drawn:
    """The sheet of a server, at least so wide."""
    return _Drawing(server, busy, least).drawn()


@dataclass
class _Columns:
    """Where the next column begins."""

    x: float


class _Drawing:
    """The sheet on which a server is drawn."""

    def __init__(self, server: Server, busy: Busy, least: float) -> None:
        self.server, self.busy, self.least = server, busy, least
        self.tree: Tree = tree_of(server)
        self.marks: frozenset[int] = frozenset().union(*(root.marks for root in self.tree.roots))
        self.near = self.marks  # classes of the GPUs of the tree that is drawn
        self.sheet, self.boxes = Sheet(), dict[str, Box]()
        many = sum(self._columns(root) for root in self.tree.roots) > MANY
        self.width = NARROW if many else WIDTH  # of a box in the row of GPUs
        self.pitch = self.width + GAP
        self.high = SOCKET + (0 if busy is None else LINE + 6)  # of a socket
        self.label = LINE * (2 if busy is None else 3) + 8
        self.said: dict[tuple[str, str], tuple[str, ...]] = {}  # the last label of each row, by kind of part
        self.told: set[int] = set()

    def drawn(self) -> Drawn:
        rows = self._rows()
        columns = _Columns(PAD)
        for before, root in zip((None, *self.tree.roots), self.tree.roots, strict=False):
            if before is not None:
                columns.x += LABEL_ROOM if self._joining(before, root) else ROOT_GAP
            self.said.clear()
            self.near = root.marks or self.marks
            self._root(root, columns, rows)
        self._sockets(rows)
        bottom = rows.end + machine_nvlink.draw(self.sheet, self._gpus(), self.server, self.busy, rows.end, self.told)
        right = [columns.x, *(box.right + 3 for box in self.sheet.boxes)]
        right += [each.x + wide(each.text) for each in self.sheet.words if each.ink != "middle"]
        width = max(max(right) + PAD, self.least, 2 * PAD + wide(self._title()) * 1.1)
        height = bottom + PAD
        self.sheet.boxes.insert(0, Box(0, 0, width, height, "server", about=self.server.hosts))
        self.sheet.words.append(Words(PAD, 17, self._title(), "strong"))
        untold = [wire for wire in self.tree.beside if id(wire) not in self.told]
        return Drawn(self.sheet, width, height, tuple(in_words(untold)))

    def _title(self) -> str:
        count = self.server.number
        return f"{count:,} nodes, all alike ({self.server.hosts})" if count > 1 else f"1 node ({self.server.hosts})"

    # --- rows and columns ---

    def _rows(self) -> Rows:
        """Heights from what there is: no row for drives where there are none."""
        depth = max((self._depth(root) for root in self.tree.roots), default=0)
        beside = any(self._above(root) for root in self.tree.roots)
        sockets = any(root.kind == "socket" for root in self.tree.roots)
        y = HEAD
        first = y
        y += (self._leaf_height() + self.label) if beside else 0.0
        at = y
        y += (self.high + self.label) if sockets else 0.0
        tops = []
        for _ in range(depth):
            tops.append(y)
            y += SWITCH + self.label
        return Rows(first, at, tuple(tops), y, y + self._leaf_height())

    def _leaf_height(self) -> float:
        return 3 * LINE + 8 + (LINE + 8 if self.busy is not None else 0)

    def _depth(self, branch: Branch) -> int:
        """How many switches stand one below another."""
        own = 1 if branch.kind == "pcie_switch" else 0
        return own + max((self._depth(each) for each in branch.below), default=0)

    def _above(self, root: Branch) -> list[Branch]:
        return [each for each in root.below if each.kind not in BELOW] if root.kind == "socket" else []

    def _joining(self, one: Branch, other: Branch) -> Wire | None:
        pair = {one.part.name, other.part.name}
        return next((wire for wire in self.tree.beside if {wire.a, wire.b} == pair and wire.kind == "socket"), None)

    # --- trees ---

    def _root(self, root: Branch, columns: _Columns, rows: Rows) -> Box:
        if root.kind != "socket":
            return self._branch(root, columns, rows, 0, None)
        start, above = columns.x, self._above(root)
        own = len(above) * WIDTH + max(0, len(above) - 1) * 3 * GAP
        under = [each for each in root.below if each not in above]
        taken = sum(self._columns(each) for each in under)
        room = max(own, taken * self.pitch - GAP, 2 * WIDTH)
        columns.x = start + (room - max(0.0, taken * self.pitch - GAP)) / 2
        box = self._socket(root, Box(start, rows.sockets, room, self.high, "socket"))
        for each in under:
            self._branch(each, columns, rows, 0, box)
        x = start + (room - own) / 2
        for each in above:
            self._beside(each, Box(x, rows.beside, WIDTH, self._leaf_height(), each.kind), box)
            x += WIDTH + 3 * GAP
        columns.x = start + room
        return box

    def _columns(self, branch: Branch) -> int:
        return max(1, sum(self._columns(each) for each in branch.below))

    def _branch(self, branch: Branch, columns: _Columns, rows: Rows, level: int, above: Box | None) -> Box:
        start = columns.x
        if branch.kind != "pcie_switch":
            box = self._leaf(branch, Box(start, rows.leaves, self.width, self._leaf_height(), branch.kind))
            columns.x = start + self.pitch
        else:
            room = self._columns(branch) * self.pitch
            box = self._switch(branch, Box(start, rows.switches[level], room - GAP, SWITCH, "pcie_switch"))
            for each in branch.below:
                self._branch(each, columns, rows, level + 1, box)
            columns.x = start + room
        if above is not None and branch.wire is not None:
            self._wire(branch, branch.wire, ((box.middle, above.bottom), (box.middle, box.y)), str(box.y))
        return box

    # --- boxes ---

    def _socket(self, root: Branch, box: Box) -> Box:
        part, share = root.part, hottest(self.busy, "cpu", self.near)
        lines = [f"{span(root.names)}: {part.model}" if part.model else part.name, part.size]
        lines += [] if share is None else [f"CPU {percent(share)}"]
        return self._put(root, box._replace(lines=tuple(lines), busy=share))

    def _switch(self, branch: Branch, box: Box) -> Box:
        name = span(branch.names)
        long = f"{WORDS['pcie_switch']} {name}"
        return self._put(branch, box._replace(lines=(long if wide(long) < box.width - 8 else name,)))

    def _beside(self, branch: Branch, box: Box, socket: Box) -> None:
        self._leaf(branch, box)
        if branch.wire is not None:
            self._wire(branch, branch.wire, ((box.middle, box.bottom), (box.middle, socket.y)), BESIDE)

    def _leaf(self, branch: Branch, box: Box) -> Box:
        part, several = branch.part, len(branch.parts)
        sized = f"{several} × {part.size}" if several > 1 and part.size else part.size
        lines = [span(branch.names), part.model if branch.kind == "gpu" else WORDS.get(branch.kind, branch.kind), sized]
        share, said = self._share(branch)
        if branch.kind == "gpu" and part.compute != 1:
            slowed = f"{show_share(part.compute)} compute"
            lines[2] = slowed if wide(slowed) <= box.width - 6 else f"at {show_share(part.compute)}"
        return self._put(branch, box._replace(lines=(*lines, *said), mark=part.mark, busy=share))

    def _share(self, branch: Branch) -> tuple[float | None, list[str]]:
        """How busy a part at the end of a tree was, and the words for it."""
        if branch.kind == "gpu":
            known = [(what, hottest(self.busy, what.lower(), branch.marks)) for what in ("SM", "HBM")]
            said = [(share, f"{what} {percent(share)}") for what, share in known if share is not None]
            return max(said, default=(None, ""))[0], [max(said)[1]] if said else []
        share = hottest(self.busy, branch.kind, self.marks if branch.kind == "nic" else self.near)
        return share, [] if share is None else [f"{percent(share)} busy"]

    def _put(self, branch: Branch, box: Box) -> Box:
        room = box.width - 6
        first = room - (wide_badge(box.mark) if box.mark is not None else 0)
        lines = [cut(line, first if place == 0 else room) for place, line in enumerate(box.lines) if line]
        about = "\n".join([", ".join(branch.names), *(dict.fromkeys(part.said for part in branch.parts if part.said))])
        box = box._replace(lines=tuple(lines), about=about, several=len(branch.parts) > 1)
        self.sheet.boxes.append(box)
        self.boxes.update(dict.fromkeys(branch.names, box))
        return box

    # --- wires ---

    def _wire(self, branch: Branch, wire: Wire, points: tuple[tuple[float, float], ...], row: str) -> None:
        """A wire up, and its label unless the last one in the row had the same."""
        near = self.marks if branch.kind == "nic" else self.near
        share, several = share_of(branch, self.busy, near), len(branch.parts)
        why = "" if share is None or branch.kind != "nic" else "; carries what its NIC does"
        heat = warmth(share, self.busy)
        room = (WIDTH + 3 * GAP if row == BESIDE else self.pitch) - 2 * thickness(wire.rate * several)
        self.sheet.lines.append(Line(points, wire.kind, wire.rate * several, wire.said(several) + why, heat))
        said, place = tuple(label(wire, several, share, room)), (row, branch.kind)
        before, others = self.said.get(place), [known for (there, _), known in self.said.items() if there == row]
        self.said[place] = said
        if said != before and (before is not None or said not in others):
            self.sheet.write(beside(points[0][0], wire.rate * several), points[1][1] - (8 if several > 1 else 5), said)

    def _sockets(self, rows: Rows) -> None:
        """Links from each socket to the next, in the gap between them."""
        y, share = rows.sockets + self.high / 2, hottest(self.busy, "sockets", self.marks)
        for one, other in pairwise(self.tree.roots):
            wire = self._joining(one, other)
            if wire is None:
                continue
            left, right = self.boxes[one.part.name].right, self.boxes[other.part.name].x
            heat = warmth(share, self.busy)
            self.sheet.lines.append(Line(((left, y), (right, y)), "socket", wire.rate, wire.said(), heat))
            self.sheet.words.append(Words((left + right) / 2, y - 8, show_rate(wire.rate), "middle"))
            if share is not None:
                self.sheet.words.append(Words((left + right) / 2, y + 16, percent(share), "middle"))
            self.told.add(id(wire))

    def _gpus(self) -> list[tuple[Branch, Box]]:
        found = [(each, self.boxes[each.part.name]) for root in self.tree.roots for each in root.walk()]
        return sorted(((branch, box) for branch, box in found if branch.kind == "gpu"), key=lambda pair: pair[1].x)
