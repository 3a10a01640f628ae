"""Wires between neighbours in a row, as tracks beneath it: each pair goes down, along, and up again.

Rule: two wires never lie on one another. Each has a port of its own on both of its ends; longer ones lie deeper, and a
track is used again where the last wire on it has ended (the left-edge rule of channel routing, Hashimoto and Stevens
1971). The picture of a hybrid cube mesh can so be read wire by wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Track(NamedTuple):
    """Pair number `pair` from x `left` to x `right` at a depth counted from 0."""

    pair: int
    left: float
    right: float
    depth: int


def ports(pairs: Sequence[tuple[int, int]], ends: Sequence[tuple[float, float]]) -> dict[tuple[int, int], float]:
    """The x of each pair's port at each of its ends, by (pair, end). `ends`: left and right x of each neighbour.

    Wires to the left leave on the left, the nearest first; those to the right on the right, the farthest first: so
    wires that share an end do not cross.
    """
    found: dict[tuple[int, int], float] = {}
    for number, (left, right) in enumerate(ends):
        own = [(pair, a if b == number else b) for pair, (a, b) in enumerate(pairs) if number in (a, b)]
        back = sorted((each for each in own if each[1] < number), key=lambda each: -each[1])
        forth = sorted((each for each in own if each[1] > number), key=lambda each: -each[1])
        step = (right - left) / (len(own) + 1)
        for place, (pair, _) in enumerate([*back, *forth], start=1):
            found[pair, number] = left + step * place
    return found


def tracks(pairs: Sequence[tuple[int, int]], at: dict[tuple[int, int], float], apart: float) -> list[Track]:
    """A track for each pair, the short ones on top; wires on one track are `apart` pixels apart."""
    spans = sorted((at[pair, b] - at[pair, a], at[pair, a], pair) for pair, (a, b) in enumerate(pairs))
    taken: list[list[tuple[float, float]]] = []
    out = []
    for length, left, pair in spans:
        right = left + length
        depth = next((d for d, row in enumerate(taken) if _free(row, left, right, apart)), len(taken))
        if depth == len(taken):
            taken.append([])
        taken[depth].append((left, right))
        out.append(Track(pair, left, right, depth))
    return out


def _free(row: Sequence[tuple[float, float]], left: float, right: float, apart: float) -> bool:
    return all(right + apart <= start or end + apart <= left for start, end in row)


def clear(track: Track, drops: Sequence[float]) -> tuple[float, float]:
    """The widest stretch of a track that no other wire crosses: its middle and its width."""
    stops = [track.left, *sorted(x for x in drops if track.left < x < track.right), track.right]
    width, start = max((b - a, -a) for a, b in pairwise(stops))
    return -start + width / 2, width
