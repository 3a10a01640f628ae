"""The room of pictures as a whole: loaded late, shown by notebooks, written with the same bytes, without pyplot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from tests.timelines import tiny
from zerosim import InputError, plot

PNG = b"\x89PNG\r\n"


def said(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_matplotlib_is_loaded_when_a_picture_is_asked_for() -> None:
    told = "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    code = f"import sys, zerosim, zerosim.plot\n{told}\nzerosim.plot.ledger(7e9, 8)\n{told}"
    assert said(code).split() == ["False", "False", "True", "False"]


def test_without_matplotlib_it_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['matplotlib'] = None\nimport zerosim\nfrom zerosim import plot\n"
        "try:\n    plot.timeline\nexcept zerosim.InputError as error:\n    print(error)"
    )
    assert said(code) == (
        "zerosim.plot: timeline: found no matplotlib; expected matplotlib, which draws (pip install zerosim[plot])"
    )


def test_every_public_name_is_there() -> None:
    assert dir(plot) == list(plot.__all__) == sorted(plot.__all__)
    assert all(callable(getattr(plot, name)) for name in plot.__all__)
    with pytest.raises(AttributeError, match="no attribute 'timelin'"):
        _ = plot.timelin


def test_a_notebook_shows_it_sharp() -> None:
    """IPython asks for this where no pyplot told it of figures."""
    figure = plot.ledger(7e9, 8)
    image, size = figure._repr_png_()  # type: ignore[attr-defined]  # of ours
    assert image.startswith(PNG)
    wide, high = (int.from_bytes(image[place : place + 4], "big") for place in (16, 20))  # of the IHDR chunk
    assert (wide, high) == (2 * size["width"], 2 * size["height"])
    assert size["width"] == 640


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_a_file_has_the_same_bytes_every_time(kind: str, tmp_path: Path) -> None:
    first, again = (plot.save(plot.timeline(tiny()), tmp_path / f"{name}.{kind}") for name in ("a", "b"))
    assert first.read_bytes() == again.read_bytes()
    assert b"20" not in b"".join(line for line in first.read_bytes().splitlines() if b"Date" in line)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.svg, \.pdf, \.png"):
        plot.save(plot.ledger(7e9, 8), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_settings_of_the_user_stay_as_they_are() -> None:
    before = settings()
    plot.timeline(tiny())._repr_png_()  # type: ignore[attr-defined]  # of ours
    assert settings() == before


def settings() -> dict[str, object]:
    """All but the backend, which is looked for when it is asked for."""
    return {name: mpl.rcParams[name] for name in mpl.rcParams if name != "backend"}


@pytest.mark.parametrize("width", [3.4, 9.0])
def test_nothing_is_cut_off(width: float) -> None:
    """All that is drawn lies within the paper, however wide that is."""
    for figure in (
        plot.timeline(tiny(), width=width),
        plot.timelines([tiny(), tiny()], ["a", "b"], width=width),
        plot.memory(tiny(), width=width),
        plot.breakdown([tiny()], ["a step"], width=width),
        plot.ledger(7e9, 8, capacity=80e9, offload=True, width=width),
    ):
        within(figure)


def within(figure: Figure) -> None:
    figure.draw_without_rendering()
    drawn, paper = figure.get_tightbbox(), figure.get_size_inches()
    assert drawn.x0 >= -0.01
    assert drawn.y0 >= -0.01
    assert drawn.x1 <= paper[0] + 0.01
    assert drawn.y1 <= paper[1] + 0.01
    below = min(ax.get_tightbbox().y0 for ax in figure.axes)  # type: ignore[union-attr]  # axes are visible
    assert all(legend.get_window_extent().y1 <= below + 1 for legend in figure.legends)
