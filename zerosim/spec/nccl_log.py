"""A log of nccl-tests or rccl-tests as sweeps: which collective, how many GPUs on how many nodes, times by size.

What a log does not say outright is inferred where that has one answer, and told: the collective from the name of its
program, of its file, or from busbw / algbw; the number of GPUs from its list of devices, from NCCL's own messages, or
from that same factor, which must agree. Where it has several answers the log is refused with the option that decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from statistics import median
from typing import NamedTuple

from zerosim.errors import InputError, Problem
from zerosim.spec import nccl_factor, nccl_rows
from zerosim.spec.calibration import MeasuredKind
from zerosim.spec.nccl_factor import USUAL_NODE
from zerosim.spec.nccl_rows import Rank, Row, Torn

NAMES: dict[str, MeasuredKind] = {  # how programs and files are called, letters only
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
}
OTHERS = ("hypercube", "gather", "scatter", "alltoallv")  # nccl-tests has them, a training step does not


class Asked(NamedTuple):
    """What the user says of a log: the collective, GPUs, nodes; `per_node`: GPUs of a node of the topology named."""

    collective: MeasuredKind | None = None
    gpus: int | None = None
    nodes: int | None = None
    per_node: int | None = None


UNASKED = Asked()


class Sweep(NamedTuple):
    """Times by size of one test. `told`: what was inferred or left out; `products`: the GPUs that it lists."""

    source: str
    collective: MeasuredKind
    gpus: int
    nodes: int
    points: tuple[tuple[float, float], ...]  # bytes, seconds; by size
    told: tuple[str, ...] = ()
    tool: str = "nccl-tests"
    products: tuple[str, ...] = ()


@dataclass(slots=True)
class _Test:
    """The lines of one test as they are met."""

    rows: list[Row] = field(default_factory=list)
    torn: list[Torn] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    ranks: dict[int, Rank] = field(default_factory=dict)
    listed: bool = False  # its own list of devices; else that of the test before
    informed: tuple[int | None, int | None] = (None, None)  # ranks, nodes

    @property
    def begun(self) -> bool:
        return bool(self.rows or self.torn)


def is_nccl_log(text: str) -> bool:
    """Whether a text has a row of nccl-tests, taken or not, or the heads of its columns."""
    lines = list(nccl_rows.lines(text))
    heads = any(nccl_rows.heads(line) and "(elements)" not in line for line in lines)
    return heads or any(isinstance(nccl_rows.row_of(line), Row) for line in lines)


def read_nccl_log(text: str, source: str, asked: Asked = UNASKED) -> tuple[tuple[Sweep, ...], tuple[Problem, ...]]:
    """The sweeps of a log, and why its other tests cannot be used; one problem a test."""
    tests = [test for test in _tests(text) if test.begun]
    if not tests:
        expected = "rows of nccl-tests: size count type redop root time algbw busbw"
        return (), (Problem(source, found="no row of figures", expected=expected),)
    sweeps: list[Sweep] = []
    problems: list[Problem] = []
    for number, test in enumerate(tests, start=1):
        named = f"{source}, test {number}" if len(tests) > 1 else source
        try:
            sweeps.append(_sweep(test, named, PurePath(source).name, asked))
        except InputError as error:
            problems += error.problems
    return tuple(sweeps), tuple(problems)


def _tests(text: str) -> Iterator[_Test]:
    """Tests of a log, which may have several one after the other."""
    test = _Test()
    for line in nccl_rows.lines(text):
        if test.begun and nccl_rows.starts(line):
            yield test
            again = nccl_rows.heads(line)  # of the same program
            test = _Test(ranks=test.ranks, informed=test.informed, programs=test.programs[:1] if again else [])
        _note(test, line)
    yield test


def _note(test: _Test, line: str) -> None:
    row = nccl_rows.row_of(line)
    if isinstance(row, Row):
        test.rows.append(row)
    elif isinstance(row, Torn):
        test.torn.append(row)
    if not test.begun or not test.programs:
        test.programs += nccl_rows.programs(line)
    rank = nccl_rows.rank_of(line)
    if rank is not None:
        test.ranks = {**(test.ranks if test.listed else {}), rank.number: rank}
        test.listed = True
    ranks, nodes = nccl_rows.info(line)
    test.informed = ranks or test.informed[0], nodes or test.informed[1]


# --- one test --------------------------------------------------------------------------------------------------------


def _sweep(test: _Test, source: str, file: str, asked: Asked) -> Sweep:
    if not test.rows:
        why = {torn.why for torn in test.torn}
        found = "placeholders (XXXX) instead of figures" if "placeholder" in why else "no row whose figures agree"
        raise InputError([Problem(source, found=found, expected="rows with algbw = size / time")])
    told: list[str] = []
    listed = _listed(test, source, asked)
    collective = _collective(test, source, file, asked, told)
    gpus = _gpus(test, source, collective, listed, asked, told)
    nodes = _nodes(test, source, gpus, asked, told)
    torn = sum(1 for each in test.torn if each.why != "empty")
    if torn:
        told.append(f"{torn} row{'s' if torn > 1 else ''} left out, whose figures do not agree or are missing")
    wrong = sum(row.wrong for row in test.rows)
    if wrong:
        told.append(f"wrong results in {wrong} row{'s' if wrong > 1 else ''} (#wrong)")
    if any(row.placed == "in place" for row in test.rows):
        told.append("figures in place where there are none out of place")
    products = tuple(dict.fromkeys(rank.product for rank in test.ranks.values() if rank.product))
    return Sweep(source, collective, gpus, nodes, _points(test.rows), tuple(told), products=products)


def _points(rows: Iterable[Row]) -> tuple[tuple[float, float], ...]:
    """Times by size; of a size that was run several times the median."""
    times: defaultdict[int, list[float]] = defaultdict(list)
    for row in rows:
        times[row.size].append(row.seconds)
    return tuple((float(size), median(times[size])) for size in sorted(times))


def named_collective(text: str) -> MeasuredKind | None:
    """The collective that a name contains."""
    letters = re.sub(r"[^a-z0-9]", "", text.casefold()).replace("all2all", "alltoall")
    return next((kind for name, kind in NAMES.items() if name in letters), None)


def _collective(test: _Test, source: str, file: str, asked: Asked, told: list[str]) -> MeasuredKind:
    """As asked, else by the name of the program, else of the file, else from busbw / algbw; which must not disagree."""
    low, high = nccl_factor.factor(test.rows)
    if asked.collective:
        return _checked(asked.collective, "--collective", source, low, high)
    program = next(iter(dict.fromkeys(test.programs)), "")
    if program:
        named = named_collective(program)
        if named is None or re.sub(r"[^a-z]", "", program.casefold()) in OTHERS:
            found = f"{program}_perf"
            raise InputError([Problem(source, found=found, expected="a collective that training uses")])
        return _checked(named, f"{program}_perf", source, low, high)
    by_file = named_collective(file)
    if by_file and nccl_factor.fits(by_file, low, high):
        told.append("collective by the name of the file")
        return by_file
    inferred = _inferred(test.rows, low, high)
    if inferred is None:
        found = f"busbw / algbw of {low:.3g}, which several collectives have, and no name of one"
        raise InputError([Problem(source, found=found, expected="--collective")])
    told.append(f"collective from busbw / algbw = {(low + high) / 2:.4g}")
    return inferred


def _inferred(rows: Sequence[Row], low: float, high: float) -> MeasuredKind | None:
    if low > 1:
        return "all_reduce"
    reduces = any(row.redop not in ("", "none") for row in rows)
    return "reduce_scatter" if high < 1 and reduces else None


def _checked(kind: MeasuredKind, said: str, source: str, low: float, high: float) -> MeasuredKind:
    """The kind, where its bus factor can be what the rows show."""
    if not nccl_factor.fits(kind, low, high):
        found = f"busbw / algbw of {(low + high) / 2:.4g}"
        raise InputError([Problem(source, found=found, expected=f"that of {kind}, as {said} says")])
    return kind


def _listed(test: _Test, source: str, asked: Asked) -> int | None:
    """GPUs as asked, else by the list of devices, else by NCCL's messages; None where nothing says how many."""
    listed = asked.gpus or max(test.ranks, default=-1) + 1 or test.informed[0]
    if listed == 1:
        raise InputError([Problem(source, found="1 GPU", expected="two or more, which have something to exchange")])
    return listed


