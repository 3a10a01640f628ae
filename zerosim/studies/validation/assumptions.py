"""What is assumed where a row says nothing: one table (assumptions.yaml), and the list of what was taken of it.

`Ledger.ask` answers a field and writes down that it was assumed; `Ledger.note` writes down what was concluded. Nothing
is assumed anywhere else. Rule: conditions are words of a row's columns or of what was found out by then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import yaml

from zerosim.spec.devices import Grade
from zerosim.spec.document import shown
from zerosim.spec.measured_row import Row

Runtime = Literal["fsdp", "deepspeed", "ddp", "internevo", "megatron"]


class CannotError(Exception):
    """The row asks for something that cannot be built; its text is the reason."""


class Program(NamedTuple):
    """How a framework trains, apart from what a row says. `padded`: the vocabulary is a multiple of it.

    `reduce`: dtype of gradients on FSDP's wire; `param` is that of the gathered parameters. `torch_optimizer`: its
    optimizer is torch's, several kernels in a row. `gelu`: as transformers names it. `cross_entropy`: where it
    is not as the kernels are. `whole_head`: all positions pass the head of a masked model. `transformer`: the tree of a
    model that is called a Transformer and no more. `bins`: batches are made of sequences whose lengths differ by less
    than this, and padded to the longest; 0 pads all to the length that is told.
    """

    name: str
    runtime: Runtime
    tree: str
    dropout: float
    kernels: str
    attention: str
    checkpointing: str
    sync: bool = False
    reduce: str = "param"
    torch_optimizer: bool = False
    positions: str = "model"
    padded: int = 1
    ffn_multiple: int = 1
    clipping: float = 1.0
    whole_head: bool = True
    checkpoint_function: str = "torch"
    cross_entropy: str | None = None
    gelu: str = "gelu"
    transformer: str = ""
    bins: int = 0


class Entry(NamedTuple):
    """One assumption: the value of a field where all words of `when` are found."""

    field: str
    when: Mapping[str, str]
    value: Any
    why: str
    grade: Grade
    source: str

    def holds(self, facts: Mapping[str, str]) -> bool:
        """Whether all its conditions do."""
        return all(re.search(words, facts.get(name, ""), re.IGNORECASE) for name, words in self.when.items())


# What the time of a step goes with, more or less; of others (the vocabulary, the size of a head) it hardly does.
WEIGHTY = frozenset(
    ("sequence_length", "micro_batch", "accumulation", "layers", "hidden", "precision", "stage", "offload_optimizer",
     "network_gbps", "gpus_per_node", "real_share")
)  # fmt: skip
KERNELS = frozenset(("activation_checkpointing", "attention_kernel", "kernels"))  # as usual in the program
USUAL: Grade = "A"  # of what a program does unless it is told otherwise
GUESSED: Grade = "R"  # of a number which the table marks as one


class Ledger:
    """What had to be assumed of one row, in order; `doubts`: how well what matters to its time is known, by grade."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._told: dict[str, None] = {}
        self._doubts: dict[str, Grade] = {}
        for column in row.unread:
            self.unread(column)
        for column in sorted(row.guessed):
            self.assume(column, f"{getattr(row, column):g} (the table's guess)", GUESSED)

    @property
    def told(self) -> tuple[str, ...]:
        """All of it, each once."""
        return tuple(self._told)

    @property
    def doubts(self) -> Mapping[str, Grade]:
        """Grades by field."""
        return MappingProxyType(self._doubts)

    def note(self, text: str) -> None:
        """Something concluded."""
        self._told[text] = None

    def assume(self, field: str, text: str, grade: Grade) -> None:
        """Something taken for a field, by a grade as in the catalogue."""
        self.note(f"{field.replace('_', ' ')} {text}")
        if field in WEIGHTY or field in KERNELS:
            self._doubts[field] = grade

    def unread(self, column: str) -> None:
        """Something told in a column that is not understood."""
        self.note(unread(self.row, column))

    def ask(self, field: str, **known: object) -> Any:
        """What is assumed for a field."""
        facts = {**self.row.raw, **{name: str(value) for name, value in known.items()}}
        found = next(entry for entry in entries() if entry.field == field and entry.holds(facts))
        self.assume(field, f"{found.value} ({found.why})", found.grade)
        return found.value


def unread(row: Row, column: str) -> str:
    """What is said of a cell that tells something which nobody understands."""
    return f"{column}: found {shown(row.raw.get(column, '').strip())}, not read"


def program_of(row: Row) -> Program:
    """How the framework of a row trains."""
    words = row.framework
    for entry in _table()["programs"]:
        without = entry.get("unless")
        if re.search(entry["words"], words, re.IGNORECASE) and not (without and re.search(without, words, re.I)):
            return Program(**{name: value for name, value in entry.items() if name not in ("words", "unless")})
    raise AssertionError("the last program is of any framework")


@cache
def entries() -> tuple[Entry, ...]:
    """All assumptions, in the order of their weight."""
    return tuple(Entry(**entry) for entry in _table()["fields"])


@cache
def _table() -> Mapping[str, Any]:
    text = files(__package__).joinpath("assumptions.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return MappingProxyType(loaded)
