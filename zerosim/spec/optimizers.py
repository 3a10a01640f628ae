"""What optimizers keep and move, by name.

Bytes are counted per element and step, fp32, each tensor read or written once a kernel: p parameter, g gradient, m and
v states, u update. A fused optimizer is one kernel over many tensors; torch's `foreach` ones (its default) are several
in a row; Muon and the 1-bit ones go tensor by tensor. Hyper-parameters cost no time. Names in any case. Adam, Lion and
Adagrad have a vectorised counterpart on the CPU (DeepSpeed ops/adam/cpu_adam.py, ops/lion/cpu_lion.py, ops/adagrad/
cpu_adagrad.py); the others run there as torch writes them, pass by pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zerosim.errors import nearest
from zerosim.spec.strategy import Optimizer

# csrc/adam/multi_tensor_adam.cu: one kernel reads p g m v, writes p m v = 7 x 4 B.
ADAMW = Optimizer("AdamW", state_bytes=8, traffic_bytes=28, fused=True)

OPTIMIZERS: Mapping[str, Optimizer] = {
    "adam": Optimizer("Adam", 8, 28, True),
    "adamw": ADAMW,
    "muadam": Optimizer("MuAdam", 8, 28, True, "torch"),
    "muadamw": Optimizer("MuAdamW", 8, 28, True, "torch"),
    # csrc/lamb/fused_lamb_cuda_kernel.cu: reads p g m v, writes m v u; after the norms reads p u, writes p = 10 x 4 B
    "lamb": Optimizer("Lamb", 8, 40, True),
    # csrc/lion/multi_tensor_lion.cu: reads p g m, writes p m = 5 x 4 B
    "lion": Optimizer("Lion", 4, 20, True),
    # torch/optim/adagrad.py, _multi_tensor_adagrad: addcmul 3, sqrt 2, add 2, mul 2, addcdiv 4 = 13 x 4 B
    "adagrad": Optimizer("Adagrad", 4, 52, False),
    # torch/optim/sgd.py, _multi_tensor_sgd: p += g, 3 x 4 B
    "sgd": Optimizer("SGD", 0, 12, False, "torch"),
    "musgd": Optimizer("MuSGD", 0, 12, False, "torch"),
    # one momentum: lerp 3, Nesterov update 3, p += u 3 = 9 x 4 B; the products of Newton-Schulz are not in it
    "muon": Optimizer("Muon", 4, 36, False, one_by_one=True),
    # before the compressed stage these are plain Adam and Lamb
    "onebitadam": Optimizer("OneBitAdam", 8, 28, False, "torch", True),
    "zerooneadam": Optimizer("ZeroOneAdam", 8, 28, False, "torch", True),
    "onebitlamb": Optimizer("OneBitLamb", 8, 40, False, "torch", True),
}

# torch/optim/adam.py, _multi_tensor_adam: lerp 3, mul 2, addcmul 3, sqrt 2, div 2, add 2, addcdiv 4 = 18 x 4 B;
# the root is a new list of tensors (torch 2.13's profiler sees 4 bytes a parameter in a step)
_TORCH_ADAM_TRAFFIC = 72
# torch/optim/sgd.py with momentum: mul 2, add 3, p += m 3 = 8 x 4 B, and one state
_MOMENTUM = (4, 32)


def likely(name: str, known: Sequence[str]) -> str:
    """The optimizer that a wrong name may have meant."""
    spelling = {word.lower(): word for word in known}
    return spelling.get(nearest(name.lower(), list(spelling)), "")


def optimizer(name: str, torch_adam: bool = False, momentum: bool = False) -> Optimizer:
    """The optimizer called `name`; `torch_adam` for torch's own Adam, `momentum` for SGD with it."""
    known = OPTIMIZERS[name.lower()]
    if torch_adam and known.name in ("Adam", "AdamW"):
        return Optimizer(known.name, known.state_bytes, _TORCH_ADAM_TRAFFIC, False, "torch", scratch_bytes=4)
    if momentum and known.name in ("SGD", "MuSGD"):
        return Optimizer(known.name, *_MOMENTUM, fused=False, on_cpu="torch")
    return known


def on_host(chosen: Optimizer) -> Optimizer:
    """The optimizer where its states are offloaded: there Adagrad passes once, and mup's Adam is torch's own."""
    if chosen.name == "Adagrad":  # csrc/adagrad/cpu_adagrad.cpp: reads p g v, writes p v = 5 x 4 B
        return replace(chosen, traffic_bytes=20, fused=True)
    return replace(chosen, traffic_bytes=_TORCH_ADAM_TRAFFIC) if chosen.name in ("MuAdam", "MuAdamW") else chosen
