"""The answer as one HTML file: the timeline to zoom into, every number of the summary, the scenario, what was assumed.

Rules: one file that asks nothing of the network, and says so itself (Content-Security-Policy: only the style and the
script whose hashes stand in it). Whatever comes from outside is text, never markup. Numbers come from the Summary; only
shares are computed. The same inputs give the same bytes: no date, no name of a machine.
"""

from zerosim.report.page.document import LIMIT, render, style
from zerosim.report.page.shown import Origin, Said, Shown

__all__ = ["LIMIT", "Origin", "Said", "Shown", "render", "style"]
