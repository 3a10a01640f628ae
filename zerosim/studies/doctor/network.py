"""A network that cannot carry what the strategy sends: the step is a good deal more than its compute, and
what is sent takes longer than that.

Less is sent by a lower stage, by shards within a node (hpZ, hybrid), by quantisation, or by fewer and larger
micro-steps; what rate it would take with the settings as they are is told, too (`require`). Where a few slow
ranks are the reason, that is told instead (`uneven`).
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.errors import ZerosimError
from zerosim.report.require import rounded_least, show_least, why_none
from zerosim.spec.strategy import Ddp, DeepSpeed, Fsdp
from zerosim.studies.doctor.case import GATHERS, REDUCTIONS, Case
from zerosim.studies.doctor.settings import LOSSY, batch, deepspeed_instead, fsdp, larger_batches, zero
from zerosim.studies.doctor.trouble import Candidate, Price, Trouble, weight
from zerosim.studies.require import Required, Wish, require
from zerosim.units import show_rate, show_seconds, show_share

TIMES = 1.5  # the step over its compute, from which on the network does not carry it; a choice
MOSTLY = 0.5
TOGETHER = 3  # larger batches that are tried together with each way to send less
SLOWDOWN = 0.1  # of the step: as hidden as one would pay for; a choice
PORT = "topology.node.nics.bandwidth"
LATENCY = "latency"
WIRED = GATHERS | REDUCTIONS | {"exchange", "send_recv"}


def too_slow(case: Case) -> Trouble | str:
    """Exposed communication beside compute."""
    parts = case.summary.breakdown
    exposed, compute = parts.exposed_communication, parts.compute
    share = f"{show_seconds(exposed)} of communication is exposed beside {show_seconds(compute)} of compute"
    whole = case.summary.communication.total_seconds
    if exposed < (TIMES - 1) * compute or case.limit(WIRED) == LATENCY:
        return share if whole else "nothing is communicated"
    if whole < compute:
        return f"{share}, which could hide all {show_seconds(whole)} of it: not the network"
    uneven = max((wait.exposed_seconds for wait in case.summary.waits), default=0.0)
    if uneven > MOSTLY * exposed:
        return f"{share}, mostly because of slow ranks"
    return _trouble(case, exposed, f"{share}: the step is {case.seconds / compute:.3g} times its compute")


def _trouble(case: Case, exposed: float, said: str) -> Trouble:
    between = len(case.scenario.topology.hosts) > 1
    needed = _required(case) if between else None
    wanted = f" {_told(needed)}" if needed else ""
    volumes = case.summary.collectives
    most = max((kind for kind in volumes if kind in WIRED), key=lambda kind: volumes[kind].bytes)
    sent = f"{volumes[most].count} x {most.replace('_', '-')}"
    return Trouble(
        code="network-cannot-carry",
        severity=weight(case, exposed),
        symptom=f"{said}.",
        cause=f"Most is sent by {sent} a step; what limits is {case.limit(WIRED)}.{wanted}",
        candidates=(*_settings(case, between), *_ports(needed)),
        lost=exposed,
    )


def _settings(case: Case, between: bool) -> Iterator[Candidate]:
    strategy = case.scenario.strategy
    larger = list(larger_batches(case))
    less: list[Candidate] = []
    if isinstance(strategy, DeepSpeed):
        less += _less(case, strategy, between)
    elif isinstance(strategy, Fsdp):
        less += _of_fsdp(strategy, between)
    elif isinstance(strategy, Ddp):
        less += _of_ddp(case, strategy)
    yield from larger
    yield from less
    yield from (each.also(another) for each in less for another in larger[-TOGETHER:])
    yield from _more(case)


def _more(case: Case) -> Iterator[Candidate]:
    """More compute for what is sent: as many times more sequences of a step."""
    training = case.scenario.training
    for times in (2, 4):
        yield batch(case, training.micro_batch_size * times, training.gradient_accumulation_steps)
        yield batch(case, training.micro_batch_size, training.gradient_accumulation_steps * times)


def _less(case: Case, strategy: DeepSpeed, between: bool) -> Iterator[Candidate]:
    """What of ZeRO sends less."""
    given, ranks = strategy.zero, case.scenario.ranks_per_node
    if not given.overlap_comm and given.stage > 0:
        yield zero("overlap_comm", overlap_comm=True)
    yield from (zero(f"stage {stage}", stage=stage) for stage in (2, 1) if given.stage > stage)
    if given.stage == 3 and between and ranks > 1:
        second = {"zero_hpz_partition_size": ranks}
        if given.zero_hpz_partition_size == 1:
            yield zero("hpZ, a second shard in each node", **second)
        if not (given.zero_quantized_weights and given.zero_quantized_gradients):
            every = {"zero_quantized_weights": True, "zero_quantized_gradients": True}
            yield zero("ZeRO++", **second, **every).at(LOSSY)


def _of_fsdp(given: Fsdp, between: bool) -> Iterator[Candidate]:
    if not given.no_sync:
        yield fsdp("no_sync: one reduction a step", no_sync=True)
    if between and given.version == 1 and not given.hybrid:
        yield fsdp("shards within a node", sharding_strategy="HYBRID_SHARD")
    if given.wire_dtype == "fp32":
        yield fsdp("gradients reduced in 16 bits", reduce_dtype="bf16").at(Price("sums of 16 bits", 1.2))


def _of_ddp(case: Case, given: Ddp) -> Iterator[Candidate]:
    if not given.no_sync:
        yield Candidate("no_sync: one reduction a step", (("strategy.ddp.no_sync=true",),))
    precision = case.scenario.training.precision
    if given.parameter_dtype == "fp32" and precision != "fp32":
        changes = (f"strategy.ddp.parameter_dtype={precision}",)
        yield Candidate(f"weights and gradients in {precision}, fp32 masters in the optimizer", (changes,))
    yield deepspeed_instead(case, 1)


# --- the rate that it would take -------------------------------------------------------------------------------------


def _required(case: Case) -> Required | None:
    """What `require` says of a port, at most so much longer than with a free one; None where nodes have none."""
    try:
        return require(case.scenario, PORT, Wish("slowdown", SLOWDOWN))
    except ZerosimError:
        return None


def _told(found: Required) -> str:
    """The least rate, or why there is none, in the words of `require`."""
    return " ".join((_said(found), *(f"{note}." for note in found.notes)))


def _said(found: Required) -> str:
    row = found.as_json()
    today = "" if found.today is None else f"; today {show_rate(found.today, bits=True)}"
    wish = f"within {show_share(SLOWDOWN)} of the {show_seconds(found.free_seconds)} of a free one"
    if found.required is None:
        return f"No rate of a port brings it {wish}{today}; {why_none(row)}."
    if found.any_rate:
        return f"Any rate of a port brings it {wish}{today}."
    reached = f"the step then takes {show_seconds(found.seconds)}"
    return f"A port of {show_least(row)} brings it {wish}{today}; {reached}."


def _ports(found: Required | None) -> Iterator[Candidate]:
    """A port of that rate, where it is more than there is."""
    if found is not None and found.required is not None and found.required > (found.today or 0.0):
        rate = f"{rounded_least(found.as_json()) * 8 / 1e9:.4g} Gbps"
        yield Candidate(f"ports of {rate}", ((f"{PORT}={rate}",),), machine=True)
