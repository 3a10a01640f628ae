"""What is advised to a run of FSDP: bytes by hand, for 1,000 elements on 4 ranks, two of a node."""

from __future__ import annotations

import numpy as np
import pytest

from zerosim.views.choices import Fsdp, Surroundings
from zerosim.views.fsdp import fewer_gathers, fewer_reductions, on_shards
from zerosim.views.memory import Curve, TierMemory

RUN = Fsdp(version=1, shards=4, kept=100.0)
NONE = Curve(np.zeros(1), np.zeros(1))


def advice(fsdp: Fsdp, accumulation: int = 1, dram: float = 0.0, **parts: float) -> dict[str, float]:
    """Bytes that each change saves, of a GPU that holds these."""
    held = {"parameters": 0.0, "gradients": 0.0, "optimizer": 0.0} | parts
    gpu = TierMemory("gpu", 1e4, 0.0, NONE, NONE, None, sum(held.values()), 0.0, None, "all", held, ())
    around = Surroundings(1000, 4, 2, {"dram": dram})
    return {change.what: change.saves for change in on_shards(gpu, around, fsdp, accumulation)}


@pytest.mark.parametrize(("stored", "shard"), [(4, 1000.0), (2, 500.0)])
def test_states_on_shards_have_the_dtype_of_the_parameters(stored: int, shard: float) -> None:
    """A shard of 250 elements, its gradient, two moments; on the CPU twice that, for two ranks."""
    for dram, offload in ((8 * shard, {"cpu_offload true": 4 * shard}), (8 * shard - 1, {})):
        found = advice(RUN._replace(stored=stored), dram=dram, parameters=shard, gradients=shard, optimizer=2 * shard)
        assert found == offload | {"twice as many GPUs": 2 * shard}


def test_what_is_gathered_beyond_two_units_could_be_freed() -> None:
    """2,000 B are gathered, the root and two blocks take 100 x 2 B; the shard is 1,000 or 500 B."""
    kept = RUN._replace(frees=False)
    assert advice(kept, parameters=3000.0)["sharding_strategy FULL_SHARD"] == 1800
    assert advice(kept._replace(stored=2), parameters=2500.0)["sharding_strategy FULL_SHARD"] == 1800
    assert advice(kept._replace(version=2), parameters=3000.0)["reshard_after_forward true"] == 1800
    assert advice(RUN._replace(wrapped=False), parameters=3000.0)["auto_wrap_policy TRANSFORMER_BASED_WRAP"] == 1800
    assert advice(RUN._replace(limited=False), parameters=3000.0)["limit_all_gathers true"] == 1800
    assert "sharding_strategy FULL_SHARD" not in advice(RUN, parameters=3000.0)


def test_gradients_that_are_whole_could_be_reduced_at_once() -> None:
    run = RUN._replace(no_sync=True)
    assert advice(run, accumulation=2, gradients=4000.0)["no_sync false"] == 3000
    assert "no_sync false" not in advice(run, accumulation=1, gradients=4000.0)


def test_replicas_could_be_shards() -> None:
    assert advice(RUN._replace(shards=2), parameters=2000.0, optimizer=4000.0)["sharding_strategy FULL_SHARD"] == 3000
    alone = advice(RUN._replace(sharded=False), parameters=4000.0, optimizer=8000.0)
    assert alone == {"sharding_strategy FULL_SHARD": 9000}


def test_gathers_are_hidden_spared_or_kept_in_the_node() -> None:
    def words(fsdp: Fsdp) -> list[str]:
        return [text.split()[0] for text in fewer_gathers(fsdp)]

    assert words(RUN) == ["SHARD_GRAD_OP"]
    assert words(RUN._replace(prefetches=False)) == ["backward_prefetch", "SHARD_GRAD_OP"]
    assert words(RUN._replace(version=2, across=True)) == ["reshard_after_forward", "a"]
    assert words(RUN._replace(wrapped=False)) == ["auto_wrap_policy"]
    assert words(RUN._replace(frees=False)) == []


def test_reductions_are_spared_once_a_step() -> None:
    (more,), (skip,), (both,) = (
        list(fewer_reductions(run, n)) for run, n in ((RUN._replace(no_sync=True), 2), (RUN, 2), (RUN, 1))
    )
    assert more == "more gradient_accumulation_steps: gradients are reduced once a step"
    assert skip.startswith("no_sync reduces")
    assert both.startswith("more gradient_accumulation_steps with no_sync")
