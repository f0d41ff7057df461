"""What an edit takes from its subject, counted anew from the stored scores."""

import numpy as np
import pytest

from helpers.results.archive import archive
from helpers.thinkedit.knowgic import load_edits
from helpers.thinkedit.stored_scores import facts_of
from helpers.thinkedit.subject_tables import KINDS, subject_table


@pytest.mark.parametrize("model", ["smollm2-135m", "gemma3-270m"])
def test_facts_are_counted_by_what_they_are_about(model):
    name = f"recalled-{model}"
    run = archive("thinkedit").get(f"{model}_{name}")
    facts = facts_of(run, "memit", mode="independent").set_index(["case_id", "item"])
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for edit in load_edits(name):
        for item, fact in enumerate(edit.facts):
            if (edit.case_id, item) not in facts.index:
                continue
            one = facts.loc[(edit.case_id, item)]
            own = fact.subject.casefold() == edit.subject.casefold()
            direct = edit.direct_fact is not None and fact.key == edit.direct_fact.key
            if one["known_before"]:
                ratios[KINDS[0 if direct else 1 if own else 2]].append(one["after"] / one["before"])
    table = subject_table([run], mode="independent").set_index("method")
    row = table.loc["memit"]
    assert row["facts"] == "/".join(str(len(ratios[kind])) for kind in KINDS)
    left = [float(row[kind].split()[0]) for kind in KINDS]
    assert left == pytest.approx([np.mean(ratios[kind]) for kind in KINDS], abs=0.0051)
    # The finding that notebook 06 states.
    assert left[0] < 0.05 < left[2]
    assert left[1] < left[2] / 2
