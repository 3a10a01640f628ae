"""`aio` and `activation_checkpointing`: sections that DeepSpeed reads with `get`, ignoring what it does not know.

`aio` says how drives are asked and matters where something is swapped to NVMe (runtime/swap_tensor/aio_config.py).
`activation_checkpointing` configures deepspeed.checkpointing, which only models that call it use
(runtime/activation_checkpointing/config.py, checkpointing.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from zerosim.errors import nearest
from zerosim.spec.deepspeed_batch import Given
from zerosim.spec.deepspeed_schema import ACTIVATION_CHECKPOINTING, AIO, Key
from zerosim.spec.deepspeed_section import Log, tell
from zerosim.spec.deepspeed_values import RefusedError
from zerosim.spec.document import Document, shown
from zerosim.spec.strategy import Aio, Zero

_SWAPS_NOTHING = "nothing is swapped to NVMe"
_SWAPS_NO_PARAMETERS = "only parameters are swapped directly, and offload_param is not on nvme"
_SYSTEM_CALLS = "it changes the number of system calls only"  # csrc/aio/common/deepspeed_aio_common.cpp
_REGION = (
    "it configures deepspeed.checkpointing; torch's checkpoint, which Hugging Face models call, ignores it "
    "(training.checkpoint_function: deepspeed is for models that call the other)"
)


def read_aio(top: Document, log: Log, zero: Zero) -> Aio:
    """How drives are asked; the values of a file that swaps nothing are kept, and told to change nothing."""
    devices = [zero.offload_param.device, zero.offload_optimizer.device]
    rest: dict[str, str] = {}
    if zero.stage < 3 or "nvme" not in devices:
        rest = dict.fromkeys(AIO, _SWAPS_NOTHING)
    else:
        rest["single_submit"] = _SYSTEM_CALLS
        if zero.offload_param.device != "nvme":
            rest["use_gds"] = _SWAPS_NO_PARAMETERS
    values = _read(top, "aio", AIO, rest, log)
    names = {field.name for field in fields(Aio)}
    return Aio(**{name: value for name, value in values.items() if name in names})


def read_checkpointing(top: Document, log: Log, given: Given) -> bool:
    """Whether the inputs of checkpointed blocks go to host memory."""
    rest: dict[str, str] = {}
    called = given.checkpoint_function == "deepspeed"
    if not called:
        rest = dict.fromkeys(ACTIVATION_CHECKPOINTING, _REGION)
    elif given.activation_checkpointing not in ("alternate", "full"):
        why = f"no block is checkpointed (training.activation_checkpointing: {given.activation_checkpointing})"
        rest = dict.fromkeys(ACTIVATION_CHECKPOINTING, why)
    values = _read(top, "activation_checkpointing", ACTIVATION_CHECKPOINTING, rest, log)
    if called and values.get("contiguous_memory_optimization"):
        _rule_out(top.below("activation_checkpointing"), values, log)
    return called and bool(values.get("cpu_checkpointing"))


def _rule_out(section: Document, values: Mapping[str, Any], log: Log) -> None:
    """What checkpointing.py asserts in `configure`."""
    for key in ("partition_activations", "number_checkpoints"):
        if not values.get(key):
            expected = f"{'true' if key.startswith('partition') else 'a number'} with contiguous_memory_optimization"
            found = shown(section.data[key]) if key in section.data else "nothing"
            log.problems.append(section.problem((key,), found, expected))


def _read(top: Document, key: str, table: Mapping[str, Key], rest: Mapping[str, str], log: Log) -> dict[str, Any]:
    """The values of a section; `rest` has why keys change nothing, whose values then may be anything."""
    given = top.data.get(key)
    if not isinstance(given, Mapping):
        if given is not None:
            log.problems.append(top.problem((key,), shown(given), "a mapping"))
        return {}
    section, values = top.below(key), dict[str, Any]()
    rows = {name: row._replace(idle=row.idle or rest.get(name, "")) for name, row in table.items()}
    for name in section.data:
        if name not in rows:
            _tell_unknown(key, str(name), table, log)
            continue
        try:
            values[name] = rows[name].kind(section.data[name]).value
        except RefusedError:
            if not rows[name].idle:
                log.value(section, name, rows[name].kind, None)
    tell(section, rows, section.data, log)
    return values


def _tell_unknown(key: str, name: str, table: Mapping[str, Key], log: Log) -> None:
    close = nearest(name, list(table))
    remedy = f"The nearest key is {close}." if close else ""
    log.say("unknown-key", "warning", f"{key}.{name} is no key of DeepSpeed, which ignores it.", remedy)
