"""How the processes of a node are started: which cores each may use, and how many threads it computes with.

It matters only where the CPU computes. Sources: DeepSpeed launcher/launch.py (`--bind_cores_to_rank` binds each rank
to its share of the cores, in rank order, with their memory, and sets OMP_NUM_THREADS to their number; without it a rank
may use every core, and OpenMP starts a thread for each); torch/distributed/run.py (OMP_NUM_THREADS=1 where a node has
several processes and the variable is not set). How the section of a scenario is read stands in `launch_file`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zerosim.spec.strategy import DeepSpeed, Strategy

Launcher = Literal["deepspeed", "torchrun"]


@dataclass(frozen=True, slots=True)
class Launch:
    """`launch` of a scenario. `omp_num_threads`: the environment variable, None where it is not set."""

    launcher: Launcher = "deepspeed"
    bind_cores_to_rank: bool = False
    omp_num_threads: int | None = None

    def threads(self, cores: int, ranks: int) -> int:
        """Threads of each rank on a node of `cores` cores and `ranks` ranks."""
        if self.bind_cores_to_rank:  # launch.py overwrites the variable
            return max(1, cores // ranks)
        if self.omp_num_threads is not None:
            return self.omp_num_threads
        return 1 if self.launcher == "torchrun" and ranks > 1 else cores


def usual_launch(strategy: Strategy) -> Launch:
    """What starts a run where nobody says it: the launcher of the framework."""
    return Launch("deepspeed" if isinstance(strategy, DeepSpeed) else "torchrun")
