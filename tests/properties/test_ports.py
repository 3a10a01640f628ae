"""What holds of network ports of any rate: a faster one of a kind never gives less, and none more than its rate."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zerosim import catalog

GBPS = 1e9 / 8
kinds = st.sampled_from(catalog.nic_kinds())
rates = st.integers(1, 800) | st.floats(1, 800)  # Gb/s


def achieved(kind: str, gbps: float) -> float:
    return gbps * catalog.nic_for(kind, gbps * GBPS).figures.efficiency


@given(kinds, rates, rates)
def test_a_faster_port_gives_no_less(kind: str, one: float, other: float) -> None:
    slow, fast = sorted((one, other))
    assert achieved(kind, slow) <= achieved(kind, fast) * (1 + 1e-12)
    assert achieved(kind, fast) <= fast


@given(kinds, rates)
def test_a_port_waits_as_long_as_those_of_the_catalogue(kind: str, gbps: float) -> None:
    known = [entry.figures.latency for entry in catalog.nics().values() if entry.kind == kind]
    assert min(known) * (1 - 1e-12) <= catalog.nic_for(kind, gbps * GBPS).figures.latency <= max(known) * (1 + 1e-12)


def test_every_step_of_a_sweep_gives_no_less() -> None:
    for kind in catalog.nic_kinds():
        sweep = [achieved(kind, gbps) for gbps in range(1, 801)]
        assert all(slow <= fast * (1 + 1e-12) for slow, fast in pairwise(sweep)), kind