def _gpus(test: _Test, source: str, kind: str, listed: int | None, asked: Asked, told: list[str]) -> int:
    """Those that are listed, which busbw / algbw must allow, else from that alone."""
    allowed = nccl_factor.gpus_of(kind, test.rows)
    if listed:
        said = "the log lists" if asked.gpus is None else "--gpus says"
        if allowed is not None and not allowed[0] <= listed <= allowed[1]:
            found = f"{listed} GPUs, as {said}, and busbw / algbw of {nccl_factor.span(allowed)}"
            raise InputError([Problem(source, found=found, expected="one number of GPUs: --gpus")])
        return listed
    single = nccl_factor.single(allowed) if allowed else None
    if single is None:
        found = "no list of devices" + (f", and busbw / algbw of {nccl_factor.span(allowed)}" if allowed else "")
        raise InputError([Problem(source, found=found, expected="--gpus")])
    told.append(f"{single} GPUs from busbw / algbw")
    return single


def _nodes(test: _Test, source: str, gpus: int, asked: Asked, told: list[str]) -> int:
    """As asked, else by hosts or device numbers of the list, else by NCCL's messages, else as the topology has them."""
    hosts = {rank.host for rank in test.ranks.values()}
    if asked.nodes is not None and len(test.ranks) == gpus and len(hosts) != asked.nodes:
        told.append(f"{asked.nodes} nodes, as --nodes says, of {len(hosts)} hosts that are listed")
    if asked.nodes is None and len(test.ranks) == gpus:
        return len(hosts)
    if asked.nodes is None and test.informed[1]:
        return test.informed[1]
    if asked.nodes is None and hosts:
        each = max(rank.device for rank in test.ranks.values()) + 1
        nodes = max(len(hosts), -(-gpus // each))
        told.append(f"{nodes} nodes of {each} GPUs by the devices that are listed")
        return nodes
    return nodes_of(gpus, source, asked, told)


def nodes_of(gpus: int, source: str, asked: Asked, told: list[str]) -> int:
    """As asked, else as a topology has them, else eight GPUs a node."""
    if asked.nodes is not None:
        if not 1 <= asked.nodes <= gpus or gpus % asked.nodes:
            found = f"{gpus} GPUs on {asked.nodes} nodes"
            raise InputError([Problem(source, found=found, expected="as many on each node")])
        return asked.nodes
    each = asked.per_node or (USUAL_NODE if gpus % USUAL_NODE == 0 or gpus < USUAL_NODE else 0)
    if not each or (gpus > each and gpus % each):
        raise InputError([Problem(source, found=f"{gpus} GPUs and no list of hosts", expected="--nodes")])
    nodes = -(-gpus // each)
    told.append(f"{nodes} node{'s' if nodes > 1 else ''}, taking {each} GPUs a node")
    return nodes
