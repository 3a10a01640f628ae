"""The best settings of a strategy: `tune` asks, for each point of a space of knobs, first how long its step takes at
the least, and plays only what can win.

`knobs` says what can be turned, and `places` where a scenario says it; `space` has the points; `looking` answers for
one point; `search` decides what is played; `tune` puts it together; `written` is the file with the best.
"""

from zerosim.studies.tuning.asked import Asked
from zerosim.studies.tuning.tune import Tuned, tune

__all__ = ["Asked", "Tuned", "tune"]
