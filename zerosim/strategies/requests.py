"""Copies to and from drives, as the handles of DeepSpeed's swappers ask for them.

Source: DeepSpeed 0.19.8 csrc/aio/common/deepspeed_aio_common.cpp; csrc/gds/py_lib/deepspeed_gds_op.cpp, where each
thread hands all of its part to cuFile, which cuts it up as it likes.
"""

from __future__ import annotations

from zerosim.spec.strategy import Aio
from zerosim.step import Tier, Transfer


def request(aio: Aio, size: int, source: Tier, target: Tier) -> Transfer:
    """One file read or written by a rank; its buffer in host memory is locked."""
    if "gpu" in (source, target):
        return Transfer(float(size), source, target)
    return Transfer(float(size), source, target, batch=float(aio.in_flight), in_turn=aio.in_turn)
