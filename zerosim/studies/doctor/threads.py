"""Ranks that fight for cores while CPU Adam runs: all of a node start a thread for each core, or each has only one.

DeepSpeed's launcher leaves it so unless it is asked to bind (launcher/launch.py); torchrun starts one thread a rank
(torch/distributed/run.py). Told with its weight in the played step: what is hidden is no trouble.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.spec.topology import Socket
from zerosim.step import HostCompute
from zerosim.studies.doctor.case import Case
from zerosim.studies.doctor.trouble import Candidate, Trouble, weight
from zerosim.units import show_seconds, show_share
from zerosim.views.findings import CPU_ADVICE


def oversubscribed(case: Case) -> Trouble | str:
    """Work of the CPU that takes longer than it would with cores of its own, and that is waited for."""
    if not any(isinstance(op.work, HostCompute) for op in case.simulation.step.ops):
        return "the CPU computes nothing"
    found = next((each for each in case.summary.findings if each.code in CPU_ADVICE), None)
    computing = case.waiting(("host_compute",))
    if found is None or found.severity == "note":
        hidden = "" if found is None else ", which is hidden: no gain from other threads"
        return f"{show_seconds(computing)} of a step waits for the CPU{hidden}"
    return Trouble(
        code=found.code,
        severity=weight(case, computing),
        symptom=f"{show_seconds(computing)} of a step ({show_share(case.share(computing))}) waits for the CPU's work.",
        cause=found.message,
        candidates=tuple(_remedies(case)),
        lost=computing,
    )


def _remedies(case: Case) -> Iterator[Candidate]:
    launch, ranks = case.scenario.launch, case.scenario.ranks_per_node
    sockets = (device.figures for device in case.scenario.topology.devices("socket", case.scenario.topology.hosts[0]))
    cores = sum(socket.cores for socket in sockets if isinstance(socket, Socket))
    if launch.launcher == "deepspeed" and not launch.bind_cores_to_rank:
        yield Candidate("each rank bound to its own cores", (("launch.bind_cores_to_rank=true",),))
    if cores >= ranks:
        threads = f"launch.omp_num_threads={cores // ranks}"
        yield Candidate(f"OMP_NUM_THREADS={cores // ranks}", ((threads,), ("launch.launcher=torchrun", threads)))
