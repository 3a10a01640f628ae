"""What `nvidia-smi topo -m` tells of a machine: NVLinks, the PCIe tree, NUMA nodes, where the ports hang.

A cell hides what lies beneath it: GPUs that NVLink joins show no PCIe relation, so the ports that they share tell
which switch they are on. PIX is one switch; PXB several, nested; PHB and NODE one NUMA node; SYS two, or no telling.
A cell that is missing is taken from its mirror image. Rule: nothing of the catalogue, no figures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from zerosim.errors import InputError, Problem
from zerosim.spec.importers.plain_text import EXPECTED
from zerosim.spec.importers.seen import MOST_TOLD, Seen, SeenGpu, SeenNic, SeenSocket, SeenSwitch
from zerosim.spec.importers.smi_listings import parts, products_of
from zerosim.spec.importers.smi_table import Table, tables

TOOL = "nvidia-smi topo -m"
NEAREST = ("X", "PIX", "PSB", "PXB", "PHB", "NODE", "SYS")
ONE_SWITCH, ONE_TREE, ONE_NODE = frozenset({"PIX", "PSB"}), frozenset({"PIX", "PSB", "PXB"}), frozenset(NEAREST[1:6])
MOST_CORES = 10_000  # logical ones of a server; a greater number is no core


def read_smi(text: str, source: str) -> Seen | None:
    """The machine of the first table of links; None where there is none."""
    found, legend, rest = tables(text)
    linked = [table for table in found if table.rows and not table.of_peers and not table.foreign]
    if not linked:
        if any(table.of_peers for table in found):
            raise InputError([Problem(source, found="the matrix of nvidia-smi topo -p2p alone", expected=EXPECTED)])
        return None
    machine = _Machine(linked[0], legend)
    if not machine.gpus:
        raise InputError([Problem(source, found="a matrix without GPUs", expected=EXPECTED)])
    if any(other.cells != linked[0].cells for other in linked[1:]):
        machine.remarks.append("the text holds several matrices; the first one was taken")
    peers = next((table for table in found if table.of_peers), None)
    products = products_of(rest)
    machine.remarks += parts(products, rest)
    return machine.seen(products, rest, _p2p(peers, machine.remarks))


def foreign_words(text: str) -> tuple[str, ...]:
    """Cells that only another tool writes."""
    return tuple(dict.fromkeys(word for table in tables(text)[0] for word in table.foreign))


def _p2p(peers: Table | None, remarks: list[str]) -> bool | None:
    """Whether GPUs may copy to each other over PCIe, as topo -p2p tells."""
    said = {cell for (row, column), cell in peers.cells.items() if row != column and cell != "X"} if peers else set()
    if "OK" in said and len(said) > 1:
        remarks.append("topo -p2p tells that only some pairs of GPUs copy to each other directly")
    return None if not said else "OK" in said


class _Machine:
    """The parts of the table in order, and what was decided in reading them."""

    def __init__(self, table: Table, legend: Mapping[str, str]) -> None:
        self.table, self.legend = table, legend
        self.remarks: list[str] = []
        named = list(dict.fromkeys([*table.columns, *table.rows]))
        self.gpus = sorted((name for name in named if name.startswith("GPU")), key=_number)
        self.nics = [name for name in named if not name.startswith("GPU")]
        self.all = [*self.gpus, *self.nics]
        missing = [name for name in self.gpus if name not in table.rows]
        if missing:
            self.remarks.append(f"no rows of {', '.join(missing)}: taken from the columns, as both ways are alike")
        self.joined = {pair: self._relation(*pair) for pair in combinations(self.all, 2)}
        if self.gpus != [f"GPU{index}" for index in range(len(self.gpus))]:
            self.remarks.append(f"GPUs are numbered anew: {', '.join(self.gpus)}")

    def _relation(self, a: str, b: str) -> str:
        """What joins two devices; the nearer of what both cells say."""
        said = [
            cell for cell in (self.table.cells.get((a, b)), self.table.cells.get((b, a))) if cell not in (None, "X")
        ]
        plain = ["SYS" if cell == "SOC" else str(cell) for cell in said]
        if len(set(plain)) > 1:
            self.remarks.append(
                f"{a} to {b} is {plain[0]}, the other way {plain[1]}: the nearer one, or the fewer links, was taken"
            )
        return min(plain, key=lambda cell: (NEAREST.index(cell) if cell in NEAREST else 0, len(cell), cell), default="")

    def seen(self, products: Mapping[int, str], rest: str, p2p: bool | None) -> Seen:
        pairs = self._pairs()
        sockets = _Sockets(self)
        switches = self._switches(sockets)
        return Seen(
            tool=TOOL,
            gpus=tuple(SeenGpu(sockets.of[gpu] or 0, products.get(_number(gpu), "")) for gpu in self.gpus),
            nics=tuple(SeenNic(self.legend.get(nic, nic), sockets.of[nic]) for nic in self.nics),
            sockets=sockets.all,
            switches=switches,
            pairs=pairs,
            c2c=self.table.own_memory_is_told,
            p2p=p2p,
            words=rest,
            remarks=tuple(dict.fromkeys(self.remarks)),
        )

    # --- NVLink ---

    def _pairs(self) -> tuple[tuple[int, int, int], ...]:
        """The NVLinks between GPUs; a pair of which the text says nothing is as the others, where these are alike."""
        known: dict[tuple[int, int], int] = {}
        untold: list[tuple[int, int]] = []
        for a, b in combinations(range(len(self.gpus)), 2):
            cell = self.joined[self.gpus[a], self.gpus[b]]
            if cell.startswith("NV") and int(cell[2:]) > MOST_TOLD:
                self.remarks.append(f"{self.gpus[a]} to {self.gpus[b]} is {cell}, more links than can be: not taken")
            elif cell.startswith("NV"):
                known[a, b] = int(cell[2:])
            elif not cell:
                untold.append((a, b))
        whole = len(known) + len(untold) == len(self.gpus) * (len(self.gpus) - 1) // 2
        alike = whole and len(set(known.values())) == 1
        if untold:
            names = ", ".join(f"{self.gpus[a]} to {self.gpus[b]}" for a, b in untold[:4])
            more = f" and {len(untold) - 4} more pairs" if len(untold) > 4 else ""
            taken = f"NV{next(iter(known.values()))}, as all others" if alike else "no NVLink"
            self.remarks.append(f"the text does not tell what joins {names}{more}: {taken}")
        if alike:
            known.update(dict.fromkeys(untold, next(iter(known.values()))))
        return tuple((a, b, links) for (a, b), links in sorted(known.items()) if links)

    # --- PCIe ---

    def _switches(self, sockets: _Sockets) -> tuple[SeenSwitch, ...]:
        trees = [group for group in self.groups(ONE_TREE) if len(group) > 1]
        inner = [group for group in self.groups(ONE_SWITCH) if len(group) > 1]
        return tuple(self._tree(tree, inner, sockets) for tree in trees)

    def _tree(self, tree: list[str], inner: Sequence[list[str]], sockets: _Sockets) -> SeenSwitch:
        own = [group for group in inner if set(group) < set(tree)]
        direct = [name for name in tree if not any(name in group for group in own)]
        near = Counter(at for name in tree if (at := sockets.of[name]) is not None)
        below = tuple(self._switch(group) for group in own)
        last = len(sockets.all) - 1
        if not near and last:
            self.remarks.append(f"{', '.join(tree)}: near no GPU; NUMA node {last} of {last + 1} assumed")
        return self._switch(direct)._replace(switches=below, socket=near.most_common(1)[0][0] if near else last)

    def _switch(self, names: Iterable[str]) -> SeenSwitch:
        held = set(names)
        gpus = tuple(index for index, name in enumerate(self.gpus) if name in held)
        return SeenSwitch(gpus, tuple(index for index, name in enumerate(self.nics) if name in held))

    def groups(self, near: frozenset[str]) -> list[list[str]]:
        """The devices that relations of these kinds join, directly or by others, in order."""
        group = {name: {name} for name in self.all}
        for (a, b), cell in self.joined.items():
            if cell in near and group[a] is not group[b]:
                group[a] |= group[b]
                group.update(dict.fromkeys(group[b], group[a]))
        distinct = {id(members): members for members in group.values()}.values()
        return [[name for name in self.all if name in members] for members in distinct]


class _Sockets:
    """The NUMA node of each device (None where nothing tells), and the nodes."""

    def __init__(self, machine: _Machine) -> None:
        self.machine = machine
        keys = self._by_affinity() or self._by_nearness()
        known = self._in_order(keys)
        self.of: dict[str, int | None] = dict.fromkeys(machine.all)
        self.of.update({gpu: known.index(key) for gpu, key in keys.items()})
        self.all = tuple(SeenSocket(self._name(key), self._cores(key, keys)) for key in known) or (SeenSocket(),)
        self._place_the_rest()

    def _name(self, key: str) -> str:
        return f"NUMA node {key}" if re.fullmatch(r"[\d,\-]+", key) else ""

    def _in_order(self, keys: Mapping[str, str]) -> list[str]:
        """NUMA nodes by number, with those between that have no GPUs; by their first core where some have no number."""
        known = list(dict.fromkeys(keys.values()))
        if known and all(key.isdecimal() for key in known):
            most = max(map(int, known)) + 1
            whole = 2 < most <= 64 and not self.machine.table.own_memory_is_told
            return [str(node) for node in range(most + most % 2)] if whole else sorted(known, key=int)
        first = {key: _first(self.machine.table.affinity.get(gpu, "")) for gpu, key in list(keys.items())[::-1]}
        return sorted(known, key=lambda key: (first[key], known.index(key)))

    def _by_affinity(self) -> dict[str, str]:
        """By the NUMA column; where that is N/A by the cores, which a node that others name may have."""
        table, gpus = self.machine.table, self.machine.gpus
        numa = {gpu: said for gpu in gpus if (said := table.numa.get(gpu, "")) and said.upper() not in ("N/A", "NA")}
        cores = {gpu: said for gpu in gpus if re.search(r"\d", said := table.affinity.get(gpu, ""))}
        cores = _without_cut(cores, table.rows[-1])
        by_cores = {cores[gpu]: said for gpu, said in numa.items() if gpu in cores}
        numa = {gpu: str(int(said[:9])) if said.isdecimal() else said for gpu, said in numa.items()}  # 06 is 6
        keys = numa | {gpu: by_cores.get(said, f"cpu{said}") for gpu, said in cores.items() if gpu not in numa}
        alone = len(set(keys.values())) == 1 and not numa
        return {} if alone and len(self._apart()) > 1 else keys

    def _apart(self) -> list[list[str]]:
        """GPUs that are near each other, if SYS parts them into groups of several."""
        machine = self.machine
        groups = [[name for name in group if name in machine.gpus] for group in machine.groups(ONE_NODE)]
        groups = [group for group in groups if group]
        return groups if all(len(group) > 1 for group in groups) else []

    def _by_nearness(self) -> dict[str, str]:
        groups = self._apart()
        if len(groups) > 1:
            self.machine.remarks.append("NUMA nodes are told apart by SYS, as the affinity does not")
        return {name: f"group{index}" for index, group in enumerate(groups) for name in group}

    def _cores(self, key: str, keys: Mapping[str, str]) -> int:
        said = [self.machine.table.affinity.get(gpu, "") for gpu, own in keys.items() if own == key]
        return max((cores_of(text) for text in said), default=0)

    def _place_the_rest(self) -> None:
        """A device without affinity is where its neighbours are; a GPU without neighbours where the one before is."""
        machine = self.machine
        for group in machine.groups(ONE_NODE):
            near = [at for name in group if (at := self.of[name]) is not None]
            for name in group if near else ():
                self.of[name] = near[0] if self.of[name] is None else self.of[name]
        before = 0
        for gpu in machine.gpus:
            at = self.of[gpu]
            if at is None:
                if len(self.all) > 1:
                    machine.remarks.append(f"no affinity of {gpu}: on the NUMA node of the GPU before it")
                self.of[gpu] = before
            before = before if at is None else at
        self._ports_elsewhere()

    def _ports_elsewhere(self) -> None:
        """Ports that SYS parts from all GPUs of the only NUMA node are on another one, if SYS parts no GPUs of it."""
        machine = self.machine
        if len(self.all) > 1:
            return
        inside = {machine.joined[pair] for pair in combinations(machine.gpus, 2)}
        far = [nic for nic in machine.nics if {machine.joined[gpu, nic] for gpu in machine.gpus} == {"SYS"}]
        far = far if "SYS" not in inside else []
        if far:
            self.all = (*self.all, SeenSocket("", self.all[0].cores))
            machine.remarks.append(f"{', '.join(far)}: on a NUMA node without GPUs")
        self.of.update({nic: 1 if nic in far else 0 for nic in machine.nics if self.of[nic] is None})


def _without_cut(cores: Mapping[str, str], last: str) -> dict[str, str]:
    """Lists of cores, of which one that the end of the text cut ("24-47,") is the whole one that begins so.

    That of the `last` row may be cut inside a number.
    """
    cut = {gpu for gpu, said in cores.items() if gpu == last or said.endswith((",", "-"))}
    whole = sorted({said for gpu, said in cores.items() if gpu not in cut}, reverse=True)
    return {
        gpu: next((other for other in whole if other.startswith(said)), said)
        if gpu in cut and said not in whole
        else said
        for gpu, said in cores.items()
    }


def cores_of(affinity: str) -> int:
    """Physical cores of a list of logical ones: "0-31,64-95" are 32 with two threads each, "0-23" are 24."""
    spans = [(int(hit[1]), int(hit[2] or hit[1])) for hit in re.finditer(r"(\d{1,9})(?:-(\d{1,9}))?", affinity)]
    sizes = [last - first + 1 for first, last in spans if first <= last < MOST_CORES]
    half = len(sizes) // 2
    if len(sizes) % 2 or max(sizes, default=0) < 2:
        return sum(sizes)
    return max(sum(sizes[:half]), sum(sizes[half:]))  # the second half are second threads, of which some may be off


def _number(name: str) -> int:
    return int(re.sub(r"\D", "", name)[:9] or 0)


def _first(affinity: str) -> int:
    """The first core of a list."""
    hit = re.match(r"\d{1,9}", affinity)
    return int(hit[0]) if hit else 0
