"""Reading what a machine costs and draws, and whether that goes together.

price: {currency: EUR, gpu_hour: 2}                                            # rented
price: {currency: EUR, node: 280000, years: 4, use: 80%, electricity: 0.25}    # bought
power: {gpu: 650 W, idle: 120 W, rest: 2.4 kW, pue: 1.2}                       # or {node: 8.1 kW}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zerosim.errors import InputError, Problem
from zerosim.spec.buying import HOURS, Power, Price, boards
from zerosim.spec.document import Document
from zerosim.spec.topology import Topology
from zerosim.spec.topology_schema import PowerSpec, PriceSpec
from zerosim.units import show_share

PRICES = ("gpu_hour", "node_hour", "node")  # of which one is said


def priced(topology: Topology, price: PriceSpec | None, power: PowerSpec | None, document: Document) -> Topology:
    """The topology with what is said of its price and power; InputError with all that does not go together."""
    problems: list[Problem] = []
    if price is not None:
        problems += _of_price(price, power, document)
    if power is not None:
        problems += _of_power(power, boards(topology), document)
    if problems:
        raise InputError(problems)
    notes = [*([_spread(price)] if price and price.node else []), *([_boards(power)] if power else [])]
    return replace(
        topology,
        price=None if price is None else _price(price),
        power=None if power is None else _power(power),
        notes=(*topology.notes, *filter(None, notes)),
    )


def _price(said: PriceSpec) -> Price:
    bought = said.node / (said.years * HOURS * said.use) if said.node and said.years else 0.0
    return Price(said.currency, said.node_hour or bought, said.gpu_hour or 0.0, said.electricity or 0.0)


def _power(said: PowerSpec) -> Power:
    if said.node is not None:
        return Power(gpu=0.0, rest=said.node, pue=said.pue)
    return Power(said.gpu, said.idle, said.rest, said.pue)


def _spread(said: PriceSpec) -> str:
    used = f"{said.years:g} years, in use {show_share(said.use)} of them"
    return f"an hour of a node is what it cost / the hours of {used}"


def _boards(said: PowerSpec) -> str:
    """That boards are at their limit, and what is left out."""
    if said.node is not None or (said.gpu is not None and said.rest):
        return ""
    gpus = "" if said.gpu is not None else "the most that their boards draw"
    rest = "" if said.rest else "nothing else in a node (power.rest)"
    return f"power is that of the GPUs: {', and '.join(filter(None, (gpus, rest)))}"


def _of_price(said: PriceSpec, power: PowerSpec | None, document: Document) -> Iterator[Problem]:
    given = [key for key in PRICES if getattr(said, key) is not None]
    if len(given) > 1:
        expected = "one of gpu_hour or node_hour (rented) and node (bought)"
        yield document.problem(("price",), " and ".join(given), expected)
    if not given and said.electricity is None:
        yield document.problem(("price",), "no price", f"one of {', '.join(PRICES)}, electricity")
    if said.node is not None and said.years is None:
        yield document.problem(("price", "years"), "nothing", "the years of its life, as the node is bought")
    for key in ("years", "use"):
        if said.node is None and key in said.model_fields_set:
            yield document.key_problem(("price", key), f'"{key}"', "node beside it, the price of one that is bought")
    if said.electricity is not None and power is None:
        yield document.problem(("power",), "nothing", "the power, as there is a price of electricity")


def _of_power(said: PowerSpec, limits: set[float], document: Document) -> Iterator[Problem]:
    if said.node is not None:
        for key in ("gpu", "idle", "rest"):
            if key in said.model_fields_set:
                yield document.key_problem(("power", key), f'"{key}"', "node without it, which is all that one draws")
        return
    if said.gpu is None and not all(limits):
        yield document.problem(("power", "gpu"), "nothing", "a power, as that of the GPU's board is not known")
    most = max(limits)
    if said.gpu is not None and most and said.gpu > most:
        yield document.problem(("power", "gpu"), f"{said.gpu:g} W", f"at most {most:g} W, which the board draws")
    computing = most if said.gpu is None else said.gpu
    if said.idle is not None and computing and said.idle > computing:
        yield document.problem(("power", "idle"), f"{said.idle:g} W", f"at most {computing:g} W, as while it computes")
