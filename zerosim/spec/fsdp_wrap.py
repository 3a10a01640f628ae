"""What FSDP wraps: accelerate's policies, or `wrap` with names of the model's own modules.

Modules here have no classes, so that a transformer layer's class is taken to mean the model's blocks. Sources:
accelerate utils/dataclasses.py (`set_auto_wrap_policy`) and commands/launch.py, torch/distributed/fsdp/wrap.py.
"""

from __future__ import annotations

from zerosim.errors import nearest
from zerosim.spec.fsdp_schema import PREFIX
from zerosim.spec.fsdp_settings import Beside, Settings
from zerosim.spec.fully_sharded import Wrap
from zerosim.spec.loading import Schema, Whole, validated

_SIZE = 100_000_000  # commands/launch.py: the default of --fsdp_min_num_params


def read_wrap(settings: Settings, beside: Beside, version: int, assumptions: list[str]) -> Wrap:
    """Our own `wrap`, else accelerate's policy."""
    if "wrap" in settings:
        for name in ("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params"):
            if name in settings:
                settings.wrong(name, f"{name} beside wrap", "one of the two")
        return _own_wrap(settings, beside)
    default = "NO_WRAP" if settings.accelerate else "TRANSFORMER_BASED_WRAP"
    policy = settings.get("auto_wrap_policy", default)
    if policy == "SIZE_BASED_WRAP":
        least = settings.get("min_num_params", _SIZE)
        return _told(Wrap(blocks=False, least=least), settings)
    if policy == "TRANSFORMER_BASED_WRAP":
        classes = settings.get("transformer_layer_cls_to_wrap", None)
        if classes:
            verb = "is" if len(classes) == 1 else "are"
            assumptions.append(f"{', '.join(classes)} {verb} taken to name the blocks: FSDP wraps each block.")
        elif "auto_wrap_policy" not in settings:
            assumptions.append("Nobody says what FSDP wraps, so taken: each transformer block.")
        if version == 2 and settings.accelerate:
            assumptions.append(
                "Embedding, final norm and output layer belong to FSDP's root unit; accelerate 1.15 makes one unit of "
                "the first and one of the other two."
            )
        return Wrap()
    return _told(Wrap(blocks=False), settings)


def _told(wrap: Wrap, settings: Settings) -> Wrap:
    if wrap == Wrap(blocks=False):
        key = f"{PREFIX}auto_wrap_policy" if settings.accelerate else "wrap"
        value = "TRANSFORMER_BASED_WRAP" if settings.accelerate else "blocks"
        message = f"{key} wraps nothing: the whole model is one unit, gathered before it starts and reduced at its end."
        settings.log.say("one-unit", "warning", message, f"Set {key}: {value}.")
    return wrap


class _WrapSchema(Schema):
    blocks: bool = True
    modules: tuple[str, ...] = ()
    min_num_params: Whole = 0


def _own_wrap(settings: Settings, beside: Beside) -> Wrap:
    each = settings.written["wrap"]
    if each.value == "none":
        return _told(Wrap(blocks=False), settings)
    if each.value == "blocks":
        return Wrap()
    section = each.document.below(each.key)
    given = settings.attempt(lambda: validated(section, _WrapSchema))
    if given is None:
        return Wrap()
    names = [module.name for module in beside.model.root.walk()] if beside.model else given.modules
    for place, name in enumerate(given.modules):
        if name not in names:
            wrong = section.problem(("modules", place), f'"{name}"', "a module of the model", nearest(name, names))
            settings.log.problems.append(wrong)
    least = given.min_num_params
    return _told(Wrap(given.blocks and not least, given.modules, least), settings)
