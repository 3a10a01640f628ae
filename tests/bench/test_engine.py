"""What playing costs: events per op (CPU time is printed), on programs shaped like ZeRO-3 with its streams."""

from __future__ import annotations

import time

import pytest

from tests.engine_programs import GATHER, Program, supply
from zerosim.resources import Demand, Hold, Use

LAYERS, MICRO_BATCHES, KERNELS = 96, 8, 22
HOST = 4e-6


def zero3(communication: float, hbm: float, sm: float) -> Program:
    """Eight micro-batches: in each layer a gather one layer ahead, kernels, and in the backward a reduction.

    A collective takes `communication` seconds of NVLink; of HBM's time it takes the share `hbm`, and it holds `sm`.
    """
    collective = Demand(10e-6, (Use("nvlink", communication), Use("hbm", communication * hbm)), (Hold("sm", sm),), HOST)
    matmul = Demand(2e-6, (Use("sm", 0.2e-3), Use("hbm", 0.06e-3)), (), HOST)
    norm = Demand(2e-6, (Use("hbm", 0.05e-3), Use("sm", 0.02e-3)), (), HOST)
    program = Program()
    for _ in range(MICRO_BATCHES):
        for backward in (False, True):
            _layers(program, backward, collective, matmul, norm)
    return program


def _layers(program: Program, backward: bool, collective: Demand, matmul: Demand, norm: Demand) -> None:
    gathered: list[int] = []
    computed: list[int] = []
    for layer in range(LAYERS):
        waits = (computed[-2],) if layer >= 2 and layer % 8 == 0 else ()  # the host keeps two layers ahead, at most
        marker = program.add("gather", Demand(), waits=waits)
        gathered.append(program.add("nccl.dp", collective, (marker,), work=GATHER))
        last = program.add("compute", matmul, (gathered[max(0, layer - 1)],))
        for kernel in range(1, KERNELS):
            last = program.add("compute", norm if kernel % 2 else matmul)
        computed.append(last)
        if backward:
            marker = program.add("reduce", norm, (last,))
            program.add("nccl.dp", collective, (marker,), work=GATHER)


@pytest.mark.parametrize(
    ("communication", "hbm", "sm", "events_per_op"),
    [
        pytest.param(0.3e-3, 0.0, 0.0, 1.15, id="alone"),  # one event for latency and work together
        pytest.param(0.3e-3, 0.3, 0.18, 1.4, id="contended now and then"),
        pytest.param(2.0e-3, 0.3, 0.18, 2.0, id="contended always"),  # one for latency, one for work
    ],
)
def test_forty_thousand_ops(communication: float, hbm: float, sm: float, events_per_op: float) -> None:
    program = zero3(communication, hbm, sm)
    begun = time.process_time()
    timeline = program.play(supply(sm=1, hbm=1, nvlink=1))
    seconds = (time.process_time() - begun) / len(program.ops)
    events = timeline.events / len(program.ops)
    print(
        f"{len(program.ops)} ops: {events:.2f} events and {seconds * 1e6:.1f} us an op; step {timeline.makespan:.3f} s"
    )
    assert events < events_per_op
