"""The timeline to look into: one drawing on a canvas that the report, the playground and measured traces share.

`figure(timeline)` is everything the drawing needs, as plain JSON; `script()` and `style()` are what a page has to
contain, once. In the page, `zerosim.timeline(element, figures)` makes all of it inside `element`: nothing is asked of
the page round it, of the network or of `eval`, and text from a scenario only ever becomes text.
"""

from zerosim.report.figure.assets import script, style
from zerosim.report.figure.payload import MOST, allotted, figure

__all__ = ["MOST", "allotted", "figure", "script", "style"]
