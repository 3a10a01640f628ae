"""Where a scenario says what is tuned: changes that set a value there, and nowhere else.

A value stands in `training`, in the DeepSpeed or accelerate file, or in both, which then must agree; a key may be
spelled in several ways. Nothing here knows which values are good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerosim.spec.changes import Change
from zerosim.spec.deepspeed_batch import BATCH_KEYS, MICRO, STEPS
from zerosim.spec.deepspeed_schema import ALIASES, DEPRECATED
from zerosim.spec.deepspeed_values import AUTO
from zerosim.spec.deepspeed_zero import SECTION
from zerosim.spec.document import Document
from zerosim.spec.fsdp_accelerate import in_file
from zerosim.spec.fsdp_schema import named
from zerosim.spec.scenario_parts import DEEPSPEED, FSDP, Parts

Changes = tuple[Change, ...]
CHECKPOINTING = "activation_checkpointing"
_INTERNEVO = {  # what hierarchical_file takes for the same
    "bucket_size": "reduce_bucket_size",
    "overlap_grad_reduce": "overlap_sync_grad",
    "overlap_param_gather": "overlap_sync_param",
}
_SPELLED = {name: alias for alias, name in ALIASES.items()}
_BATCH = {MICRO: "micro_batch_size", STEPS: "gradient_accumulation_steps"}


@dataclass(frozen=True, slots=True)
class Places:
    """A scenario as it is written: its sections `training` and `strategy`; `deepspeed` and `fsdp` are the settings of
    these, wherever they stand, and empty where the strategy is another."""

    training: Mapping[str, Any]
    strategy: Mapping[str, Any]
    deepspeed: Mapping[str, Any]
    fsdp: Mapping[str, Any]

    @classmethod
    def of(cls, document: Document, base: Path, changes: Sequence[Change]) -> Places:
        """The places of a scenario that was read without a problem."""
        parts = Parts.of(document, base, changes)
        given = {place: parts.given(place) is not None for place in (DEEPSPEED, FSDP)}
        return cls(
            training=parts.given(("training",)) or {},
            strategy=parts.given(("strategy",)),
            deepspeed=parts.deepspeed().document.data if given[DEEPSPEED] else {},
            fsdp=_fsdp(parts) if given[FSDP] else {},
        )

    @property
    def zero(self) -> Mapping[str, Any]:
        """`zero_optimization`; empty where it is missing, or an old spelling."""
        section = self.deepspeed.get(SECTION)
        return section if isinstance(section, Mapping) else {}

    @property
    def has_batch(self) -> bool:
        """Whether the DeepSpeed file says anything of the batch, if only "auto"."""
        return any(key in self.deepspeed for key in BATCH_KEYS)

    def deprecated(self, name: str) -> str:
        """The old key that stands for one of `zero_optimization`; "" where none does."""
        return next((old for old in self.zero if DEPRECATED.get(old) == name), "")

    def in_zero(self, name: str, *value: Any) -> Changes:
        """`name` is that of DeepSpeed's own classes; more than one value: a path below the key."""
        written = next((key for key in self.zero if ALIASES.get(key, key) == name), _SPELLED.get(name, name))
        return (_set((*DEEPSPEED, SECTION, written, *value[:-1]), value[-1]),)

    def in_fsdp(self, name: str, value: Any) -> Changes:
        """A key of FSDP, in torch's name."""
        return (_set((*FSDP, *in_file(self.fsdp, (name,))), value),)

    def in_own(self, name: str, value: Any) -> Changes:
        """A key of a strategy whose settings stand in the scenario itself, under whichever of its names."""
        ((kind, section),) = self.strategy.items()
        other = _INTERNEVO.get(name, "")
        written = other if isinstance(section, Mapping) and other in section else name
        return (_set(("strategy", kind, written), value),)

    def batch(self, micro: int, steps: int) -> Changes:
        """Micro-batch and accumulation, where they are said; in `training` where nobody says them."""
        return tuple(self._batch({MICRO: micro, STEPS: steps}))

    def _batch(self, sizes: Mapping[str, int]) -> Iterator[Change]:
        for key, size in sizes.items():
            name = _BATCH[key]
            in_file = self.deepspeed.get(key, AUTO) != AUTO
            if in_file:
                yield _set((*DEEPSPEED, key), size)
            if not in_file or self.training.get(name) is not None:
                yield _set(("training", name), size)

    def checkpointing(self, value: str) -> Changes:
        """Activation checkpointing, which FSDP's settings may say too: then both."""
        said = next((str(key) for key in _flat(self.fsdp) if named(key) == CHECKPOINTING), "")
        if not said:
            return (_set(("training", CHECKPOINTING), value),)
        own = self.in_fsdp(CHECKPOINTING, value == "full")
        return (*own, _set(("training", CHECKPOINTING), value)) if CHECKPOINTING in self.training else own


def spelled(name: str) -> str:
    """A key of `zero_optimization` as configurations have it."""
    return _SPELLED.get(name, name)


def _fsdp(parts: Parts) -> Mapping[str, Any]:
    part, _ = parts.fsdp()
    return part.document.data if isinstance(part.document.data, Mapping) else {}


def _flat(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        yield str(key)
        if key == "fsdp_config" and isinstance(value, Mapping):
            yield from map(str, value)


def _set(path: tuple[str, ...], value: Any) -> Change:
    return Change(f"{'.'.join(path)}={value}", path, value)
