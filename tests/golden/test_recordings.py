"""The collectives of a step are those that torch DDP and DeepSpeed stages 0 to 3 issued, one by one.

With ZEROSIM_SHARED naming the collected recordings; `-s` prints what was compared. Left out: hpZ and MiCS, which are
not modelled; an older DeepSpeed, which differs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.golden.recordings import Issued, issued, read_recording
from zerosim.strategies import build

SHARED = os.environ.get("ZEROSIM_SHARED")
RECORDED = re.compile(r"(ddp|ds[0123])_(?!.*(hpz|mics|__deepspeed)).*")
PATHS = sorted(Path(SHARED, "golden", "recordings").glob("*.json")) if SHARED else []
NAMED = {path.stem: path for path in PATHS if RECORDED.fullmatch(path.stem)}
MATCH = "match"

pytestmark = pytest.mark.skipif(not SHARED, reason="ZEROSIM_SHARED is not set: no recordings of real training steps")


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows = [f"\n{'recording':36} collectives"]
    yield rows
    print("\n".join(rows))


def verdict(recorded: tuple[Issued, ...], simulated: tuple[Issued, ...]) -> str:
    """`match`, or the first place where they differ."""
    for place, (theirs, ours) in enumerate(zip_longest(recorded, simulated)):
        if theirs != ours:
            return f"{place}: recorded {theirs}, simulated {ours}"
    return MATCH


@pytest.mark.parametrize("name", NAMED)
def test_collectives_are_those_recorded(name: str, table: list[str]) -> None:
    recording = read_recording(NAMED[name])
    step = build(recording.strategy, recording.model, recording.training, recording.ranks)[0].check()
    found = verdict(recording.collectives, issued(step))
    table.append(f"{name:36} {len(recording.collectives):11}  {found}")
    assert found == MATCH


def test_every_strategy_was_recorded() -> None:
    assert len(NAMED) >= 88
    assert {name.split("_")[0] for name in NAMED} == {"ddp", "ds0", "ds1", "ds2", "ds3"}
