"""What the signs of a picture of a machine mean: classes of ranks, kinds of link, thickness, and after a run warmth."""

from __future__ import annotations

from zerosim.report.machine import Machine
from zerosim.report.machine_marks import BADGE, LINE, Box, Line, Sheet, Words, cut, wide, wide_badge
from zerosim.units import show_rate

KEY = "key"  # a box that is a badge and nothing else
MOST_CLASSES, MOST_NOTES = 24, 8
ROW = 19.0
SAMPLE = 30.0  # pixels of a line
SCALE = (1e9, 1e10, 1e11, 1e12)  # bytes/s
LINKS = {
    "nvlink": "NVLink",
    "c2c": "NVLink-C2C",
    "pcie": "PCIe",
    "socket": "between sockets",
    "dram": "memory",
    "nvme": "drive",
    "network": "network",
}
WARMTH = ("below 25 %", "25 to 50 %", "50 to 80 %", "80 % and more")


def draw_legend(machine: Machine, drawn: Sheet, notes: tuple[str, ...], width: float) -> tuple[Sheet, float]:
    """A sheet of so many pixels in width, and its height."""
    sheet = Sheet()
    y = _classes(sheet, machine, width)
    kinds = {line.ink for line in drawn.lines}
    sample = "line" if machine.busy is None else "grey"  # after a run, colour tells how busy a link was
    entries = [(sample, kind, word) for kind, word in LINKS.items() if kind in kinds]
    y = _flow(sheet, "links", entries, width, y)
    y = _flow(sheet, "thickness", [("thick", str(rate), show_rate(rate)) for rate in SCALE], width, y)
    if machine.busy is not None:
        warm = [("heat", f"heat{step}", word) for step, word in enumerate(WARMTH)]
        y = _flow(sheet, "share of the step", [*warm, ("heat", "idle", "not used, or not known")], width, y)
    for note in notes[:MOST_NOTES]:
        sheet.words.append(Words(0, y + LINE, cut(note, width), "faint", note))
        y += LINE + 3
    if len(notes) > MOST_NOTES:
        sheet.words.append(Words(0, y + LINE, f"and {len(notes) - MOST_NOTES} more notes", "faint", "\n".join(notes)))
        y += LINE + 3
    return sheet, y


def _classes(sheet: Sheet, machine: Machine, width: float) -> float:
    y = 0.0
    for mark, said in enumerate(machine.classes[:MOST_CLASSES]):
        x = wide_badge(mark) + 8
        sheet.boxes.append(Box(0, y, x - 8, BADGE, KEY, about=said, mark=mark))
        sheet.words.append(Words(x, y + 11, cut(said, width - x), "", said))
        y += ROW
    more = len(machine.classes) - MOST_CLASSES
    if more > 0:
        sheet.words.append(Words(BADGE + 8, y + 11, f"and {more} more classes of ranks"))
        y += ROW
    return y + 4


def _flow(sheet: Sheet, title: str, entries: list[tuple[str, str, str]], width: float, y: float) -> float:
    """A titled row of samples with their words, in as many lines as they need."""
    indent = wide("share of the step") + 14
    sheet.words.append(Words(0, y + 11, title, "faint"))
    x = indent
    for what, name, word in entries:
        taken = SAMPLE + 6 + wide(word) + 16
        if x + taken > width and x > indent:
            x, y = indent, y + ROW
        points = ((x, y + 7), (x + SAMPLE, y + 7))
        match what:
            case "thick":
                sheet.lines.append(Line(points, "plain", float(name)))
            case "heat":
                sheet.lines.append(Line(points, "plain", SCALE[2], heat=name))
            case _:
                sheet.lines.append(Line(points, name, SCALE[0], heat="" if what == "line" else "idle"))
        sheet.words.append(Words(x + SAMPLE + 6, y + 11, word))
        x += taken
    return y + ROW
