"""The table of checks. One more trouble is one more row: a function from a played case to a trouble, or to a few words
on what was seen where there is none."""

from __future__ import annotations

from zerosim.studies.doctor.accumulation import every_micro_step
from zerosim.studies.doctor.bubble import waiting_stages
from zerosim.studies.doctor.buckets import not_overlapped, sizes
from zerosim.studies.doctor.checkpoints import sharded_files
from zerosim.studies.doctor.gpu_memory import out_of_memory
from zerosim.studies.doctor.host_memory import pinned
from zerosim.studies.doctor.network import too_slow
from zerosim.studies.doctor.offload import slow_tiers
from zerosim.studies.doctor.optimizers import not_partitioned
from zerosim.studies.doctor.prefetch import starved
from zerosim.studies.doctor.threads import oversubscribed
from zerosim.studies.doctor.trouble import Check
from zerosim.studies.doctor.uneven import uneven_ranks

CHECKS: tuple[Check, ...] = (
    Check("GPU memory", out_of_memory),
    Check("host memory", pinned),
    Check("optimizer", not_partitioned),
    Check("network", too_slow),
    Check("uneven ranks", uneven_ranks),
    Check("accumulation", every_micro_step),
    Check("overlap", not_overlapped),
    Check("buckets", sizes),
    Check("prefetch", starved),
    Check("offload", slow_tiers),
    Check("CPU threads", oversubscribed),
    Check("pipeline", waiting_stages),
    Check("checkpoints", sharded_files),
)
