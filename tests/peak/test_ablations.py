"""The ablations' tables, from results made up by hand."""

from __future__ import annotations

import pandas as pd

from helpers.editing.editors import Variant
from helpers.peak.ablations import sequence_key, sequences_of, variants_of, with_neighbours
from helpers.results.archive import About, Run, archive
from helpers.results.notes import UNDERTRAINED_NETWORKS


def test_the_whole_list_is_last_of_the_neighbours():
    names = ("rome+app@neighbours=3", "rome+app", "rome+app@neighbours=1", "rome")
    metrics = {Variant.parse(name): pd.DataFrame({"AFF_hard": [0.5]}) for name in names}
    assert [str(v) for v in with_neighbours(metrics, "rome")] == [names[2], names[0], names[1]]


def test_the_packaged_networks_are_those_that_are_noted():
    stored = [archive("scorers").get(f"{name}_peak-cf") for name in ("smollm2-135m", "gemma3-270m")]
    assert [run.about.settings["mend"]["network"] for run in stored] == [*UNDERTRAINED_NETWORKS]


def test_sequences_and_variants_are_told_apart_by_their_names():
    names = ("rome+app after 10", "rome+app@neighbours=3", "ability: rome, in sequence: 10")
    run = Run("r", About({}), dict.fromkeys(names, pd.DataFrame()))
    assert sequences_of(run) == [sequence_key("rome+app", 10)]
    assert str(sequence_key("rome+app", 10)) == names[0]
    assert variants_of(run) == [names[1]]
