"""The summary is the contract of `run --json`: its keys, its sums, its rates."""

import json
from dataclasses import replace

import pytest

from tests.engine_programs import Program, supply, takes
from tests.timelines import MB, host_optimizer, many, offloaded, skewed, tiny
from zerosim.errors import Finding
from zerosim.step import HostCompute, Transfer
from zerosim.timeline import Timeline
from zerosim.views import Choices, Facts, summarize

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
CROWDED = Finding(
    "cpu-oversubscribed", "warning", "Threads share cores. The CPU's work takes 2 s instead of 1 s.", "Bind them."
)
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


def test_the_weightiest_finding_comes_first() -> None:
    summary = summarize(tiny(capacity=400 * MB), FACTS)
    assert summary.findings[-1] == NOTE
    assert not summary.fits
    assert [f.code for f in summary.findings] == ["out-of-memory", "unused-key"]
    warning = Finding("drive-cache", "warning", "Caches are small.")
    told = summarize(offloaded(), replace(FACTS, findings=(NOTE, warning, CROWDED))).findings
    assert [f.code for f in told] == ["transfer-bound", "cpu-oversubscribed", "drive-cache", "unused-key"]  # 11 s, 3 s


def test_advice_on_the_cpu_promises_nothing_where_its_work_is_hidden() -> None:
    def told(timeline: Timeline) -> Finding:
        (found,) = (
            f for f in summarize(timeline, replace(FACTS, findings=(CROWDED,))).findings if f.code == CROWDED.code
        )
        return found

    def beside_a_drive(seconds: float) -> Timeline:
        """Adam of 2 s while the drive is read, which takes so long."""
        program = Program()
        read = program.add("nvme.read", takes(nvme=10.0 * seconds), work=Transfer(10, "nvme", "dram"))
        adam = program.add("host", takes(dram=20.0), work=HostCompute("optimizer", 2.0, 20.0))
        program.add("compute", takes(sm=10.0), waits=[read, adam])
        return program.play(supply(nvme=10.0, dram=10.0, sm=10.0))

    assert told(beside_a_drive(1.0)) == CROWDED  # 1 s of 3 s is exposed
    assert told(beside_a_drive(9.0)) == Finding(
        "cpu-oversubscribed",
        "note",
        "Threads share cores. The CPU's work takes 2 s instead of 1 s, hidden behind copies: no gain now.",
        "Should copies become faster: bind them.",
    )


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


def test_who_lost_to_whom_is_in_the_json() -> None:
    program = Program()
    program.add("reduce", takes(link=20.0), work=Transfer(20.0, "gpu", "dram"))
    program.add("gather", takes(link=20.0), work=Transfer(20.0, "dram", "gpu"))
    losses = summarize(program.play(supply(link=10.0)), FACTS).as_json()["contention"]
    assert losses[0] == {
        "resource": "link",
        "label": "link",
        "loser": "copy_from_gpu",
        "winner": "copy_to_gpu",
        "seconds": 2.0,
        "ops": 1,
        "alone_seconds": 2.0,
        "ranks": 1.0,
    }
    assert summarize(tiny(), FACTS).as_json()["contention"] == []


def bound(timeline: Timeline, choices: Choices = Choices()) -> dict[str, Finding]:  # noqa: B008 # a value
    found = summarize(timeline, replace(FACTS, findings=(), choices=choices)).findings
    return {finding.code: finding for finding in found}


def test_transfer_bound_is_judged_by_the_critical_path() -> None:
    """1 s down, 8 s and 2 s of the drive hang together: 11 of 23 s. Adam's 3 s are too few to be told."""
    found = bound(offloaded())
    assert list(found) == ["transfer-bound"]
    message, remedy = found["transfer-bound"].message, found["transfer-bound"].remedy
    assert "47.8 % of the critical path (11 s) are copies between tiers" in message
    assert "what limits most of it (43.5 %) is nvme (busy 43.5 % of the step)" in message
    assert remedy.startswith("Set pipeline_read and pipeline_write")
    assert "or more gradient_accumulation_steps" in remedy
    pipelined = bound(offloaded(), Choices(pipelined=True))["transfer-bound"].remedy
    assert pipelined.startswith("More or faster drives, or the states in host memory")


def test_copies_of_every_micro_step_are_not_amortised_by_more_of_them() -> None:
    """Of pageable memory; two of three micro-steps copy and wait."""
    program = Program()
    for micro_batch in range(3):
        copy = Transfer(20.0, "gpu", "dram", pinned=False)
        number = program.add("compute", takes(link=20.0 if micro_batch < 2 else 1.0), work=copy)
        program.ops[number] = program.ops[number]._replace(micro_batch=micro_batch)
    timeline = program.play(supply(link=10.0))
    found = bound(replace(timeline, steps=(replace(timeline.step, micro_batches=3),)))["transfer-bound"].remedy
    assert found == (
        "Set pin_memory: from pageable memory copies are slower and the host waits for each; "
        "fewer and larger micro-batches: it is done in each of them."
    )


def test_a_drive_that_the_cpu_hides_is_not_what_binds() -> None:
    """Adam of 5 s beside a read of 4 s that nobody waits for."""
    program = Program()
    program.add("nvme.read", takes(nvme=40.0), work=Transfer(40.0, "nvme", "dram"))
    adam = program.add("host", takes(dram=50.0), work=HostCompute("torch_optimizer", 2.0, 50.0))
    program.add("compute", takes(sm=10.0), waits=[adam])
    found = bound(program.play(supply(nvme=10.0, dram=10.0, sm=10.0)))
    assert list(found) == ["cpu-optimizer-bound"]
    assert "83.3 % of the critical path (5 s) are work of the CPU" in found["cpu-optimizer-bound"].message
    assert found["cpu-optimizer-bound"].remedy.startswith("Take DeepSpeed's own optimizer (no torch_adam)")


def test_the_optimizer_on_the_cpu_binds() -> None:
    found = bound(host_optimizer())["cpu-optimizer-bound"]  # 2 of 5 s
    assert "what limits it is CPU cores (busy 40 % of the step)" in found.message
    assert found.remedy == (
        "Set bind_cores_to_rank, which gives each rank its cores and the memory beside them; "
        "a larger micro-batch or more gradient_accumulation_steps: it is done once a step, and weighs less."
    )
    bound_already = bound(host_optimizer(), Choices(bound_cores=True))["cpu-optimizer-bound"].remedy
    assert bound_already.startswith("A larger micro-batch")
