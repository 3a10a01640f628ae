"""From a measured step to the rate of kernels: the factor with which a scenario takes as long as it was measured.

Only what waits for products and attention can tell how fast they are: where the step hardly gets longer with slower
ones, nothing is fitted; nor outside of the range in which a factor is still about kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import PurePath
from typing import Literal, NamedTuple

from zerosim.costs.calibrated import gpu_key
from zerosim.errors import InputError, Problem
from zerosim.scenario import Scenario
from zerosim.simulation import facts, programs, simulate
from zerosim.spec.calibration import EVERY_GPU, LEAST_FACTOR, MOST_FACTOR, Calibration, Compute
from zerosim.spec.topology import Gpu
from zerosim.units import show_count, show_seconds, show_share

LEAST_RESPONSE = 0.2  # d ln step / d ln (1 / factor) below which a step says nothing of kernels
NEAR = 0.9  # the factor at which the response is asked
CLOSE, GOOD = 1e-5, 1e-3  # of the step time: what is aimed at, and what is taken
MOST_STEPS = 12  # simulations; two or three are usual
Measure = Literal["step_seconds", "mfu", "tokens_per_second"]
LOOK_SLOWER = "the batch, the attention kernel, launch-bound kernels, the network and the offload of the scenario"
LOOK_FASTER = "the GPU, the model, the batch and the recomputation of the scenario"


class NoFitError(InputError):
    """No factor explains a step. `response`: of the step to the rate of kernels, where that is too small; else
    `shortest` and `longest`: the steps that some factor explains."""

    def __init__(
        self, problem: Problem, response: float | None = None, shortest: float = 0.0, longest: float = 0.0
    ) -> None:
        super().__init__([problem])
        self.response, self.shortest, self.longest = response, shortest, longest


class StepFit(NamedTuple):
    """The entry, the step without it, the measured one, and how much of the step answers to it."""

    entry: Compute
    usual_seconds: float
    seconds: float
    response: float


def measured_step(scenario: Scenario, measure: Measure, value: float, remark: str = "") -> Compute:
    """The factor that a measured step tells, with how it was found as its source."""
    seconds = seconds_of(scenario, measure, value)
    found = fit_step(scenario, seconds, "")
    said = {
        "step_seconds": "",
        "mfu": f"MFU {show_share(value)}, ",
        "tokens_per_second": f"{show_count(value)} tokens/s, ",
    }
    took, usual = show_seconds(seconds), show_seconds(found.usual_seconds)
    source = f"{PurePath(scenario.source).name}: {said[measure]}a step of {took} measured, {usual} by the catalogue"
    return found.entry._replace(source="; ".join(filter(None, (source, remark))))


def seconds_of(scenario: Scenario, measure: Measure, value: float) -> float:
    """The step of which so much was measured: `mfu`, or `tokens_per_second` of all GPUs together."""
    known = facts(scenario)
    match measure:
        case "mfu":
            return known.model_flops / known.peak_flops / value
        case "tokens_per_second":
            return known.tokens / value
        case "step_seconds":
            return value


def fit_step(scenario: Scenario, seconds: float, source: str) -> StepFit:
    """The factor of all GPUs; InputError where the step cannot tell it."""
    gpu, most = _gpu(scenario)
    base, steps = scenario.calibration or Calibration(""), programs(scenario)

    @cache
    def step(factor: float) -> float:
        entry = Calibration("", compute=(Compute(gpu, factor, source),))
        return simulate(scenario.replace(calibration=base.merged(entry)), steps).makespan

    usual, slower = step(1.0), step(NEAR)
    response = math.log(slower / usual) / math.log(1 / NEAR)
    if response < LEAST_RESPONSE:
        found = f"a step of which {show_share(response)} answers to the rate of kernels"
        problem = Problem(scenario.source, "", found, "one that mostly computes, such as a run on one node")
        raise NoFitError(problem, response)
    factor = _solved(step, seconds, [(1.0, usual), (1 / NEAR, slower)], most)
    if abs(math.log(step(factor) / seconds)) > GOOD:
        shortest, longest = step(most), step(LEAST_FACTOR)
        raise NoFitError(_outside(scenario, seconds, shortest, longest), None, shortest, longest)
    return StepFit(Compute(gpu, factor, source), usual, seconds, response)


def _gpu(scenario: Scenario) -> tuple[str, float]:
    """The name that the entry has, and the highest factor with which products stay below the peak."""
    gpus = {gpu_key(gpu.figures): gpu.figures for node in scenario.topology.nodes for gpu in node.gpus
            if isinstance(gpu.figures, Gpu)}  # fmt: skip
    name = next(iter(gpus)) if len(gpus) == 1 else EVERY_GPU
    return name, min(MOST_FACTOR, *(1 / gpu.matmul_efficiency for gpu in gpus.values()))


def _solved(step: Callable[[float], float], seconds: float, known: Sequence[tuple[float, float]], most: float) -> float:
    """The factor by secants in 1 / factor, in which steps are nearly straight lines; the end of the range where the
    step is further off. `known`: two points, 1 / factor and seconds."""
    (one, took), (other, longer) = known
    for _ in range(MOST_STEPS):
        rise = (longer - took) / (other - one)
        following = other + (seconds - longer) / rise if rise > 0 else 1 / LEAST_FACTOR
        following = min(1 / LEAST_FACTOR, max(1 / most, following))
        if following == other:
            break
        one, took, other, longer = other, longer, following, step(1 / following)
        if abs(math.log(longer / seconds)) < CLOSE:
            break
    return 1 / other


def _outside(scenario: Scenario, seconds: float, shortest: float, longest: float) -> Problem:
    slower = seconds > longest
    expected = f"{show_seconds(shortest)} to {show_seconds(longest)}, which kernels alone can explain; look at "
    return Problem(
        scenario.source, "", f"a step of {show_seconds(seconds)}", expected + (LOOK_SLOWER if slower else LOOK_FASTER)
    )
