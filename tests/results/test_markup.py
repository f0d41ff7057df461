"""Text from data is shown as it is, in figures and on the site."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from book.tables import escaped
from helpers.peak.construction.figures import known_by_relation
from helpers.results.style import captioned, plain


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
