"""Lists on the command line: names of collectives, sizes, counts; with commas, and ranges in doublings.

`1KiB,1MiB` are two sizes, `1K-4G` is every doubling from one to the other, `1K-4Gx4` every fourfold. As in nccl-tests a
bare K, M, G or T after a size is binary. All that is wrong with an option is told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from zerosim.errors import InputError, Problem, nearest

Name = TypeVar("Name", bound=str)
Parse = Callable[[str], int]
LARGEST_SIZE, LARGEST_COUNT, MOST = 2**50, 10**7, 1000
_RANGE = re.compile(r"(?P<first>[^-]+)-(?P<last>[^-x]+)(?:x(?P<factor>\d+))?")
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PERF = re.compile(r"[-_ ]*perf$")


class Options:
    """Options as they are read, and what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def names(self, option: str, given: Iterable[str], known: Sequence[Name]) -> list[Name]:
        """Those of `known` that are meant, each once: `allreduce`, `AllReduce`, `all_reduce_perf` are `all_reduce`."""
        plain = {_bare(name): name for name in known}
        words = [word.strip() for text in given for word in text.split(",")]
        self.problems += (_unknown(option, word, plain) for word in words if _bare(word) not in plain)
        return list(dict.fromkeys(plain[_bare(word)] for word in words if _bare(word) in plain))

    def sizes(self, option: str, text: str) -> list[int]:
        """Bytes, in the order in which they stand there."""
        return self._numbers(option, text, _size)

    def counts(self, option: str, text: str) -> list[int]:
        """Whole numbers from 2 on."""
        return self._numbers(option, text, _count)

    def _numbers(self, option: str, text: str, parse: Parse) -> list[int]:
        found: list[int] = []
        for part in text.split(","):
            try:
                found += _part(part.strip(), parse)
            except _PartError as wrong:
                self.problems.append(Problem(option, "", f'"{wrong.found}"', wrong.expected, wrong.nearest))
        listed = list(dict.fromkeys(found))
        if len(listed) > MOST:
            self.problems.append(Problem(option, "", f"{len(listed)} of them", f"at most {MOST}"))
        return listed

    def check(self) -> None:
        """InputError with all problems, where there are any."""
        if self.problems:
            raise InputError(self.problems)


def _bare(word: str) -> str:
    return re.sub("[-_ ]", "", _PERF.sub("", word.casefold()))


def _unknown(option: str, word: str, plain: Mapping[str, str]) -> Problem:
    close = plain.get(nearest(_bare(word), list(plain)), "")
    return Problem(option, "", f'"{word}"', f"one of {', '.join(plain.values())}", close and f'"{close}"')


class _PartError(Exception):
    """What is wrong with one part of a list."""

    def __init__(self, found: str, expected: str, close: str = "") -> None:
        self.found, self.expected, self.nearest = found, expected, close


def _part(part: str, parse: Parse) -> list[int]:
    match = _RANGE.fullmatch(part)
    if match is None:
        return [parse(part)]
    first, last, factor = parse(match["first"].strip()), parse(match["last"].strip()), int(match["factor"] or 2)
    if last < first or factor < 2:
        raise _PartError(part, 'a range from less to more such as "1KiB-4GiB", or with a factor "1KiB-4GiBx4"')
    return list(_steps(first, last, factor))


def _steps(first: int, last: int, factor: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= factor


def _size(text: str) -> int:
    from zerosim.units import UnitError, parse_size

    number, suffix = text[:-1].strip(), _BINARY.get(text[-1:].casefold(), 1)
    try:
        size = parse_size(number) * suffix if suffix > 1 else parse_size(text)
    except UnitError as error:
        raise _PartError(text, 'a size such as "64KiB", or a range such as "1KiB-4GiB"', error.nearest) from None
    if not 1 <= size <= LARGEST_SIZE or size != int(size):
        raise _PartError(text, "whole bytes, from 1 to 1 PiB")
    return int(size)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 2 <= int(text) <= LARGEST_COUNT):
        raise _PartError(text, f'a count from 2 to {LARGEST_COUNT}, or a range such as "2-16": a collective needs two')
    return int(text)
