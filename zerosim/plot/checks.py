"""What every argument of a picture has to be, in one table, and the refusal of what is not.

Rule: the table knows an argument by its name, or by `picture.name` where pictures mean different things by one name.
All that is wrong in a call is told at once, as `plot.timeline: width: found 0; expected inches above 0`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from numbers import Real
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zerosim.errors import InputError, Problem, nearest
from zerosim.spec.topology import Topology
from zerosim.studies.collectives_check import Sweep
from zerosim.studies.curves import Curve
from zerosim.timeline import Timeline
from zerosim.units import show_seconds

P = ParamSpec("P")
R = TypeVar("R")
By = Literal["category", "total"]
KnobOf = Literal["step", "tokens"]
NetworkOf = Literal["slowdown", "step"]
WIDEST = 100.0  # inches; beyond it a file has too many pixels to be written


class Check(NamedTuple):
    """Whether a value makes sense, what does, and the words to choose from where there are such."""

    holds: Callable[[Any], bool]
    expected: str
    known: tuple[str, ...] = ()


def checked(draw: Callable[P, R]) -> Callable[P, R]:
    """The picture, with InputError for arguments that make no sense."""
    named = signature(draw)

    @wraps(draw)
    def asked(*args: P.args, **given: P.kwargs) -> R:
        wrong = [_problem(draw.__name__, *each) for each in named.bind(*args, **given).arguments.items()]
        if any(wrong):
            raise InputError(filter(None, wrong))
        return draw(*args, **given)

    return asked


def check_of(picture: str, name: str) -> Check:
    """The line of the table; KeyError where it has none."""
    return CHECKS.get(f"{picture}.{name}") or CHECKS[name]


def span(picture: str, start: float | None, end: float | None, whole: float) -> tuple[float, float]:
    """The seconds that are shown, some of which are in the step; InputError where none is."""
    first, last = start or 0.0, whole if end is None else end
    if whole and first >= whole:
        expected = f"a time before the end of the step, {show_seconds(whole)}"
        raise wrongly(picture, "start", show_seconds(first), expected)
    if not first < last or last <= 0:
        raise wrongly(picture, "end", show_seconds(last), f"a time after the start, {show_seconds(max(first, 0.0))}")
    return first, last


def wrongly(picture: str, name: str, found: str, expected: str, close: str = "") -> InputError:
    """One argument of a picture is wrong."""
    return InputError([Problem(f"plot.{picture}", name, found, expected, close)])


def _problem(picture: str, name: str, value: Any) -> Problem | None:
    check = check_of(picture, name)
    if check.holds(value):
        return None
    close = nearest(value, check.known) if isinstance(value, str) else ""
    return Problem(f"plot.{picture}", name, _found(value), check.expected, close)


def _found(value: Any) -> str:
    """A value as people write it, or what it is."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Real) or value is None:
        return str(value)
    if isinstance(value, Sequence) and not value:
        return "none"
    if isinstance(value, Curve):
        return f"a curve over {value.path}" if value.points else "a curve of no points"
    if isinstance(value, Sequence):
        return ", ".join(dict.fromkeys(map(_found, value)))
    return f"a {type(value).__name__}"


# --- what a value may be ---------------------------------------------------------------------------------------------


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> bool:
    return _number(value) and value >= 1 and value == int(value)


def _optional(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _every(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Any list of such, which a text is not."""
    return lambda value: isinstance(value, Sequence) and not isinstance(value, str) and all(map(holds, value))


def _some(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """At least one of them."""
    return lambda value: _every(holds)(value) and len(value) > 0


def _one_of(words: Any, optional: bool = False) -> Check:
    known = get_args(words)
    holds: Callable[[Any], bool] = lambda value: value in known  # noqa: E731  # of the table
    return Check(_optional(holds) if optional else holds, f"one of {', '.join(known)}", known)


def _a(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _rated(value: Any) -> bool:
    """A curve over a network that has points."""
    return isinstance(value, Curve) and value.network and bool(value.points)


_STEP = Check(_a(Timeline), "a step, as simulate and read_trace give")
_STEPS = Check(_some(_a(Timeline)), "one step or more in a list, as simulate and read_trace give")
_SECONDS = Check(_optional(_number), "seconds")
_NAMES = Check(_every(_text), "names in a list")
_SWITCH = Check(lambda value: value in (True, False), "True or False")

CHECKS: Mapping[str, Check] = {
    # what is drawn
    "played": _STEPS,
    "timeline.played": _STEP,
    "memory.played": _STEP,
    "topology": Check(_a(Topology), "a Topology, as named_topology gives (zerosim.spec.topology_file)"),
    "sweeps": Check(_some(lambda value: isinstance(value, Sweep) and bool(value.rows)), "sweeps that have rows"),
    "curve": Check(lambda value: isinstance(value, Curve) and bool(value.points), "a curve that has points"),
    "curves": Check(_some(_rated), "curves over the rate of a network"),
    "parameters": Check(lambda value: _number(value) and value >= 1, "a number of at least 1"),
    "gpus": Check(_count, "a whole number of at least 1"),
    "gpus_per_node": Check(_optional(_count), "a whole number of at least 1"),
    # what of it
    "tier": Check(_text, "the name of a tier"),
    "rank_class": Check(_text, "the name of a class of ranks"),
    "lanes": Check(_optional(_some(_text)), "names of lanes in a list"),
    "start": _SECONDS,
    "end": _SECONDS,
    "by": _one_of(By),
    "knob.of": _one_of(KnobOf, optional=True),
    "network.of": _one_of(NetworkOf),
    "target": Check(_optional(lambda value: _number(value) and value >= 0), "a number that is not below 0"),
    "capacity": Check(lambda value: _number(value) and value >= 0, "bytes, 0 for no line"),
    "offload": _SWITCH,
    "share": _SWITCH,
    "parts": _SWITCH,
    # how it looks, and where it goes
    "labels": _NAMES,
    "title": Check(_optional(_text), "a text"),
    "width": Check(lambda value: _number(value) and 0 < value <= WIDEST, f"inches above 0, at most {WIDEST:g}"),
    "ax": Check(_optional(_a(Axes)), "one Axes of matplotlib"),
    "figure": Check(_a(Figure), "a Figure of matplotlib"),
    "path": Check(lambda value: _text(value) or hasattr(value, "__fspath__"), "the path of a file"),
    "dpi": Check(lambda value: _number(value) and value > 0, "dots an inch, above 0"),
}
