"""Every editor has a look of its own; text from data is shown as it is, in figures and on the site."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from book.tables import escaped
from helpers.editing.editors import EDITORS
from helpers.peak.construction.figures import known_by_relation
from helpers.results.style import (
    captioned,
    method_colour,
    method_hatch,
    method_line,
    method_mark,
    plain,
    save_figure,
)


def test_no_two_methods_look_the_same():
    with_app = [f"{editor}+app" for editor, entry in EDITORS.items() if entry.loss]
    methods = [*EDITORS, *with_app]
    lines = [method_line(method) for method in methods]
    looks = {(line["linestyle"], line["marker"], line["color"]) for line in lines}
    assert len(looks) == len(methods)
    assert len({method_hatch(editor) for editor in EDITORS}) == len(EDITORS)


def test_with_app_a_method_is_dashed_and_hollow_in_its_own_colour():
    plain, protected = method_line("ft-l"), method_line("ft-l+app")
    assert (plain["linestyle"], plain["fillstyle"]) == ("-", "full")
    assert (protected["linestyle"], protected["fillstyle"]) == ("--", "none")
    assert plain["color"] == protected["color"] == method_colour("ft-m")
    assert method_mark("ft-l")["linestyle"] == ""


@pytest.mark.parametrize("text", ["costs $5 or $6", "$x_1$", r"$\frac{1}$", "no dollars"])
def test_no_text_from_data_is_mathematics(text):
    """Two bare dollar signs would be, and what stands between them might not even parse."""
    assert plain(text).replace(r"\$", "").count("$") == 0
    figure = captioned(plt.figure(), text)
    figure.canvas.draw()
    plt.close(figure)


def test_a_relation_with_dollar_signs_is_a_label_as_it_is():
    named = {"relation": ["costs $^ or $_"], "correct_kept": [1], "correct": [2], "step": [""]}
    figure = known_by_relation(pd.DataFrame(named), caption="$^ and $_")
    figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [r"costs \$^ or \$_"]
    plt.close(figure)


def test_markdown_and_html_of_a_name_are_shown():
    assert escaped("a_b*c* <b>$x$</b> [l](u)") == r"a\_b\*c\* \<b\>\$x\$\</b\> \[l\](u)"


def test_letters_that_no_font_has_are_one_warning(tmp_path):
    figure, axes = plt.subplots()
    axes.set_title("東京")
    with pytest.warns(
        UserWarning, match=r"cities: no font that matplotlib uses has 東京; install"
    ) as told:
        save_figure(figure, "cities", tmp_path)
    assert len(told) == 1
