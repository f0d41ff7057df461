"""Other choices on stored scores: the default row is the table's, the others differ as they should."""

from __future__ import annotations

from helpers.peak.metrics_table import metrics_table
from helpers.peak.robustness import other_choices
from helpers.peak.stored_scores import scores_of
from helpers.results.archive import archive


def test_app_gains_less_where_p_is_of_the_whole_answer():
    stored = scores_of(archive("peak").get("smollm2-135m_peak-cf"))
    scores = {name: stored[name] for name in ("ROME", "ROME+APP")}
    table = other_choices(scores, hard_shares=(0.2, 0.5))
    plain = table.loc[(0.2, "geometric mean")]
    mean = 100 * metrics_table(scores["ROME"])["ANF_hard"].mean()
    assert plain["ROME ANF_hard"].startswith(f"{mean:.1f} ")
    assert plain["n"] == "112"
    anf = [
        [round(float(row[f"{method} ANF_hard"].split()[0])) for method in scores]
        for row in (plain, table.loc[(0.2, "whole answer")])
    ]
    assert anf == [[70, 37], [75, 54]]
    assert int(table.loc[(0.5, "geometric mean"), "n"]) >= 112
