"""How NVLink joins the GPUs that were seen: through NVSwitches, as a mesh, or in single pairs; and at what rate.

Rule: numbers of links are those of the text; the rate of a link is the catalogue's, and the note says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from zerosim import catalog
from zerosim.catalog import recognise
from zerosim.catalog.recognise import Product
from zerosim.spec.importers.seen import Seen
from zerosim.units import show_rate

PLAIN_LINK = 25e9  # bytes/s of an NVLink of generations 2 to 4
MOST_LINKS = 18  # of a GPU, up to now


class Nvlink(NamedTuple):
    """`links` of a GPU, all together, at `rate` bytes/s each; `own` are those of each GPU, where they are not alike."""

    kind: Literal["switch", "mesh", "pairs", "none"]
    links: int = 0
    rate: float = 0.0
    pairs: tuple[tuple[int, int, int], ...] = ()
    note: str = ""
    own: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()


def links_of(seen: Seen) -> tuple[int, bool]:
    """The NVLinks of a GPU, all together, and whether they lead to one peer."""
    to_switch = _to_switch(seen, MOST_LINKS)
    if any(to_switch):
        return max(to_switch), False
    peers = Counter(end for a, b, _ in seen.pairs for end in (a, b))
    return _most(seen.pairs), max(peers.values(), default=0) == 1


def alike(seen: Seen) -> int:
    """The number of links of each pair, if all pairs have as many."""
    numbers = {links for *_, links in seen.pairs}
    whole = len(seen.pairs) == len(seen.gpus) * (len(seen.gpus) - 1) // 2
    return numbers.pop() if whole and len(numbers) == 1 else 0


def nvlink(seen: Seen, product: Product) -> Nvlink:
    """How NVLink joins the GPUs: through switches, in a mesh, or in single pairs."""
    ports = catalog.gpu_ports(product.gpu)
    own = ports.nvlink_links
    rate = ports.nvlink_bandwidth / own if own else PLAIN_LINK
    grade = "R" if own == 0 else catalog.gpu(product.gpu).grade
    whose = product.gpu if own else "those of other GPUs"
    each = f"assumed: {show_rate(rate)} a link, as of {whose} ({grade})"
    to_switch = _to_switch(seen, (own or MOST_LINKS) if alike(seen) else MOST_LINKS)
    if all(to_switch) and to_switch:
        return _switched(seen, to_switch, rate, each)
    if any(to_switch):
        return _without_some(to_switch, rate, each)
    if not seen.pairs:
        return _untold(seen, own, rate, ports.nvlink_bridge, product)
    count, same = len(seen.gpus), alike(seen)
    if same and count > 2:
        return Nvlink("mesh", same * (count - 1), rate, (), f"{_number(same)} between any two GPUs; {each}")
    return _paired(seen, own, rate, each)


def _to_switch(seen: Seen, most: int) -> tuple[int, ...]:
    """The links of each GPU to NVSwitches: as the text says, or as all pairs show them where one GPU would need more
    than `most` otherwise; a GPU that is joined with none has none. Nothing where they do not lead to switches."""
    if seen.switch_links:
        return seen.switch_links
    shown = [0] * len(seen.gpus)
    for a, b, links in seen.pairs:
        shown[a], shown[b] = max(shown[a], links), max(shown[b], links)
    joined = sum(links > 0 for links in shown)
    whole = joined > 2 and len(seen.pairs) == joined * (joined - 1) // 2
    whole = whole and all(links == min(shown[a], shown[b]) for a, b, links in seen.pairs)
    return tuple(shown) if whole and _most(seen.pairs) > most else ()


def _most(pairs: Sequence[tuple[int, int, int]]) -> int:
    """The links of the GPU that has most."""
    ends = Counter[int]()
    for a, b, links in pairs:
        ends.update({a: links, b: links})
    return max(ends.values(), default=0)


def _switched(seen: Seen, own: tuple[int, ...], rate: float, each: str) -> Nvlink:
    links = max(own)
    note = f"{_number(links)} of each GPU to all others: NVSwitch" if seen.pairs else f"{_number(links)} to NVSwitches"
    fewer = [f"GPU {gpu} has {_number(has)}" for gpu, has in enumerate(own) if has < links]
    remarks = (f"{', '.join(fewer)} to NVSwitches, where others have {links}",) if fewer else ()
    return Nvlink("switch", links, rate, (), f"{note}; {each}", own if fewer else (), remarks)


def _without_some(own: tuple[int, ...], rate: float, each: str) -> Nvlink:
    """Some GPUs have no NVLink: the others, behind NVSwitches, as a mesh of pairs."""
    joined = [gpu for gpu, links in enumerate(own) if links]
    share = max(1, max(own) // (len(joined) - 1)) if len(joined) > 1 else 0
    pairs = tuple((a, b, share) for a, b in combinations(joined, 2))
    lost = ", ".join(str(gpu) for gpu, links in enumerate(own) if not links)
    remark = f"no NVLink of GPU {lost}, where others have {max(own)} to NVSwitches: these stand here as a mesh of pairs"
    if not pairs:
        return Nvlink("none", remarks=(remark,))
    return Nvlink(
        "pairs", share * (len(joined) - 1), rate, pairs, f"{_number(max(own))} of a GPU; {each}", (), (remark,)
    )


def _paired(seen: Seen, own: int, rate: float, each: str) -> Nvlink:
    pairs = seen.pairs
    remarks: tuple[str, ...] = ()
    most = _most(pairs)
    if most > (own or MOST_LINKS) and islands(seen):
        pairs = _shared(pairs)
        remarks = ("groups of GPUs behind NVSwitches of their own stand here as meshes of pairs",)
        most = _most(pairs)
    held = f"; {most} links at one GPU are more than the {own} that it has" if own and most > own else ""
    note = f"{_number(most)} at most of a GPU; {each}{held}"
    return Nvlink("pairs", min(most, own or MOST_LINKS), rate, pairs, note, (), remarks)


def _shared(pairs: Sequence[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Pairs behind switches with the links of a GPU divided among its peers."""
    peers = Counter(end for a, b, _ in pairs for end in (a, b))
    return tuple((a, b, max(1, links // peers[a])) for a, b, links in pairs)


def _number(links: int) -> str:
    return f"{links} link{'s' if links != 1 else ''}"


def _untold(seen: Seen, own: int, rate: float, bridge: bool, product: Product) -> Nvlink:
    """A text that has no place for NVLink: as in servers of such GPUs, where they have NVLink on the board."""
    if not seen.nvlink_untold or not own or bridge or len(seen.gpus) < 2:
        return Nvlink("none")
    architecture, count = catalog.gpu(product.gpu).architecture, len(seen.gpus)
    why = f"the text has no NVLink; {own} links of {show_rate(rate)}, as {product.gpu} has"
    if architecture == "cdna" or (architecture == "volta" and count < 8):
        return Nvlink("mesh", own, rate, (), f"assumed: {why}, between any two")
    if architecture == "volta" and count == 8:
        return Nvlink("pairs", own, rate, recognise.hybrid_cube_mesh(), f"assumed: {why}, as in a DGX-1 (R)")
    return Nvlink("switch", own, rate, (), f"assumed: {why}, to NVSwitches")


def islands(seen: Seen) -> bool:
    """Whether NVLink joins groups of more than two GPUs wholly, and the groups not with each other."""
    joined = {frozenset((a, b)) for a, b, _ in seen.pairs}
    groups = {
        frozenset(g for g in range(len(seen.gpus)) if g == gpu or {g, gpu} in joined) for gpu in range(len(seen.gpus))
    }
    whole = all({a, b} in joined for group in groups for a, b in combinations(group, 2))
    return len(groups) > 1 and whole and any(len(group) > 2 for group in groups)
