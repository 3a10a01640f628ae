"""The picture of a machine as one SVG: no script, no font, no other file; the same machine gives the same bytes.

A class of ranks has a letter beside its colour, a busy link its percentage; kinds of link have their own dashes. Light
or dark is the reader's choice (`prefers-color-scheme`). A title, a description and a tooltip on every
part serve those who cannot see it or point at it.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerosim.report.machine import Machine
from zerosim.report.machine_heat import warmth
from zerosim.report.machine_legend import KEY, draw_legend
from zerosim.report.machine_marks import BADGE, LINE, Box, Line, Sheet, Words, cut, letter, thickness, wide_badge
from zerosim.report.machine_page import draw_page
from zerosim.report.marks import number, text

MARGIN, LEAST = 16.0, 720.0
HOT, GLOW = "heat3", 8.0  # what is busiest has a shine of so many pixels around it
BADGE_INKS: tuple[tuple[str, bool], ...] = (  # Okabe and Ito (2008), and whether letters on it have to be white
    ("#0072B2", True),
    ("#E69F00", False),
    ("#009E73", True),
    ("#CC79A7", False),
    ("#D55E00", True),
    ("#56B4E9", False),
    ("#F0E442", False),
    ("#777777", True),
)
DASHES = {"c2c": "9 2", "socket": "7 3", "dram": "3 2", "nvme": "2 3", "network": "12 3 3 3"}
COLOURS = {
    "nvlink": "#009E73",
    "c2c": "#009E73",
    "pcie": "#0072B2",
    "socket": "#CC79A7",
    "dram": "#C08400",
    "nvme": "#6E8894",
    "network": "#D55E00",
}
HEAT = {"idle": "#999", "heat0": "#7FB8DA", "heat1": "#E3C520", "heat2": "#E68A00", "heat3": "#C4320A"}
STYLE = {
    "text": 'font:10px Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#222',
    ".title": "font-size:16px;font-weight:bold",
    ".strong": "font-weight:bold",
    ".faint": "fill:#555",
    ".middle": "text-anchor:middle",
    ".on-dark": "fill:#fff;font-weight:bold;text-anchor:middle",
    ".on-light": "fill:#000;font-weight:bold;text-anchor:middle",
    ".paper": "fill:#fff",
    ".server": "fill:#888;fill-opacity:.08;stroke:#888",
    ".box": "fill:#fff;stroke:#555",
    ".nvswitch": "fill:#DDF2EA;stroke:#009E73",
    ".leaf,.spine": "fill:#FBE7DB;stroke:#D55E00",
    ".cable": "fill:none;stroke:#D55E00;stroke-dasharray:4 3",
    ".socket": "fill:#E8EDF2;stroke:#555",
    ".pcie_switch": "fill:#DCEAF5;stroke:#0072B2",
    "path": "fill:none;stroke-linejoin:round",
    ".plain": "stroke:#777",
    ".slot": "fill:#888;fill-opacity:.3",
    ".hot": "fill:none;stroke:#C4320A;stroke-width:2",
    ".glow": "stroke:#C4320A;stroke-opacity:.25",
}
DARK_STYLE = {
    "text": "fill:#ddd",
    ".faint": "fill:#aaa",
    ".paper": "fill:#16181c",
    ".box": "fill:#24272d;stroke:#999",
    ".nvswitch": "fill:#123A2E",
    ".leaf,.spine": "fill:#45240F",
    ".socket": "fill:#2C333B;stroke:#999",
    ".pcie_switch": "fill:#12314A;stroke:#56B4E9",
}
FRAMES = {"server", "nvswitch", "leaf", "spine", "cable", "socket", "pcie_switch"}


def render(machine: Machine) -> str:
    """The whole picture."""
    page = draw_page(machine, LEAST)
    head = 26 + LINE * len(machine.about) + 14
    legend, tall = draw_legend(machine, page.sheet, (*page.notes, *machine.notes), page.width)
    whole = Sheet()
    whole.lay(page.sheet, MARGIN, head)
    whole.lay(legend, MARGIN, head + page.height + 24)
    width, height = page.width + 2 * MARGIN, head + page.height + 24 + tall + MARGIN
    body = [
        *_opening(machine, width, height),
        *(_line(line) for line in whole.lines),
        *(part for box in whole.boxes for part in _box(box)),
        *(_words(words) for words in whole.words),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _opening(machine: Machine, width: float, height: float) -> Iterator[str]:
    size = f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}"'
    labelled = 'role="img" aria-labelledby="machine-title machine-desc"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" class="zerosim-machine" {size} {labelled}>'
    yield f'<title id="machine-title">{text(machine.name)}</title>'
    yield f'<desc id="machine-desc">{text(_description(machine))}</desc>'
    yield f"<style>\n{_style(machine)}\n</style>"
    yield '<rect class="paper" width="100%" height="100%"/>'
    room = width - 2 * MARGIN
    name = cut(machine.name, room / 1.7)
    yield f'<text class="title" x="{number(MARGIN)}" y="26">{text(name)}<title>{text(machine.name)}</title></text>'
    for place, line in enumerate(machine.about, start=1):
        yield _words(Words(MARGIN, 28 + LINE * place + 2, cut(line, room), "", line))


def _description(machine: Machine) -> str:
    """For whoever cannot see it: every kind of server and what is in it, and the switches between them."""
    servers = [
        f"{server.number} × node ({server.hosts}) with "
        + ", ".join(f"{part.name} {part.model} {part.size}".strip() for part in server.parts[:64])
        for server in machine.servers
    ]
    return "\n".join([*machine.about, *servers, *(switches.said for switches in machine.switches), *machine.classes])


def _style(machine: Machine) -> str:
    """The rules, for this picture alone: it may stand inside a page that has rules of its own."""
    strokes = {f".{kind}-line": f"stroke:{colour}" for kind, colour in COLOURS.items()}
    dashes = {f".{kind}-line": f"{strokes[f'.{kind}-line']};stroke-dasharray:{dash}" for kind, dash in DASHES.items()}
    warm = {f".{name}": f"stroke:{colour}" for name, colour in HEAT.items()}
    bars = {f".{name}-bar": f"fill:{colour}" for name, colour in HEAT.items()}
    inks = [ink for ink, _ in BADGE_INKS[: len(machine.classes)]]
    classes = {f".class{place}": f"fill:{ink}" for place, ink in enumerate(inks)}
    tints = {f".tint{place}": f"fill:{ink};fill-opacity:.15" for place, ink in enumerate(inks)}
    light = _rules(STYLE | strokes | dashes | warm | bars | classes | tints)
    return "\n".join([*light, "@media (prefers-color-scheme:dark){", *_rules(DARK_STYLE), "}"])


def _rules(rules: dict[str, str]) -> list[str]:
    def scoped(selector: str) -> str:
        return ",".join(f".zerosim-machine {each}" for each in selector.split(","))

    return [f"{scoped(selector)}{{{rule}}}" for selector, rule in rules.items()]


def _line(line: Line) -> str:
    way = "L".join(f"{number(x)} {number(y)}" for x, y in line.points)
    ink = line.ink if line.ink == "plain" else f"{line.ink}-line"
    classes = f"{ink} {line.heat}".strip()
    title = f"<title>{text(line.about)}</title>" if line.about else ""
    wide = thickness(line.rate)
    glow = f'<path class="glow" stroke-width="{number(wide + GLOW)}" d="M{way}"/>\n' if line.heat == HOT else ""
    return f'{glow}<path class="{classes}" stroke-width="{number(wide)}" d="M{way}">{title}</path>'


def _box(box: Box) -> Iterator[str]:
    ink = box.ink if box.ink in FRAMES else "box"
    if box.several:
        yield _rect(box._replace(x=box.x + 3, y=box.y - 3), ink)
    yield f"<g><title>{text(box.about)}</title>" if box.about else "<g>"
    if box.ink != KEY:
        yield _rect(box, ink)
        if box.mark is not None:
            yield _rect(box, f"tint{box.mark % len(BADGE_INKS)}")
    if box.mark is not None:
        yield from _badge(box.x, box.y, box.mark)
    if box.busy is not None:
        yield from _fill(box, box.busy)
    yield from _lines(box)
    yield "</g>"


def _rect(box: Box, ink: str) -> str:
    at = f'x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" height="{number(box.height)}"'
    return f'<rect class="{ink}" {at} rx="3"/>'


def _badge(x: float, y: float, mark: int) -> Iterator[str]:
    place = mark % len(BADGE_INKS)
    size = f'width="{number(wide_badge(mark))}" height="{number(BADGE)}"'
    yield f'<rect class="class{place}" x="{number(x)}" y="{number(y)}" {size} rx="3"/>'
    tone = "on-dark" if BADGE_INKS[place][1] else "on-light"
    yield f'<text class="{tone}" x="{number(x + wide_badge(mark) / 2)}" y="{number(y + 11)}">{letter(mark)}</text>'


def _fill(box: Box, busy: float) -> Iterator[str]:
    """How busy it was, as a bar at the foot of the box; what was busiest has a frame of that colour, too."""
    room, warm = box.width - 8, warmth(busy, {})
    at = f'x="{number(box.x + 4)}" y="{number(box.bottom - 6)}" height="4"'
    yield f'<rect class="slot" {at} width="{number(room)}"/>'
    yield f'<rect class="{warm}-bar" {at} width="{number(room * min(1.0, busy))}"/>'
    if warm == HOT:
        yield _rect(box, "hot")


def _lines(box: Box) -> Iterator[str]:
    high = LINE * len(box.lines)
    top = box.y + (box.height - high - (6 if box.busy is not None else 0)) / 2
    for place, line in enumerate(box.lines):
        shift = wide_badge(box.mark) / 2 if box.mark is not None and place == 0 else 0.0
        ink = "middle strong" if place == 0 and box.mark is not None else "middle"
        yield _words(Words(box.middle + shift, top + LINE * place + 9.5, line, ink))


def _words(words: Words) -> str:
    title = f"<title>{text(words.about)}</title>" if words.about and words.about != words.text else ""
    ink = f' class="{words.ink}"' if words.ink else ""
    return f'<text{ink} x="{number(words.x)}" y="{number(words.y)}">{text(words.text)}{title}</text>'
