"""What a user has written of FSDP, key by key, wherever it stands: torch's names, `fsdp_config`'s, or a whole file.

A whole file of accelerate is laid open in `fsdp_accelerate`; this is the form in which all are the same. Every key ends
in one of four ways: its value is used, a problem, a finding that says why it changes nothing, or a warning that the
mechanism is not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.deepspeed_section import Log
from zerosim.spec.deepspeed_values import RefusedError
from zerosim.spec.document import Document, shown
from zerosim.spec.fsdp_schema import KEYS, PREFIX, SCRIPT, Key, named, spellings
from zerosim.spec.model import Model
from zerosim.spec.training import Checkpointing, Precision
from zerosim.spec.training_file import as_said

T = TypeVar("T")
INLINE = ("strategy", "fsdp")


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known beside the settings. None: nobody said it; `places` tell where it was said."""

    world_size: int | None = None
    ranks_per_node: int | None = None
    nodes: int | None = None
    model: Model | None = None
    precision: Precision | None = None
    activation_checkpointing: Checkpointing | None = None
    reentrant: bool | None = None
    micro_steps: int = 1
    places: Mapping[str, str] = field(default_factory=dict)

    def said(self, name: str) -> str:
        """A value of `training` with its place, as a message shows it."""
        return as_said(name, getattr(self, name), self.places)


class Written(NamedTuple):
    """One key where it stands, with its value."""

    document: Document
    key: str
    value: Any

    def problem(self, found: str, expected: str, close: str = "") -> Problem:
        return self.document.problem((self.key,), found, expected, close)


@dataclass(slots=True)
class Settings:
    """All keys, by their names in the table. `accelerate`: whoever wrote them counts on accelerate's defaults."""

    log: Log
    accelerate: bool = False
    written: dict[str, Written] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.written

    def get(self, name: str, default: Any) -> Any:
        """The value of a key, or the default."""
        return self.written[name].value if name in self.written else default

    def wrong(self, name: str, found: str, expected: str) -> None:
        """A problem of a key that was written."""
        self.log.problems.append(self.written[name].problem(found, expected))

    def read(self, document: Document, only: Iterable[str] = KEYS, lenient: bool = False) -> None:
        """The keys of one mapping; `lenient`: a key that nobody knows is ignored, as accelerate does in silence."""
        allowed = set(only)
        for key, given in document.data.items():
            name = named(key)
            if name in allowed:
                self._take(document, str(key), name, given)
            elif name:
                expected = f"{', '.join(SCRIPT)} beside config_file; this stands in the file"
                self.log.problems.append(document.key_problem((key,), str(key), expected))
            elif lenient:
                message = f"{key} is no key of fsdp_config, which accelerate ignores in silence."
                close = nearest(str(key), spellings())
                self.log.say("unknown-key", "warning", message, f"The nearest key is {close}." if close else "")
            else:
                self.log.problems.append(_unknown(document, str(key)))

    def _take(self, document: Document, key: str, name: str, given: Any) -> None:
        if name in self.written:
            both = f"{key} beside {self.written[name].key}, which is the same key"
            self.log.problems.append(document.key_problem((key,), both, "one of the two"))
            return
        try:
            self.written[name] = Written(document, key, KEYS[name].kind(given).value)
        except RefusedError as refusal:
            wrong = document.problem((key,), shown(given), refusal.expected, refusal.close)
            self.log.problems.append(wrong)

    def attempt(self, read: Callable[[], T]) -> T | None:
        """What `read` gives, or None after noting its problems."""
        try:
            return read()
        except InputError as error:
            self.log.problems += error.problems
            return None

    def tell(self, version: int) -> None:
        """What is worth saying of keys that do not shape the step of this version."""
        for name, each in self.written.items():
            row = KEYS[name]
            if str(version) not in row.versions:
                self._other_version(name, row, version)
            elif row.idle:
                self.log.idle(each.key, row.idle)
            elif row.lacks and each.value not in (False, None, ""):
                self.log.lacking(each.key, row.lacks)

    def _other_version(self, name: str, row: Key, version: int) -> None:
        """accelerate's files hold keys of both versions, one of which it drops; torch has no such argument."""
        each = self.written[name]
        if self.accelerate:
            remedy = _instead(name, each.value, version)
            if remedy:
                message = f"{each.key}: {shown(each.value)} changes nothing: version {version} does not read it."
                self.log.say("key-no-effect", "warning", message, remedy)
            else:
                self.log.idle(each.key, f"version {version} does not read it")
        else:
            expected = f"a key of version {version}; it is one of version {row.versions}"
            wrong = each.document.key_problem((each.key,), each.key, expected, _COUNTERPARTS[version].get(name, ""))
            self.log.problems.append(wrong)


_COUNTERPARTS: Mapping[int, Mapping[str, str]] = {  # what the version calls a key of the other one
    1: {
        "reshard_after_forward": "sharding_strategy",
        "prefetch_backward": "backward_prefetch",
        "prefetch_forward": "forward_prefetch",
    },
    2: {
        "sharding_strategy": "reshard_after_forward",
        "backward_prefetch": "prefetch_backward",
        "forward_prefetch": "prefetch_forward",
    },
}


def _instead(name: str, value: Any, version: int) -> str:
    """What would have been meant, where a key of the other version asks for something that this one does not do."""
    if version == 1 and name == "reshard_after_forward" and value not in (True, "FULL_SHARD"):
        # accelerate fills in sharding_strategy first, and asks for reshard_after_forward only where it is empty
        meant = value if isinstance(value, str) else "SHARD_GRAD_OP"
        return f"Write {PREFIX}sharding_strategy: {meant}, or {PREFIX}version: 2."
    if version == 2 and name == "sharding_strategy" and value != "FULL_SHARD":
        return {
            "SHARD_GRAD_OP": f"Write {PREFIX}reshard_after_forward: false.",
            "NO_SHARD": "Use strategy.ddp.",
        }.get(value, "Write a parallelism_config with dp_replicate_size and dp_shard_size.")
    return ""


def _unknown(document: Document, key: str) -> Problem:
    expected = "a key of accelerate's fsdp_config or of torch's FSDP"
    return document.key_problem((key,), f'unknown key "{key}"', expected, nearest(key, spellings()))
