"""What other listings of nvidia-smi in the same text as a matrix tell of its GPUs: names, and which are parts of one.

Rule: lines are found wherever they stand; what a name means is for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_LISTED = (
    re.compile(r"^\W*GPU\s+(\d{1,6})\s*:\s*(.+?)\s*(?:\(UUID|$)", re.MULTILINE),  # nvidia-smi -L
    re.compile(r"^\s*(\d{1,6})\s*,\s*((?:NVIDIA|Tesla|GeForce|Quadro|TITAN)[^,\n]*)", re.MULTILINE),  # --query-gpu
    re.compile(r"^\s*(\d{1,6})\s+((?:NVIDIA|Tesla|GeForce|Quadro|TITAN)\b.*?)(?:\s{2,}|\s+(?:On|Off)\b)", re.MULTILINE),
)
_VGPU = re.compile(r"-\d+(?:-\d+)?[ABCQ]$")  # A100D-40C, A10-24Q, H100XM-80C
_MIG = re.compile(r"\bMIG \d+g\.\d+gb")


def products_of(rest: str) -> dict[int, str]:
    """The product names that other listings of nvidia-smi in the same text give, by GPU."""
    found: dict[int, str] = {}
    for listing in _LISTED:
        for hit in listing.finditer(rest):
            found.setdefault(int(hit[1]), hit[2].strip())
    return found


def parts(products: Mapping[int, str], rest: str) -> Iterator[str]:
    """GPUs of which the text shows a part."""
    slices = [f"{name} (GPU {gpu})" for gpu, name in products.items() if _VGPU.search(name)]
    if slices:
        yield f"vGPU of a whole GPU: {', '.join(slices)}; taken as the whole"
    if _MIG.search(rest):
        yield "GPUs divided by MIG are taken as whole ones; their parts have no NVLink and no peers"
