"""What a step and a tier are made of, in the words, letters and colours of all reports in text.

Rule: letters differ within a bar, so that colour only repeats them; each name is written once, here or, where pictures
have it too, in `palette`.
"""

from __future__ import annotations

from zerosim.report.bars import Part
from zerosim.report.palette import HELD, SPENT
from zerosim.views.recorded import Answer
from zerosim.views.summary import TierUse

CAUSES = {  # the causes of `run --json` that are not collectives
    "wait_for_rank": "waiting for a slower rank",
    "wait_for_stage": "waiting for another stage",
    "host": "host not ready",
    "launch": "launched, not begun",
    "transfer": "copies",
    "host_compute": "CPU compute",
    "idle": "nothing to run",
}
OWN_CAUSES = frozenset(
    {"host", "launch", "idle", "wait_for_rank", "wait_for_stage"}
)  # no resource of the supply is behind these
TIME_LETTERS = {
    "compute": ("C", "blue"),
    "exposed_communication": ("X", "orange"),
    "exposed_transfer": ("T", "purple"),
    "host_compute": ("H", "green"),
    "idle": (".", "grey"),
}
MEMORY_LETTERS = {
    "parameters": ("P", "blue"),
    "gradients": ("G", "green"),
    "optimizer": ("O", "orange"),
    "activations": ("A", "cyan"),
    "buffers": ("B", "purple"),
    "overhead": ("x", "grey"),
}
SHARERS = {  # the losers and winners of `run --json` that are not collectives
    "copy_to_gpu": "copies to the GPU",
    "copy_from_gpu": "copies from the GPU",
    "copy": "copies",
    "nvme_read": "NVMe reads",
    "nvme_write": "NVMe writes",
    "cpu_optimizer": "the CPU optimizer",
    "cpu_cast": "casts on the CPU",
    "cpu_stream": "sums on the CPU",
    "matmul": "matrix products",
    "memory_bound": "memory-bound kernels",
}
OUTSIDE_THE_GPU = frozenset(word for word in SHARERS if word.startswith(("copy", "nvme", "cpu")))


def sharer_name(party: str) -> str:
    """A loser or winner as people write it."""
    return SHARERS.get(party, party.replace("_", "-"))


def cause_name(cause: str) -> str:
    """A cause as people write it: `all_gather` is "all-gather"."""
    return CAUSES.get(cause, cause.replace("_", "-"))


def time_parts(summary: Answer) -> list[Part]:
    """Where the step went, in the order of the bar."""
    seconds, letters = summary.breakdown, TIME_LETTERS.items()
    return [Part(letter, SPENT[name].word, getattr(seconds, name), colour) for name, (letter, colour) in letters]


def memory_parts(tier: TierUse) -> list[Part]:
    """What is held at the peak, in the order of the bar."""
    letters = MEMORY_LETTERS.items()
    return [Part(letter, HELD[name].word, getattr(tier, f"{name}_bytes"), colour) for name, (letter, colour) in letters]
