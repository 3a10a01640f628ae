"""What can be seen in a played step.

Views are pure functions of a `Timeline`; they know no topology and no scenario, so they work on a measured step too.
"""

from zerosim.views.breakdown import Breakdown, Communication, breakdown, communication
from zerosim.views.choices import Choices
from zerosim.views.contention import Loss, contention
from zerosim.views.critical_path import Link, critical_path
from zerosim.views.memory import Curve, Holding, TierMemory, memory
from zerosim.views.phases import phases
from zerosim.views.stalls import Stall, stalls
from zerosim.views.summary import Facts, Summary, summarize
from zerosim.views.utilization import ResourceUse, Volume, collectives, utilization

__all__ = [
    "Breakdown",
    "Choices",
    "Communication",
    "Curve",
    "Facts",
    "Holding",
    "Link",
    "Loss",
    "ResourceUse",
    "Stall",
    "Summary",
    "TierMemory",
    "Volume",
    "breakdown",
    "collectives",
    "communication",
    "contention",
    "critical_path",
    "memory",
    "phases",
    "stalls",
    "summarize",
    "utilization",
]
