"""What was measured, as a Timeline: the counterpart of `simulation` for reality.

`read_trace` makes a timeline of the files that a profiler wrote, so that every view that looks at ops and seconds also
looks at a real step. A measurement has no demands, no rates and no buffers: those are empty, never guessed.
"""

from zerosim.measured.reading import Measured as Measured
from zerosim.measured.reading import read_trace as read_trace
