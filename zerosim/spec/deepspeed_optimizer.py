"""The `optimizer` section: what an optimizer keeps and moves, by the name that DeepSpeed knows it by.

DeepSpeed turns names it knows into its fused kernels, or where the optimizer is offloaded into its vectorised ones for
the CPU (runtime/engine.py, _configure_basic_optimizer; names in any case), and looks the others up in torch.optim.
What an optimizer costs stands in `optimizers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosim.spec.deepspeed_schema import OPTIMIZER
from zerosim.spec.deepspeed_section import Log, dotted, tell
from zerosim.spec.deepspeed_values import AUTO, BOOLEAN, NUMBER
from zerosim.spec.document import Document, shown
from zerosim.spec.optimizers import ADAMW, OPTIMIZERS, likely, on_host, optimizer
from zerosim.spec.strategy import Optimizer, Zero

SECTION = "optimizer"

_LACKING = {
    "muon": "orthogonalisation of Muon's updates",
    "onebitadam": "1-bit compression of gradients",
    "zerooneadam": "1-bit compression of gradients",
    "onebitlamb": "1-bit compression of gradients",
}
_SHAPING = {  # parameters that shape the step: their kind, and of which optimizers
    "torch_adam": (BOOLEAN, ("adam", "adamw")),
    "momentum": (NUMBER, ("sgd", "musgd")),
}
_UNSET = {"torch_adam": False, "momentum": 0.0}
_PASSES = ("weight_decay", "nesterov", "amsgrad")  # where optimizers run kernel by kernel each is one kernel more
_UNTESTED = frozenset({"sgd", "musgd", "lamb"})  # not in ZERO_SUPPORTED_OPTIMIZERS of runtime/zero/utils.py
_FORCE = "zero_force_ds_cpu_optimizer"


def read_optimizer(top: Document, log: Log, zero: Zero, values: Mapping[str, Any]) -> Optimizer:
    """The optimizer of the file, or what stands for the one that the script builds; `values` are those of the top."""
    offloaded = zero.optimizer_on_host
    scripted = top.data.get(SECTION) is None
    if _FORCE in top.data and not (scripted and offloaded):
        log.idle(_FORCE, "it concerns an optimizer that the script builds and that is offloaded")
    if scripted:
        return _scripted(log, offloaded, values[_FORCE])
    chosen = _section(top, log, zero.stage, values["zero_allow_untested_optimizer"])
    if not offloaded:
        return chosen
    _tell_host(top, log, chosen, zero.offload_optimizer.ratio)
    return on_host(chosen)


def _scripted(log: Log, offloaded: bool, forced: bool) -> Optimizer:
    """An offloaded one has to be DeepSpeed's unless the file says otherwise; accelerate then exchanges torch's AdamW
    for it (utils/deepspeed.py, map_pytorch_optim_to_deepspeed)."""
    if offloaded and not forced:
        message = "The DeepSpeed file has no optimizer; torch's AdamW on the CPU is assumed, as {}: false allows."
        log.say("optimizer-assumed", "note", message.format(_FORCE), "DeepSpeedCPUAdam passes over memory once.")
        return optimizer("adamw", torch_adam=True)
    assumed = "DeepSpeedCPUAdam" if offloaded else "fused AdamW"
    log.say("optimizer-assumed", "note", f"The DeepSpeed file has no optimizer; {assumed} is assumed.")
    return ADAMW


def _tell_host(top: Document, log: Log, chosen: Optimizer, ratio: float) -> None:
    """What an optimizer means, and may not be, on the CPU."""
    section = top.below(SECTION)
    if chosen.name == "Lamb":  # csrc/lamb/fused_lamb_cuda.cpp, CHECK_CUDA
        expected = "Adam, AdamW, Lion or Adagrad where the optimizer is offloaded; FusedLamb has no code for the CPU"
        log.problems.append(section.problem(("type",), '"Lamb"', expected))
    elif chosen.on_cpu == "torch":
        message = f"{chosen.name} is offloaded and not DeepSpeed's own: torch computes it on the CPU, pass by pass."
        log.say("torch-on-cpu", "warning", message, "Adam and AdamW (without torch_adam), Lion and Adagrad pass once.")
    if ratio < 1 and (chosen.name not in ("Adam", "AdamW") or chosen.on_cpu == "torch"):  # stage3.py
        place = ("zero_optimization", "offload_optimizer", "ratio")
        log.problems.append(top.problem(place, f"{ratio} with {chosen.name}", "1, or DeepSpeed's own Adam or AdamW"))


def _section(top: Document, log: Log, stage: int, untested_allowed: bool) -> Optimizer:
    if not isinstance(top.data[SECTION], Mapping):
        log.problems.append(top.problem((SECTION,), shown(top.data[SECTION]), "a mapping such as {type: AdamW}"))
        return ADAMW
    section = top.below(SECTION)
    tell(section, OPTIMIZER, section.data, log)
    for key in section.data:
        if key not in OPTIMIZER:
            log.say("unknown-key", "warning", f"{SECTION}.{key} is no key of DeepSpeed, which ignores it.",
                    "Hyper-parameters belong in optimizer.params.")  # fmt: skip
    name = _name(section, log)
    params = _params(section, name, log)
    if name in _LACKING:
        log.lacking(f"{SECTION}.type", _LACKING[name])
    if name in _UNTESTED and stage > 0 and not untested_allowed:
        log.say("untested-optimizer", "warning", f"DeepSpeed stops at {OPTIMIZERS[name].name} on stage {stage}.",
                "Set zero_allow_untested_optimizer: true.")  # fmt: skip
    return optimizer(name, bool(params.get("torch_adam")), bool(params.get("momentum")))


def _name(section: Document, log: Log) -> str:
    given = section.data.get("type")
    if given == AUTO or given is None:
        log.say("optimizer-assumed", "note", "The optimizer section names no type; fused AdamW is assumed.")
        return "adamw"
    name = str(given).lower()
    if not isinstance(given, str) or name not in OPTIMIZERS:
        known = [row.name for row in OPTIMIZERS.values()]
        close = likely(str(given), known)
        log.problems.append(section.problem(("type",), shown(given), f"an optimizer: {', '.join(known)}", close))
        return "adamw"
    return name


def _params(section: Document, name: str, log: Log) -> dict[str, Any]:
    """The parameters that shape the step of this optimizer; the others only make a finding."""
    given = section.data.get("params")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        log.problems.append(section.problem(("params",), shown(given), "a mapping"))
        return {}
    params = section.below("params")
    if "max_grad_norm" in given:
        expected = "no max_grad_norm among the optimizer's params; write gradient_clipping at the top level"
        log.problems.append(params.key_problem(("max_grad_norm",), "max_grad_norm", expected))
    if given.get("amsgrad") is True and name in ("adam", "adamw") and given.get("torch_adam") is not True:
        expected = "false; DeepSpeed's fused Adam has no AMSGrad, torch's has (torch_adam: true)"
        log.problems.append(params.problem(("amsgrad",), "true", expected))
    kinds = {key: kind for key, (kind, names) in _SHAPING.items() if name in names}
    written = {key: log.value(params, key, kind, None) for key, kind in kinds.items() if given.get(key, AUTO) != AUTO}
    log.left_auto({dotted(params, key): _UNSET[key] for key in kinds if given.get(key) == AUTO})
    passes = [] if _fused(name, written) else [key for key in _PASSES if given.get(key, AUTO) not in (AUTO, 0, False)]
    for key in passes:
        log.lacking(dotted(params, key), f"the pass of torch's {OPTIMIZERS[name].name} for it")
    idle = [str(key) for key in given if key not in (*kinds, *passes, "max_grad_norm")]
    if idle:
        log.idle(f"{SECTION}.params ({', '.join(idle)})", "they are numbers inside kernels")
    return written


def _fused(name: str, params: Mapping[str, Any]) -> bool:
    return optimizer(name, bool(params.get("torch_adam")), bool(params.get("momentum"))).fused
