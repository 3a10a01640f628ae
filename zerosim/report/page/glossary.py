"""The words of a page, each with its definition once at the page's end, and links to them where they are used.

Rule: a link, not a tooltip, so that keyboard, touch and paper reach the definition too. Lanes are told as far as a
timeline of the page has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from zerosim.report.lanes import TITLES
from zerosim.report.page.markup import Markup, element, joined
from zerosim.report.page.section import Section
from zerosim.report.page.shown import Shown
from zerosim.views.summary import Summary

WORDS: Mapping[str, str] = {
    "compute": "kernels of the GPU (matrix products, attention, memory-bound kernels), on whatever stream.",
    "exposed": "what ran while nothing was computed. Exposed communication: a collective, and no kernel beside it. "
    "What ran beside compute is hidden, and costs no time of its own.",
    "idle": "nothing ran on the GPU: it waited for the host, or for other ranks.",
    "share": "of the step: these seconds over all of it. Compute, exposed communication, exposed transfer, host "
    "compute and idle are parts that add up to 100 %.",
    "limited by": "the resource that set the pace for the longest part of an op. How much of it was used is what was "
    "moved, over what it can move in that time: less than 100 % where latency, or another resource for a while, cost "
    "time too. Latency: the steps of a collective or copy took longer than its bytes.",
    "busy": "of a link or unit: the seconds that its work alone would take at its full rate, over the step. All that "
    "share it count together.",
    "allocated": "bytes that the program holds, as torch.cuda.memory_allocated counts them: from when the host issues "
    "what needs them until it frees them.",
    "reserved": "bytes that PyTorch's allocator took from the GPU to hand out (torch.cuda.memory_reserved): allocated, "
    "and cached blocks.",
    "busy memory": "what cannot be reused yet: ops that have not ended use it, while the host, which runs ahead, may "
    "have freed it already. Where it is far ahead, that is more than what is allocated.",
    "peak": "the most that was allocated at once, with the overhead of context and libraries: what has to fit.",
    "MFU": "FLOP that the model needs (nothing recomputed), over what the GPU could do in the step at its peak.",
}
PLAYED = frozenset({"busy", "busy memory", "peak", "MFU"})  # which no trace tells
ROWS: Mapping[str, str] = {  # of the timeline, above and below the streams
    "phases": "forward, backward, optimizer.",
    "layers": "which layer is computed.",
    "host": "the thread that issues ops to the GPU; an open box: it waits.",
}
LANES: Mapping[str, str] = {
    "compute": "the stream of the model's kernels.",
    "gather": "the stream that brings parameters together: what it does besides its collectives.",
    "reduce": "the stream that reduces gradients: copies into buckets, divisions, copies to the host.",
    "h2d": "copies from the host to the GPU.",
    "d2h": "copies from the GPU to the host.",
    "gather.copy_in": "copies into the buffer of an all-gather (FSDP2).",
    "unshard": "what is done with gathered parameters (FSDP).",
    "pre-unshard": "what is done before parameters are gathered, such as copies from the host (FSDP).",
    "post-backward": "what is done with gradients before and after they are reduced (FSDP).",
    "all-reduce": "what is done with gradients around their sum over the replicas (FSDP, hybrid).",
    "NVMe reads": "reads of the drives, in the order in which they were asked for.",
    "NVMe writes": "writes to the drives, in that order.",
    "CPU": "what the CPU computes, such as the optimizer of offloaded states.",
}
EXPOSED = "below the lanes: when nothing was computed, and because of what; pointing at it tells which ops ran then."
GROUP = (
    "collectives of the group {group}{size}, one at a time in the order of their issue, as on a communicator of NCCL."
)
USED: Mapping[str, tuple[str, ...]] = {  # which words a section needs
    "headline": ("exposed", "MFU"),
    "side-by-side": ("exposed", "MFU", "allocated"),
    "time": ("compute", "exposed", "idle", "share"),
    "stalls": ("limited by", "busy", "share"),
    "memory": ("peak", "allocated", "reserved", "busy memory"),
    "resources": ("busy",),
    "timeline": ("exposed", "limited by"),
}


def known(answers: Sequence[Shown]) -> tuple[str, ...]:
    """The words that pages of such answers need: of measured steps alone not all."""
    played = any(isinstance(each.summary, Summary) for each in answers)
    return tuple(word for word in WORDS if played or word not in PLAYED)


def explained(part: Section, said: Sequence[str]) -> Section:
    """A section with links to its words, as far as they are said."""
    links = [element("a", word, href=f"#{_anchor(word)}") for word in USED.get(part.name, ()) if word in said]
    links += [element("a", "what the lanes are", href="#words-lanes")] if part.name == "timeline" else []
    if not (links and part.body):
        return part
    told = joined([part for link in links for part in (", ", link)][1:])
    return part._replace(body=joined([part.body, element("p", "Words: ", told, ".", class_="words-used")]))


def words(answers: Sequence[Shown]) -> Section:
    """All of them, and the lanes of these timelines."""
    said = (part for word in known(answers) for part in _entry(word, WORDS[word], _anchor(word)))
    lanes = (part for name, text in _lanes(answers) for part in _entry(name, text))
    return Section("words", "Words", joined([
        element("dl", *said, class_="glossary"),
        element("h3", "Lanes of the timeline", id="words-lanes"),
        element("dl", *lanes, class_="glossary"),
    ]))  # fmt: skip


def _anchor(word: str) -> str:
    return f"word-{word.replace(' ', '-').lower()}"


def _entry(word: str, text: str, name: str | None = None) -> Iterator[Markup]:
    yield element("dt", word, id=name)
    yield element("dd", text)


def _lanes(answers: Sequence[Shown]) -> Iterator[tuple[str, str]]:
    """From top to bottom; a stream that a profiler numbered has no more to tell."""
    sizes = {f"nccl.{name}": group.size for each in answers for step in each.timeline.steps
             for name, group in step.groups.items()}  # fmt: skip
    streams = dict.fromkeys(op.stream for each in answers for step in each.timeline.steps for op in step.ops if op.work)
    yield from ROWS.items()
    for name in (TITLES.get(stream, stream) for stream in streams):
        kind, _, group = name.partition(".")
        if name in LANES:
            yield name, LANES[name]
        elif kind == "nccl" and group:
            size = f" of {sizes[name]} ranks" if name in sizes else ""
            yield name, GROUP.format(group=group, size=size)
    yield "exposed", EXPOSED
