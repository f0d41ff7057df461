"""What an edit takes from its own subject: facts that neither IFR's direct fact nor CKP counts."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from helpers.results.archive import Run
from helpers.thinkedit.known import DEFAULT, Known
from helpers.thinkedit.metrics import preservation_terms, sums
from helpers.thinkedit.pooled import pooled
from helpers.thinkedit.report_tables import ordered
from helpers.thinkedit.stored_scores import facts_of
from helpers.thinkedit.technique_tables import with_interval

KINDS = ("the edited fact", "other facts about its subject", "facts about others (CKP)")


def sums_by_kind(
    run: Run, method: str, *, mode: str, rule: Known = DEFAULT
) -> dict[str, pd.DataFrame]:
    """For each of ``KINDS`` what each edit adds to the mean of p'/p, as ``pooled.pooled`` takes it.

    Raises:
        ArchiveError: the run has no exact scores of this method and mode.
    """
    facts = facts_of(run, method, mode=mode, rule=rule)
    kind = _kinds(run.tables["chains"])
    known = preservation_terms(facts).merge(kind, on=["case_id", "item"], validate="1:1")
    return {name: sums(known[known["kind"] == name], ["case_id"]) for name in KINDS}


def subject_table(runs: Sequence[Run], *, mode: str, rule: Known = DEFAULT) -> pd.DataFrame:
    """How much of the known facts an edit leaves, by what they are about (beyond the paper).

    CKP counts facts about other subjects only. Chains need the facts about the edited subject, too.

    Args:
        runs: published runs with exact scores.
        mode: which edits.
        rule: what counts as known, and which probability is taken.

    Returns:
        One row per (model, method), with a column for each of ``KINDS``: the mean of p'/p over the facts
        known before, pooled over edits, with its 95 % interval (bootstrap over edits). ``facts`` lists
        their numbers; ``edits``.
    """
    rows = []
    for run in runs:
        scores = run.tables["exact"]
        for method in scores.loc[scores["mode"] == mode, "method"].unique():
            found = sums_by_kind(run, method, mode=mode, rule=rule)
            row = {"model": run.about.source["model"], "method": method}
            row |= {name: with_interval(pooled(table)) for name, table in found.items()}
            counts = "/".join(str(table["n"].sum()) for table in found.values())
            rows.append(row | {"facts": counts, "edits": max(map(len, found.values()))})
    return ordered(pd.DataFrame(rows))


def _kinds(chains: pd.DataFrame) -> pd.DataFrame:
    """The kind of every fact of the table *chains*, one row per (case_id, item)."""
    direct = ~chains.duplicated(["case_id", "chain"], keep=False)
    facts = chains.assign(direct=direct).groupby(["case_id", "item"], as_index=False)
    found = facts[["own", "direct"]].any()
    kind = found["own"].map({True: KINDS[1], False: KINDS[2]}).mask(found["direct"], KINDS[0])
    return found[["case_id", "item"]].assign(kind=kind)
