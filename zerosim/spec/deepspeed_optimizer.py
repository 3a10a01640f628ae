"""The `optimizer` section: what an optimizer keeps and moves, by the name that DeepSpeed knows it by.

DeepSpeed turns names it knows into its fused kernels (runtime/engine.py, _configure_basic_optimizer; names in any
case) and looks the others up in torch.optim. What an optimizer costs stands in `optimizers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosim.spec.deepspeed_schema import OPTIMIZER
from zerosim.spec.deepspeed_section import Log, dotted, tell
from zerosim.spec.deepspeed_values import AUTO, BOOLEAN, NUMBER
from zerosim.spec.document import Document, shown
from zerosim.spec.optimizers import ADAMW, OPTIMIZERS, likely, optimizer
from zerosim.spec.strategy import Optimizer

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


def read_optimizer(top: Document, log: Log, stage: int, untested_allowed: bool) -> Optimizer:
    """The optimizer of the file; fused AdamW where it has none (the script builds it)."""
    if top.data.get(SECTION) is None:
        log.say("optimizer-assumed", "note", "The DeepSpeed file has no optimizer; fused AdamW is assumed.")
        return ADAMW
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
