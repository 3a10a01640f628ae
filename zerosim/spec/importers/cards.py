"""Which GPU a machine has, where its text does not say it in so many words.

In order: as asked for; the product's name or PCI id; the machine's name, in the text or in the name of the file; GPU
memory as a NUMA node; compute capability; the number of NVLinks; the speed of the slots; else a plain one. Rule: each
answer says why; what is not certain begins with "assumed".
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import NamedTuple

from zerosim import catalog
from zerosim.catalog import recognise
from zerosim.catalog.recognise import Platform, Product
from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.importers.nvlinks import MOST_LINKS, alike, links_of
from zerosim.spec.importers.seen import GENERATIONS, Seen, SeenGpu

PLAIN_GPU = "a100_pcie_80"  # as everywhere in zerosim, what is not known of a GPU is as on an A100
BY_SLOT = {8.0: "v100_sxm2_32", 16.0: "a100_sxm_80", 32.0: "h100_sxm", 64.0: "b300_sxm"}  # of servers, by GT/s
ASK = "--gpu DEVICE says it"


class Cards(NamedTuple):
    """The GPU of each place, and why the most usual one of them was chosen."""

    each: tuple[Product, ...]
    note: str

    @property
    def usual(self) -> Product:
        often = Counter(product.name or product.gpu for product in self.each)
        return max(self.each, key=lambda product: often[product.name or product.gpu])


class _Evidence(NamedTuple):
    """What may tell the GPU."""

    seen: Seen
    source: str
    links: int
    one_peer: bool


def cards(seen: Seen, wished: str | None, source: str) -> Cards:
    """The GPU of each place: as asked for, as named, by PCI id, by the machine's name, by what it shows."""
    if wished is not None:
        return Cards((_known(wished),) * len(seen.gpus), f"as --gpu says: {wished}")
    named = [_named(gpu) for gpu in seen.gpus]
    first = next((product for product in named if product), None)
    if first is not None:
        vague = next((f"; {each.gpu} and not {each.vague} is assumed" for each in named if each and each.vague), "")
        missing = "; assumed of those GPUs that the text does not name" if None in named else ""
        return Cards(tuple(product or first for product in named), f"as the text says{vague}{missing}")
    links, one_peer = links_of(seen)
    product, why = _by_surroundings(_Evidence(seen, source, links, one_peer))
    return Cards((product,) * len(seen.gpus), f"assumed: {why}")


def _known(wished: str) -> Product:
    """A GPU of the catalogue, or one for which another stands with figures of its own."""
    if wished in catalog.gpus():
        return Product(wished)
    product = recognise.product(wished)
    if product and product.name.casefold() == wished.casefold():
        return product
    close = product.gpu if product else nearest(wished.casefold(), list(catalog.gpus()))
    expected = "a GPU of the catalogue (zerosim list devices)"
    raise InputError([Problem("--gpu", "", f'"{wished}"', expected, f'"{close}"' if close else "")])


def _named(gpu: SeenGpu) -> Product | None:
    return recognise.product(gpu.product) or recognise.product_by_pci(gpu.vendor, gpu.device)


def _by_surroundings(evidence: _Evidence) -> tuple[Product, str]:
    seen = evidence.seen
    by_name = _by_words(seen.words, "the text", evidence) or _by_words(
        PurePath(evidence.source).stem, "the name of the file", evidence
    )
    if by_name:
        return by_name
    if seen.c2c:
        gpu = "gb200" if evidence.links >= MOST_LINKS and alike(seen) == evidence.links else "gh200"
        return Product(gpu), f"{gpu}, as its memory is a NUMA node of the host; {ASK}"
    capability = max((gpu.capability for gpu in seen.gpus), default=0)
    has_nvlink = evidence.links > 0 or seen.nvlink_untold
    display = any(gpu.display for gpu in seen.gpus)
    by_capability = recognise.by_capability(capability, has_nvlink, display)
    if by_capability:
        return Product(by_capability), f"{by_capability}, for compute capability {capability / 10:.1f}; {ASK}"
    shared = recognise.by_nvlinks(evidence.links, evidence.one_peer) if evidence.links else None
    if shared:
        name, links = shared.product.name or shared.product.gpu, f"NV{evidence.links}"
        others = f", though {' or '.join(shared.others)} may show that too" if shared.others else ""
        return shared.product, f"{name}, as {links} is what a GPU shows{others}; {ASK}"
    return _by_slot(seen, display)


def _by_words(words: str, where: str, evidence: _Evidence) -> tuple[Product, str] | None:
    """The one GPU, or the machine, that the words name, unless it has fewer NVLinks than there are."""
    platform = recognise.platform(words)
    named = recognise.products(words)
    found = named[0] if len(named) == 1 and not named[0].vague else None
    if found is None and platform is not None:
        found = Product(platform.gpu)
        why = f'{platform.gpu}, as {where} names the machine "{platform.words}"; {ASK}'
    elif len(named) == 1:
        found = named[0]
        why = f"{found.name or found.gpu}, as {where} says; {ASK}"
    if found is None or evidence.links > catalog.gpu_ports(found.gpu).nvlink_links > 0:
        return None
    return found, why


def _by_slot(seen: Seen, display: bool) -> tuple[Product, str]:
    speed = max((gpu.slot.transfers for gpu in seen.gpus), default=0.0)
    if seen.nvlink_untold and speed in BY_SLOT and not display:
        return Product(BY_SLOT[speed]), f"{BY_SLOT[speed]}, for its PCIe {GENERATIONS[speed]}; {ASK}"
    return Product(PLAIN_GPU), f"{PLAIN_GPU}, as nothing tells the GPU; {ASK}"


def platform_of(seen: Seen, source: str) -> Platform | None:
    """The machine that the text, or the name of its file, names."""
    return recognise.platform(seen.words) or recognise.platform(PurePath(source).stem)
