"""The text of a YAML file to plain data and the place of every part, by a walk over PyYAML's nodes.

Stricter and simpler than YAML 1.1: equal keys are mistakes; keys are always text; `1e9` is a number; `010`, `12:30` and
dates stay text, since nobody means 8, 750 or a date by them; anchors may not grow a small file into a large one. The
walk also gives the places in a JSON text, of which all that matters here is YAML too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from zerosim.spec.document import DEEPEST, Mark, Path

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_REPEATED_NODES = 10_000  # nodes that aliases may add
_MOST_DIGITS = 400  # more are beyond any float, and Python refuses to read or write integers of thousands
_INTEGER = re.compile(r"[+-]?(0|[1-9][\d_]*)")
_HEXADECIMAL = re.compile(r"0x[\da-fA-F]+")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something the syntax allows and we do not."""

    path: Path
    mark: Mark
    found: str
    expected: str


@dataclass(slots=True)
class Tree:
    """What the walk gathers."""

    data: Any = None
    positions: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)


def read_tree(text: str) -> Tree:
    """Data and places of one YAML document; raises yaml.YAMLError for what is not YAML."""
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
    finally:
        loader.dispose()
    walk = _Walk()
    if node is not None:
        walk.tree.data = walk.build(node, ())
    return walk.tree


class _Walk:
    """One walk over a node tree. Aliases make it a graph: `open` guards against circles, `repeated` against growth."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.seen: set[int] = set()
        self.open: set[int] = set()
        self.repeated = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        self.tree.positions[path] = _mark(node)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        if len(path) >= DEEPEST:
            self.mistake(path[:1], node, "brackets nested too deep", f"at most {DEEPEST} levels")
            return None
        if not self.enter(node, path):
            return None
        if node.tag.removeprefix(_TAG) not in ("map", "seq"):
            self.mistake(path, node, f"the tag {node.tag}", "plain data")
            return None
        self.open.add(id(node))
        data = self.mapping(node, path) if isinstance(node, yaml.MappingNode) else self.sequence(node, path)
        self.open.remove(id(node))
        return data

    def enter(self, node: yaml.Node, path: Path) -> bool:
        if id(node) in self.open:
            self.mistake(path, node, "an alias inside of its own anchor", "data without circles")
            return False
        if id(node) in self.seen:
            self.repeated += 1 + len(node.value)
        self.seen.add(id(node))
        if self.repeated <= _REPEATED_NODES:
            return True
        if not any(mistake.found.startswith("aliases") for mistake in self.tree.mistakes):
            self.mistake(path, node, "aliases that expand too far", f"at most {_REPEATED_NODES} repeated parts")
        return False

    def sequence(self, node: yaml.Node, path: Path) -> list[Any]:
        return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in self.pairs(node, path):
            if not isinstance(key, yaml.ScalarNode):
                self.mistake(path, key, "a key that is not text", "a word as key")
                continue
            here = (*path, key.value)
            if key.value in data:
                first = self.tree.keys[here][0]
                self.mistake(here, key, f'the key "{key.value}" again', f"each key once; the first is in line {first}")
                continue
            self.tree.keys[here] = _mark(key)
            data[key.value] = self.build(value, here)
        return data

    def pairs(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """Own pairs, then those of merge keys (`<<: *base`) whose keys are not there yet."""
        own = [pair for pair in node.value if pair[0].tag != f"{_TAG}merge"]
        yield from own
        taken = {key.value for key, _ in own if isinstance(key, yaml.ScalarNode)}
        for key, merged in node.value:
            if key.tag != f"{_TAG}merge":
                continue
            bases = merged.value if isinstance(merged, yaml.SequenceNode) else [merged]
            for base in bases:
                if not isinstance(base, yaml.MappingNode) or not self.enter(base, path):
                    self.mistake((*path, "<<"), key, "a merge of something else", "a mapping, or a list of mappings")
                    continue
                fresh = [pair for pair in base.value if pair[0].value not in taken]
                taken |= {name.value for name, _ in fresh if isinstance(name, yaml.ScalarNode)}
                yield from fresh

    def scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        tag = node.tag.removeprefix(_TAG)
        if tag not in _SCALARS:
            self.mistake(path, node, f"the tag {node.tag}", "plain data")
            return None
        if tag == "str" and node.style:  # quoted: text, whatever it looks like
            return node.value
        return _SCALARS[tag](node.value)

    def mistake(self, path: Path, node: yaml.Node, found: str, expected: str) -> None:
        self.tree.mistakes.append(Mistake(path, _mark(node), found, expected))


def _mark(node: yaml.Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def number(text: str) -> int | float | str:
    """A number as everyone reads it; any other text stays text."""
    if len(text) > _MOST_DIGITS and (_INTEGER.fullmatch(text) or _HEXADECIMAL.fullmatch(text)):
        return -math.inf if text.startswith("-") else math.inf
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text) and not re.match(r"[+-]?0\d", text):
        return float(text)
    return _SPECIAL.get(text.lower(), text)


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": number,
    "int": number,
    "float": number,
    "bool": lambda text: text.lower() in ("yes", "true", "on"),
    "null": lambda text: None,
    "timestamp": str,
    "merge": str,
    "value": str,
}
