"""Small hand-made timelines for the tests of views and reports: every number in them can be checked with a pencil.

`played` is a toy player: no sharing, every op takes the seconds its demand takes alone. `tiny()` is a two-layer step
of 27 seconds, `skewed()` the same step on two classes of which one computes slower, `offloaded()` one with work outside
the GPU, `many(n)` a step of about n ops.

    tiny(), seconds       0    2    4   5    8        14      17   20   23  24   26  27
    nccl.dp               gather gather                reduce       reduce
    compute                    forward0 forward1 backward1  backward0           adam
    d2h                                                                              stow
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zerosim.resources import Demand, RankClass, Supply, Use
from zerosim.step import Buffer, Collective, Group, HostCompute, Matmul, Op, Pass, Step, Transfer
from zerosim.timeline import Span, Timeline

NIC, SM, HBM, PCIE, CORES, DRAM, NVME = "nic", "sm", "hbm", "pcie", "cores", "dram", "nvme"
DP = "nccl.dp"
MB = 1e6


def supply(capacity: float = 1000 * MB, dram: float = 4000 * MB) -> Supply:
    """100 FLOP/s; 100 B/s of HBM, 40 of PCIe and host memory, 20 of NIC, 10 of NVMe; 50 MB of overhead on the GPU."""
    return Supply(
        rates={SM: 100.0, HBM: 100.0, NIC: 20.0, PCIE: 40.0, CORES: 10.0, DRAM: 40.0, NVME: 10.0},
        capacities={"gpu": capacity, "dram": dram, "nvme": 0.0},
        overheads={"gpu": 50 * MB, "dram": 0.0, "nvme": 0.0},
        units={SM: "FLOP/s", HBM: "B/s", NIC: "B/s", PCIE: "B/s", CORES: "B/s"},
        labels={SM: "SMs", HBM: "HBM", NIC: "NIC 20 B/s", PCIE: "PCIe", CORES: "CPU cores"},
    )


def played(
    step: Step,
    demands: Sequence[Demand],
    machine: Supply | None = None,
    slowdown: Mapping[str, float] | None = None,
) -> Timeline:
    """The step, each op as fast as alone; compute of class c takes `slowdown[c]` times as long."""
    machine = machine or supply()
    slowdown = slowdown or {"all": 1.0}
    names = list(slowdown)
    classes = tuple(RankClass(name, (index,)) for index, name in enumerate(names))
    host = dict.fromkeys(names, 0.0)
    tail: dict[tuple[str, str], float] = {}
    spans: dict[str, list[Span]] = {name: [] for name in names}
    for op, demand in zip(step.ops, demands, strict=True):
        issued, ready = {}, {}
        for name in names:
            waited = [spans[name][other].end for other in op.host_waits]
            issued[name] = host[name] = max([host[name], *waited]) + demand.host
            before = [spans[name][other].end for other in op.after]
            ready[name] = max([issued[name], tail.get((name, op.stream), 0.0), *before])
        for name in names:
            start = max(ready.values()) if isinstance(op.work, Collective) else ready[name]
            factor = slowdown[name] if isinstance(op.work, Matmul) else 1.0
            end = start + factor * demand.alone(machine)
            tail[name, op.stream] = end
            spans[name].append(Span(op.number, name, issued[name], ready[name], start, end, demand.bottleneck(machine)))
    return Timeline((step,), classes, spans, dict.fromkeys(names, tuple(demands)), machine, events=4 * len(step.ops))


MATMUL = Matmul(((1, 4, 5, 6),), "bf16")  # 2 x 4 x 5 x 6 = 240 FLOP
BACKWARD = Matmul(((1, 4, 5, 6), (1, 4, 5, 6)), "bf16")
FORWARD_SECONDS = Demand(uses=(Use(SM, 240.0, 0.8),))  # 240 / (100 x 0.8) = 3 s
BACKWARD_SECONDS = Demand(uses=(Use(SM, 480.0, 0.8),), host=1.0)  # 6 s
GATHER_SECONDS = Demand(uses=(Use(NIC, 40.0),), algorithm="ring")  # 2 s
REDUCE_SECONDS = Demand(uses=(Use(NIC, 60.0),), host=1.0, algorithm="ring")  # 3 s

TINY_BUFFERS = (
    Buffer("parameters", "parameters", 40 * MB),
    Buffer("adam", "optimizer", 120 * MB),
    Buffer("gathered.0", "buffers", 40 * MB),
    Buffer("gathered.1", "buffers", 40 * MB),
    Buffer("activations.0", "activations", 100 * MB),
    Buffer("activations.1", "activations", 100 * MB),
    Buffer("gradients.1", "gradients", 60 * MB),
    Buffer("gradients.0", "gradients", 60 * MB),
    Buffer("staged", "parameters", 40 * MB, "dram"),
)


def _gather(number: int, layer: int, buffer: int) -> Op:
    return Op(
        number, f"gather {layer}", DP, Collective("all_gather", 20, "bf16", "dp"), acquires=(buffer,), layer=layer
    )


def _tiny_ops() -> tuple[Op, ...]:
    reduce = Collective("reduce_scatter", 30, "bf16", "dp")
    return (
        _gather(0, 0, 2),
        _gather(1, 1, 3),
        Op(2, "forward 0", "compute", MATMUL, after=(0,), acquires=(4,), layer=0),
        Op(3, "forward 1", "compute", MATMUL, after=(1,), acquires=(5,), layer=1),
        Op(4, "backward 1", "compute", BACKWARD, acquires=(6,), releases=(5, 3), phase="backward", layer=1),
        Op(5, "reduce 1", DP, reduce, after=(4,), releases=(6,), phase="backward", layer=1),
        Op(6, "backward 0", "compute", BACKWARD, acquires=(7,), releases=(4, 2), phase="backward", layer=0),
        Op(7, "reduce 0", DP, reduce, after=(6,), releases=(7,), phase="backward", layer=0),
        Op(8, "adam", "compute", Pass(100.0, "adam"), after=(5, 7), host_waits=(7,), phase="optimizer"),
        Op(9, "stow", "d2h", Transfer(40.0, "gpu", "dram"), after=(8,), phase="optimizer"),
    )


def tiny_step() -> Step:
    """The program of `tiny()`."""
    return Step(_tiny_ops(), TINY_BUFFERS, frozenset({0, 1, 8}), {"dp": Group("dp", 2)}, micro_batches=1).check()


def tiny_demands() -> tuple[Demand, ...]:
    """What the ops of `tiny()` need. The host issues them at 0, 0, 1, 1, 2, 3, 4, 5, 24, 24."""
    return (
        GATHER_SECONDS,
        GATHER_SECONDS,
        FORWARD_SECONDS._replace(host=1.0),
        FORWARD_SECONDS,
        BACKWARD_SECONDS,
        REDUCE_SECONDS,
        BACKWARD_SECONDS,
        REDUCE_SECONDS,
        Demand(uses=(Use(HBM, 100.0, 0.5),), host=1.0),  # 2 s, after the host has waited for reduce 0
        Demand(uses=(Use(PCIE, 40.0),)),  # 1 s
    )


def tiny(capacity: float = 1000 * MB) -> Timeline:
    """Two layers, 27 s: 20 s compute, 10 s collectives (5 hidden), 1 s copy, 1 s host; 550 MB at the peak."""
    return played(tiny_step(), tiny_demands(), supply(capacity))


def skewed(factor: float = 2.0) -> Timeline:
    """`tiny()` on two classes; the matmuls of `slow` take `factor` times as long, so `fast` waits for it."""
    return played(tiny_step(), tiny_demands(), slowdown={"fast": 1.0, "slow": factor})


def host_optimizer() -> Timeline:
    """5 s: forward 3 s, then a CPU optimizer of 2 s (20 B at 10 B/s) that nothing hides."""
    ops = (
        Op(0, "forward 0", "compute", MATMUL, layer=0),
        Op(1, "cpu adam", "host", HostCompute("optimizer", 5.0, 20.0), after=(0,), phase="optimizer"),
    )
    step = Step(ops, (), frozenset(), {}, micro_batches=1).check()
    return played(step, (FORWARD_SECONDS, Demand(uses=(Use(CORES, 20.0),))))


def offloaded() -> Timeline:
    """23 s of which 9.5 s are computed: an optimizer on the CPU whose states are on a drive.

    The host waits for the copy of the gradients (pageable), the drive and Adam before it goes on; nobody waits for the
    log, which is copied while the drive is read.

        seconds       0    3      9   10   12     18   21   22     22.5  23
        compute       forward backward                 up   cast
        reduce                    down
        gather                         log
        nvme.read                      read states
        host                                      adam
        nvme.write                                     write states
    """
    down = Transfer(40.0, "gpu", "dram", pinned=False)
    ops = (
        Op(0, "forward", "compute", MATMUL),
        Op(1, "backward", "compute", BACKWARD, phase="backward"),
        Op(2, "gradients down", "reduce", down, after=(1,), phase="backward"),
        Op(3, "log", "gather", Transfer(80.0, "gpu", "dram"), host_waits=(2,), phase="optimizer"),
        Op(4, "read states", "nvme.read", Transfer(80.0, "nvme", "dram"), phase="optimizer"),
        Op(5, "adam", "host", HostCompute("optimizer", 30.0, 120.0), host_waits=(4,), phase="optimizer"),
        Op(6, "parameters up", "compute", Transfer(40.0, "dram", "gpu"), host_waits=(5,), phase="optimizer"),
        Op(7, "cast", "compute", Pass(100.0, "stream"), phase="optimizer"),
        Op(8, "write states", "nvme.write", Transfer(20.0, "dram", "nvme"), after=(5,), phase="optimizer"),
        Op(9, "end of step", "host", None, host_waits=(8,), phase="optimizer"),
    )
    demands = (
        FORWARD_SECONDS,
        BACKWARD_SECONDS._replace(host=0.0),
        Demand(uses=(Use(PCIE, 40.0), Use(DRAM, 20.0))),
        Demand(uses=(Use(PCIE, 80.0),)),
        Demand(uses=(Use(NVME, 80.0),)),
        Demand(uses=(Use(DRAM, 120.0),)),
        Demand(uses=(Use(PCIE, 40.0),)),
        Demand(uses=(Use(HBM, 50.0),)),
        Demand(uses=(Use(NVME, 20.0),)),
        Demand(),
    )
    step = Step(ops, (), frozenset(), {}, micro_batches=1).check()
    return played(step, demands)


def many(count: int, exposed: bool = False) -> Timeline:
    """A step of about `count` ops: layers of gather, forward, then backward, reduce, each with its buffers.

    `exposed`: each backward waits for the reduction before it, so that no reduction is hidden.
    """
    layers = max(count // 4, 1)
    ops: list[Op] = []
    buffers = [Buffer("parameters", "parameters", 8.0)]
    demands: list[Demand] = []
    for layer in range(layers):
        buffers += [Buffer(f"gathered.{layer}", "buffers", 8e6), Buffer(f"activations.{layer}", "activations", 3e5)]
        ops.append(_gather(len(ops), layer, len(buffers) - 2))
        last = (len(ops) - 1,)
        ops.append(Op(len(ops), f"forward {layer}", "compute", MATMUL, last, acquires=(len(buffers) - 1,), layer=layer))
        demands += [GATHER_SECONDS, FORWARD_SECONDS]
    for layer in reversed(range(layers)):
        held = (1 + 2 * layer, 2 + 2 * layer)
        number = len(ops)
        after = (number - 1,) if exposed else ()
        ops.append(Op(number, f"backward {layer}", "compute", BACKWARD, after, releases=held, phase="backward"))
        reduce = Collective("reduce_scatter", 30, "bf16", "dp")
        ops.append(Op(number + 1, f"reduce {layer}", DP, reduce, after=(number,), phase="backward", layer=layer))
        demands += [BACKWARD_SECONDS, REDUCE_SECONDS]
    step = Step(tuple(ops), tuple(buffers), frozenset({0}), {"dp": Group("dp", 2)}, micro_batches=1)
    return played(step.check(), demands, supply(capacity=1e12))
