"""Reads numbers and switches out of a Hugging Face config.json, whichever of its many names a family gives them.

Every reading that fails is kept, so that `done` tells all mistakes of a file at once; until then a wrong number is 0,
which no check of proportions complains about. Keys that no reader asks for are none of our business: a config.json
holds dozens that do not change a shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.document import Document, by_place, shown
from zerosim.units import UnitError, parse_count

HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
VOCABULARY = ("vocab_size",)
_KNOWN = frozenset((*HIDDEN, *LAYERS, *HEADS, *KV_HEADS, *FFN, *POSITIONS, *VOCABULARY))
_LIMIT = 100_000_000  # no width, depth or vocabulary is beyond; keeps a slip of the finger from filling the memory
_MOST_LAYERS = 10_000


class Config:
    """One config.json being read."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.data: Mapping[str, Any] = document.data
        self.problems: list[Problem] = []

    def hidden(self) -> int:
        return self.whole(HIDDEN)

    def layers(self, names: tuple[str, ...] = LAYERS, default: int | None = None) -> int:
        return self.whole(names, default, most=_MOST_LAYERS)

    def heads(self) -> int:
        return self.whole(HEADS)

    def vocabulary(self) -> int:
        return self.whole(VOCABULARY)

    def whole(self, names: tuple[str, ...], default: int | None = None, most: int = _LIMIT) -> int:
        """A positive whole number under any of its names; null is as good as missing."""
        name, given = self._given(names)
        if given is None:
            return self._missing(names, default)
        try:
            value = parse_count(given)
        except UnitError as error:
            return self.wrong(name, given, f"a whole number from 1 to {most}", error.nearest)
        if not (value == int(value) and 1 <= value <= most):
            return self.wrong(name, given, f"a whole number from 1 to {most}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        given = self.data.get(name)
        if given is None or isinstance(given, bool):
            return default if given is None else given
        self.wrong(name, given, "true or false")
        return default

    def rate(self, name: str, default: float) -> float:
        """A number from 0 to 1."""
        given = self.data.get(name)
        if given is None:
            return default
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
            self.wrong(name, given, "a number from 0 to 1")
            return default
        return float(given)

    def word(self, name: str, default: str) -> str:
        given = self.data.get(name)
        if given is None or isinstance(given, str):
            return default if given is None else given
        self.wrong(name, given, "a name")
        return default

    def head(self) -> str:
        """The class of the whole model with its head, or nothing."""
        given = self.data.get("architectures")
        if not given:
            return ""
        if isinstance(given, list) and isinstance(given[0], str):
            return given[0]
        self.wrong("architectures", given, "a list of class names")
        return ""

    def section(self, name: str) -> Config:
        """A mapping inside; empty where there is none. Its problems are told with those of this one."""
        given = self.data.get(name)
        if given is not None and not isinstance(given, Mapping):
            self.wrong(name, given, "a mapping")
        inner = Config(self.document.below(name) if isinstance(given, Mapping) else Document(self.document.source, {}))
        inner.problems = self.problems
        return inner

    def multiple(self, of: tuple[str, ...], value: int, part_of: tuple[str, ...], part: int) -> int:
        """value / part, which must be whole; 0 where one of them is wrong already."""
        if not value or not part:
            return 0
        if value % part:
            whole, piece = self._given(of)[0], self._given(part_of)[0]
            return self.wrong(whole, value, f"a multiple of {piece} ({part})")
        return value // part

    def wrong(self, name: str, found: object, expected: str, close: str = "") -> int:
        self.problems.append(self.document.problem((name,), shown(found), expected, close))
        return 0

    def done(self) -> None:
        """All numbers are read: tell what was wrong with them."""
        if self.problems:
            raise InputError(sorted(dict.fromkeys(self.problems), key=by_place))

    def _given(self, names: tuple[str, ...]) -> tuple[str, Any]:
        """The name in use and its value. Two names with two values are a clash."""
        found = [(name, self.data[name]) for name in names if self.data.get(name) is not None]
        for name, value in found[1:]:
            if value != found[0][1]:
                self.wrong(name, value, f"the same as {found[0][0]} ({shown(found[0][1])})")
        return found[0] if found else (names[0], None)

    def _missing(self, names: tuple[str, ...], default: int | None) -> int:
        if default is not None:
            return default
        strangers = sorted(str(key) for key in self.data if key not in _KNOWN)
        close = next((near for name in names if (near := nearest(name, strangers))), "")
        others = f" ({', '.join(names)})" if len(names) > 1 else ""
        self.problems.append(self.document.problem((names[0],), "nothing", f"a whole number{others}", close))
        return 0
