"""Collective times against published nccl-tests sweeps.

`ORACLES` are single published figures. With ZEROSIM_SHARED set, `measured/collectives.csv` is priced whole and errors
are printed by size and by system: the model may not be worse than the catalogue owns up to, and the table of the README
is this one. Every row is compared but for those of `LEFT_OUT`, whose reasons say nothing about how well they would fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.costs_machines import collective, seconds, switched
from tests.papers.published_collectives import (
    BANDS,
    GIB,
    LEFT_OUT,
    MIB,
    Row,
    error,
    grouped,
    published,
    ratios_of,
    table,
)
from zerosim.catalog import constants
from zerosim.step import CollectiveKind

README = Path(__file__).parents[2] / "README.md"


class Oracle(NamedTuple):
    """A published time, microseconds."""

    device: str
    nodes: int
    nics: dict[str, Any] | None
    kind: CollectiveKind
    size: int
    measured: float


ORACLES = (
    Oracle("h100_sxm", 1, None, "all_reduce", GIB, 4253),
    Oracle("h100_sxm", 1, None, "all_reduce", 64 * MIB, 326.6),
    Oracle("b200_sxm", 1, None, "all_reduce", GIB, 2600),
    Oracle("b200_sxm", 1, None, "all_gather", 64 * MIB, 139.1),
    Oracle("a100_sxm_80", 2, {"device": "efa_v1_100", "count": 4}, "all_reduce", GIB, 26_217),
    Oracle("h100_sxm", 2, {"device": "efa_v2_100", "count": 32}, "all_reduce", GIB, 4608),
    Oracle("b200_sxm", 2, {"device": "infiniband_ndr", "count": 8}, "reduce_scatter", 256 * MIB, 1013),
    Oracle("b200_sxm", 4, {"device": "efa_v4_400", "count": 8}, "all_reduce", GIB, 5747),
)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: f"{o.device}-{o.nodes}-{o.kind}-{o.size // MIB}MiB")
def test_published_times(oracle: Oracle) -> None:
    found = 1e6 * seconds(switched(oracle.device, 8, oracle.nodes, oracle.nics), collective(oracle.kind, oracle.size))
    assert found == pytest.approx(oracle.measured, rel=0.15)


@pytest.fixture(scope="module")
def sweeps() -> tuple[list[Row], list[Row]]:
    found = published()
    if found is None:
        pytest.skip("ZEROSIM_SHARED is not set: the published sweeps are not at hand")
    return found


def test_published_sweeps(sweeps: tuple[list[Row], list[Row]]) -> None:
    print("\n" + table(*sweeps))
    print("left out: " + "; ".join(f"{word}: {why}" for word, why in LEFT_OUT.items()))
    compared, _ = sweeps
    assert len(compared) > 650
    levels = constants("collectives.relative_error")
    found = {band: error(ratios_of(some)) for band, some in grouped(compared, lambda row: row.band).items()}
    assert set(found) == set(BANDS.values())
    assert {band: each for band, each in found.items() if each > levels[band]} == {}


def test_the_table_of_the_readme_is_this_one(sweeps: tuple[list[Row], list[Row]]) -> None:
    assert table(*sweeps) in README.read_text(encoding="utf-8")
