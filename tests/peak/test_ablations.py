"""The ablations' tables, from results made up by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers.editing.editors import Variant
from helpers.peak.ablation_figures import changes_by_neighbours
from helpers.peak.ablations import sequence_key, sequences_of, variants_of, with_neighbours
from helpers.results.archive import About, Run, archive
from helpers.results.notes import UNDERTRAINED_NETWORKS


def test_the_whole_list_is_last_of_the_neighbours():
    names = ("rome+app@neighbours=3", "rome+app", "rome+app@neighbours=1", "rome")
    metrics = {Variant.parse(name): pd.DataFrame({"AFF_hard": [0.5]}) for name in names}
    assert [str(v) for v in with_neighbours(metrics, "rome")] == [names[2], names[0], names[1]]


def test_answers_that_app_was_shown_are_told_from_the_others():
    """One record, two correct answers that count: with k = 1 the first is shown and the second is not."""
    rows = [
        ("target", 0, -3.0, -1.0),
        ("correct", 0, -1.0, -1.5),
        ("correct", 1, -1.2, -3.2),
        ("hard", 0, -4.0, -3.0),
        ("hard", 1, -5.0, -5.5),
        ("random", 0, -6.0, -6.0),
    ]
    columns = ["list", "answer_index", "sum_before", "sum_after"]
    table = pd.DataFrame(rows, columns=columns).assign(case_id=7, role="edit", tokens=1)
    names = ("rome+app", "rome+app@neighbours=1", "rome+app@neighbours=0", "rome")
    changes = changes_by_neighbours(dict.fromkeys(names, table), "rome", {"7": "P47"})
    found = changes.set_index(["given", "list", "is_shown"])["change"].to_dict()
    assert found == pytest.approx(
        {
            ("0", "correct", False): -1.25,
            ("0", "hard", False): 0.25,
            ("1", "correct", True): -0.5,
            ("1", "correct", False): -2.0,
            ("1", "hard", True): 1.0,
            ("1", "hard", False): -0.5,
            ("all", "correct", True): -1.25,
            ("all", "hard", True): 0.25,
        }
    )
    assert set(changes["relation"]) == {"P47"}


def test_the_packaged_networks_are_those_that_are_noted():
    stored = [archive("scorers").get(f"{name}_peak-cf") for name in ("smollm2-135m", "gemma3-270m")]
    assert [run.about.settings["mend"]["network"] for run in stored] == [*UNDERTRAINED_NETWORKS]


def test_sequences_and_variants_are_told_apart_by_their_names():
    names = ("rome+app after 10", "rome+app@neighbours=3", "ability: rome, in sequence: 10")
    run = Run("r", About({}), dict.fromkeys(names, pd.DataFrame()))
    assert sequences_of(run) == [sequence_key("rome+app", 10)]
    assert str(sequence_key("rome+app", 10)) == names[0]
    assert variants_of(run) == [names[1]]
