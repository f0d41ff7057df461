"""Every editor has a look of its own; text from data is shown as it is, in figures and on the site."""

from __future__ import annotations

import os
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from book.page_parts import escaped
from helpers.editing.editors import EDITORS
from helpers.results import figure as registry
from helpers.results.looks import method_line
from helpers.results.show import figure_output
from helpers.results.style import (
    PointLabel,
    label_points,
    save_figure,
    with_caption,
    without_mathematics,
)


def test_no_two_methods_look_the_same():
    methods = [*EDITORS, *(f"{editor}+app" for editor, entry in EDITORS.items() if entry.loss)]
    lines = [method_line(method) for method in methods]
    looks = {(line["linestyle"], line["marker"], line["color"]) for line in lines}
    assert len(looks) == len(methods)


@pytest.mark.parametrize("text", ["costs $5 or $6", "$x_1$", r"$\frac{1}$", "no dollars"])
def test_no_text_from_data_is_mathematics(text):
    """Two bare dollar signs would be, and what stands between them might not even parse."""
    assert without_mathematics(text).replace(r"\$", "").count("$") == 0
    figure = with_caption(plt.figure(), text, text)
    figure.canvas.draw()
    plt.close(figure)


USERS = {
    "text.usetex": True,
    "axes.grid": False,
    "figure.dpi": 40,
    "savefig.dpi": 30,
    "savefig.bbox": "tight",
    "savefig.facecolor": "black",
    "font.family": "monospace",
    "font.size": 20,
    "lines.linewidth": 9,
    "xtick.labelsize": "xx-large",
    "svg.hashsalt": "mine",
}


@pytest.fixture
def draw(monkeypatch):
    """A registered figure's function."""
    monkeypatch.setattr(registry, "_REGISTRY", {})

    @registry.figure("99_line")
    def line() -> Figure:
        """A line."""
        drawn, axes = plt.subplots(figsize=(2, 2))
        axes.plot([0, 1], [0, 1])
        return with_caption(drawn, "It rises", "drawn from nothing")

    return registry._REGISTRY["99_line"].draw


def test_a_figure_is_the_same_whatever_the_user_has_set(draw, tmp_path):
    expected = [path.read_bytes() for path in save_figure(draw(), "line", tmp_path / "plain")]
    shown = figure_output(draw(), "line")
    with plt.rc_context(USERS):
        figure = draw()
        assert [p.read_bytes() for p in save_figure(figure, "line", tmp_path / "own")] == expected
        assert figure_output(draw(), "line") == shown
        assert plt.rcParams["text.usetex"]
        assert plt.rcParams["font.size"] == 20
    plt.close("all")


def test_a_matplotlibrc_has_no_say_in_the_look(tmp_path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\naxes.grid.axis: x\nfont.size: 30\n")
    code = (
        "import matplotlib; from helpers.results.style import use_style; use_style();"
        "print({k: v for k, v in matplotlib.rcParams.items() if not k.startswith('backend')})"
    )
    looks = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "MPLCONFIGDIR": str(place), "MPLBACKEND": "agg"},
            capture_output=True,
            check=True,
        ).stdout
        for place in (tmp_path, tmp_path / "none")
    ]
    assert looks[0] == looks[1]


def test_markdown_and_html_of_a_name_are_shown():
    assert escaped("a_b*c* <b>$x$</b> [l](u)") == r"a\_b\*c\* \<b\>\$x\$\</b\> \[l\](u)"


def boxes_of_texts(figure: Figure):
    """The places of a panel's texts on the page, by text."""
    (axes,) = figure.axes
    figure.canvas.draw()
    # Without the line that leads from a label to its point.
    return {text.get_text(): Text.get_window_extent(text) for text in axes.texts}


def test_labels_of_points_that_lie_together_do_not_overlap():
    figure, axes = plt.subplots(figsize=(4, 3))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    points = [
        PointLabel(0.9 + n / 100, 0.95, name, "C0")
        for n, name in enumerate(("MEMIT", "RECT", "ROME"))
    ]
    label_points(axes, points, [PointLabel(0.5, 0.5, "", "C0")])
    boxes = boxes_of_texts(figure)
    assert set(boxes) == {"MEMIT", "RECT", "ROME"}
    in_order = [*boxes.values()]
    assert not any(a.overlaps(b) for n, a in enumerate(in_order) for b in in_order[:n])
    assert all(box.x1 < axes.get_window_extent().x1 + 8 for box in in_order)
    plt.close(figure)
