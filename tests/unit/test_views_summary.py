"""The summary is the contract of `run --json`: its keys, its sums, its rates."""

import json

import pytest

from tests.timelines import MB, many, skewed, tiny
from zerosim.errors import Finding
from zerosim.views import Facts, summarize

KEYS = [
    *("scenario", "fits", "world_size", "nodes", "seed", "step_seconds"),
    *("tokens_per_second", "tokens_per_second_per_gpu", "samples_per_second", "model_tflops_per_gpu", "mfu"),
    *("phases", "breakdown", "communication", "stalls", "memory", "collectives", "resources", "findings"),
]
MEMORY_KEYS = {
    *("capacity_bytes", "peak_bytes", "parameters_bytes", "gradients_bytes", "optimizer_bytes"),
    *("activations_bytes", "buffers_bytes", "overhead_bytes", "peak_at"),
}
NOTE = Finding("unused-key", "note", "a key changes nothing")
FACTS = Facts("tiny", 1, 2, tokens=270.0, samples=54.0, model_flops=1350.0, peak_flops=100.0, findings=(NOTE,), seed=7)


def test_json_has_the_agreed_keys() -> None:
    found = summarize(tiny(), FACTS).as_json()
    assert list(found)[: len(KEYS)] == KEYS
    assert set(found["memory"]["gpu"]) >= MEMORY_KEYS
    assert set(found["phases"]) == {"forward", "backward", "optimizer"}
    assert set(found["breakdown"]) == {
        "compute",
        "exposed_communication",
        "exposed_transfer",
        "host_compute",
        "idle",
    }
    assert set(found["communication"]) == {"total_seconds", "exposed_seconds", "overlap"}
    assert {"cause", "phase", "resource", "seconds"} <= set(found["stalls"][0])
    assert {"bytes_or_flop", "busy_seconds", "utilization"} <= set(found["resources"]["nic"])
    assert found["collectives"]["all_gather"] == {"count": 2, "bytes": 80}
    assert found["memory"]["gpu"]["peak_at"]["op"] == "backward 1"


def test_json_is_plain() -> None:
    found = summarize(tiny(), FACTS).as_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_rates_of_tiny() -> None:
    summary = summarize(tiny(), FACTS)  # 27 s
    assert summary.step_seconds == 27
    assert summary.tokens_per_second == pytest.approx(10)
    assert summary.tokens_per_second_per_gpu == pytest.approx(5)
    assert summary.samples_per_second == pytest.approx(2)
    assert summary.model_tflops_per_gpu == pytest.approx(50e-12)
    assert summary.mfu == pytest.approx(0.5)


def test_findings_of_the_scenario_come_first() -> None:
    summary = summarize(tiny(capacity=400 * MB), FACTS)
    assert summary.findings[0] == NOTE
    assert not summary.fits
    assert [f.code for f in summary.findings] == ["unused-key", "out-of-memory"]


def test_communication_bound_names_the_resource() -> None:
    summary = summarize(many(400, exposed=True), FACTS)  # 302 of 1202 s exposed: 25 %
    assert not any(f.code == "communication-bound" for f in summary.findings)
    slow_network = summary_of_slow_network()
    assert "what limits it is NIC 20 B/s (busy 38.5 % of the step)" in slow_network.message
    assert slow_network.remedy.startswith("More bandwidth there")


def summary_of_slow_network() -> Finding:
    timeline = many(8, exposed=True)  # two layers: 8 of 26 s exposed
    summary = summarize(timeline, FACTS)
    (found,) = [f for f in summary.findings if f.code == "communication-bound"]
    return found


def test_classes_tell_who_waits() -> None:
    fast, slow = summarize(skewed(), FACTS).classes
    assert (fast.waited_seconds, slow.waited_seconds) == (12 + 9, 0)  # from 14 to 26, from 29 to 38
    assert fast.end_seconds == slow.end_seconds == 45
