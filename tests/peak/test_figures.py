"""One record's answers as they are drawn: in order, and pale where no measure counts them."""

from __future__ import annotations

import pandas as pd

from helpers.peak.figures import answer_probabilities, where_an_edit_acts

ANSWERS = pd.DataFrame(
    {
        "answer": ["new", "weak", "strong", "unknown", "between", "low"],
        "list": ["target", "correct", "correct", "correct", "hard", "random"],
        "before": [1e-5, 0.1, 0.4, 1e-4, 0.01, 1e-3],
        "ROME": [0.9, 1e-3, 0.3, 1e-6, 0.02, 1e-3],
    }
)


def rows(figure):
    """Labels from above, and for each state the labels of full and of pale marks."""
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    marked = [
        {labels[len(labels) - 1 - round(height)] for _, height in marks.get_offsets()}
        for marks in axes.collections
    ]
    return labels, marked


def test_answers_are_in_the_order_of_their_probability_before():
    labels, _ = rows(answer_probabilities(ANSWERS))
    assert labels == ["new", "strong", "weak", "unknown", "between", "low"]


def test_answers_that_the_filter_leaves_out_are_pale_and_not_in_the_title():
    figure = answer_probabilities(ANSWERS, title="a fact")
    _, (full, pale, *of_rome) = rows(figure)
    assert pale == {"unknown"}
    assert full == {"new", "strong", "weak", "between", "low"}
    assert of_rome == [full, pale]
    assert [marks.get_alpha() for marks in figure.axes[0].collections] == [1.0, 0.3] * 2
    title = figure.get_suptitle().replace("\n", " ")
    assert title.endswith("lose nine tenths of their probability: 1 of 2 after ROME")
    assert "pale: misranked" in figure.get_supxlabel()


def test_a_list_can_be_omitted_without_a_change_of_what_counts():
    labels, (_, pale, *_) = rows(answer_probabilities(ANSWERS, lists=("target", "correct")))
    assert labels == ["new", "strong", "weak", "unknown"]
    assert pale == {"unknown"}


def test_the_schematic_marks_the_edited_layer_at_the_subject():
    figure = where_an_edit_acts(["The", " Nile", " is"], 1, "Baltic", layer=2, layers=6)
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["layer 0", "layer 2", "layer 3", "layer 5"]
    (square,) = [marks for marks in axes.collections if marks.get_sizes()[0] == 130]
    assert square.get_offsets().tolist() == [[1, 1]]
    assert "layer 2, where it reads “Nile”" in figure.get_suptitle().replace("\n", " ")
    last = where_an_edit_acts(["The", " Nile"], 1, "Baltic", layer=5, layers=6)
    assert not last.axes[0].patches
