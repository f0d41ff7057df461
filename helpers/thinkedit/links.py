"""Two ways to break a graph: an edit can take the first links of its chains, or the later ones.

Every chain of two steps or more begins with a fact about the edited subject, its *first link*. The others,
about other subjects, are *later links*. Where the first links are lost and the later ones are not, the model
has forgotten the subject; where the later ones are lost as well, the edit damages what has nothing to do with
it. Both leave a chain inactive, so that neither IFR nor the share of deep edits distinguishes them.

Of each edit the share of its links, known before it, that are known after it; means are over edits.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from pandas import DataFrame as Table

from helpers.editing.editors import distinct
from helpers.results.archive import Run
from helpers.results.notes import ShownTable, with_note, with_power
from helpers.results.statistics import (
    LEVEL,
    Contrast,
    Estimate,
    detectable,
    fraction_interval,
    paired,
)
from helpers.results.text import INCONCLUSIVE, verdicts_after_holm, with_interval
from helpers.thinkedit.metrics import DEFAULT, Known
from helpers.thinkedit.modes import BEFORE
from helpers.thinkedit.tables import UNDERTRAINED, facts_of, in_papers_order, model_of, verdict_of

FIRST, LATER, DIRECT_QUESTION = "first links", "later links", "direct question"
SUBJECT, ELSEWHERE = "the subject", "elsewhere"  # where a graph breaks first


def links_of_chains(steps_of_chains: Table) -> Table:
    """Every link of each edit's chains once: case_id, item, and ``kind``.

    ``steps_of_chains`` is that of ``metrics.chain_index``. A chain of one step is the direct question itself.
    """
    in_chain = steps_of_chains.groupby(["case_id", "chain"])["step"].transform("size")
    kinds = pd.Series(LATER, steps_of_chains.index)
    kinds = kinds.mask(steps_of_chains["step"] == 1, FIRST)
    kinds = kinds.mask(in_chain == 1, DIRECT_QUESTION)
    links = steps_of_chains[["case_id", "item"]].assign(kind=kinds)
    # A fact that is asked directly is no link, and one that begins a chain is no later one of another.
    order = {DIRECT_QUESTION: 0, FIRST: 1, LATER: 2}
    first_kind_first = links.sort_values("kind", key=lambda kind: kind.map(order), kind="stable")
    return first_kind_first.drop_duplicates(["case_id", "item"]).reset_index(drop=True)


def shares_known(facts: Table, links: Table) -> Table:
    """Of each edit the share of each kind of link that it leaves known, of those known before.

    Args:
        facts: of ``metrics.facts_table``.
        links: of ``links_of_chains``.

    Returns:
        A row an edit: a column for each kind, NaN where the edit has no known link of it, and for each kind
        the number of links, ``first links n``.
    """
    known_links = facts[facts["known_before"]].merge(links, on=["case_id", "item"], validate="1:1")
    by_kind = known_links.groupby(["case_id", "kind"])["known_after"]
    kinds = [DIRECT_QUESTION, FIRST, LATER]
    shares = by_kind.mean().unstack().reindex(columns=kinds).astype(float)
    counts = by_kind.size().unstack().reindex(columns=kinds).fillna(0).astype(int)
    return shares.join(counts.add_suffix(" n")).rename_axis(index="edit", columns=None)


def links_table(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Table:
    """``shares_known`` of every model, method and mode whose exact scores are stored."""
    tables_of_methods = []
    for run in runs:
        links = links_of_chains(run.tables["chains"])
        for key in run.keys:
            if key.kind == "exact" and key.mode != BEFORE:
                facts = facts_of(run, key.method, mode=key.mode, rule=rule)
                shares = shares_known(facts, links).reset_index()
                named = shares.assign(model=model_of(run), method=key.method, mode=key.mode)
                tables_of_methods.append(named)
    return pd.concat(tables_of_methods, ignore_index=True)


def in_mode(shares: Table, mode: str) -> dict[tuple[str, str], Table]:
    """The edits of each model and method made in one mode, in the papers' order; a row an edit."""
    of_mode = shares[shares["mode"] == mode]
    if of_mode.empty:
        return {}
    by_method = in_papers_order(of_mode).groupby(["model", "method"], sort=False)
    return {(str(model), str(method)): edits for (model, method), edits in by_method}


def link_estimates(edits: Table) -> dict[str, Estimate]:
    """The mean share of each kind of link that edits leave known, with its interval over edits."""
    return {kind: fraction_interval(edits[kind]) for kind in (DIRECT_QUESTION, FIRST, LATER)}


def later_minus_first(edits: Table) -> Contrast:
    """How many more of an edit's later links are known after it than of its first ones, on the same edits."""
    both = edits.dropna(subset=[FIRST, LATER])
    return paired(both[FIRST], both[LATER], "fraction")


def breaks_at(contrast: Contrast) -> str:
    """Where a graph breaks first: at ``SUBJECT``, ``ELSEWHERE``, or ``INCONCLUSIVE``."""
    if not contrast.p_value < LEVEL:
        return INCONCLUSIVE
    return SUBJECT if contrast.difference.mean > 0 else ELSEWHERE


def two_ways_table(shares: Table, *, mode: str = "independent") -> ShownTable:
    """A row a model and method: shares of first and of later links known after an edit, and which is larger.

    ``breaks at`` is the verdict of ``later_minus_first`` after Holm's correction for the methods of a model.
    A method that is another one by construction is not tested again (``distinct``).
    """
    edits_by_method = in_mode(shares, mode)
    contrasts = {key: later_minus_first(edits) for key, edits in edits_by_method.items()}
    verdicts = _corrected(contrasts)
    rows_of_methods = []
    least_detectable = []
    tested_n = []
    for (model, method), edits in edits_by_method.items():
        estimates = link_estimates(edits)
        contrast = contrasts[model, method]
        rows_of_methods.append(
            {
                "model": model,
                "method": method,
                **{kind: with_interval(estimate) for kind, estimate in estimates.items()},
                "later - first": with_interval(contrast.difference, signed=True),
                "breaks at": verdicts.get((model, method), "not tested again"),
                "n edits": contrast.difference.n,
                "all links, pooled": f"{_pooled(edits, FIRST)}, {_pooled(edits, LATER)}",
            }
        )
        if (model, method) in verdicts:
            least_detectable.append(detectable(edits[LATER] - edits[FIRST]))
            tested_n.append(contrast.difference.n)
    table = with_power(Table(rows_of_methods), least_detectable, tested_n, digits=2)
    has_mend = any(method.startswith("mend") for _, method in edits_by_method)
    return with_note(table, UNDERTRAINED if has_mend else "")


def _pooled(edits: Table, kind: str) -> str:
    """The share of all links of a kind at once, and their number: ``0.08 of 259``."""
    counts = edits[f"{kind} n"]
    return f"{(edits[kind] * counts).sum() / counts.sum():.2f} of {counts.sum()}"


def _corrected(contrasts: dict[tuple[str, str], Contrast]) -> dict[tuple[str, str], str]:
    """Where each model and method's graphs break, after Holm's correction for the methods of the model."""
    verdicts = {}
    for model in dict.fromkeys(model for model, _ in contrasts):
        methods = distinct([method for of_model, method in contrasts if of_model == model])
        tests = [contrasts[model, method] for method in methods]
        verdicts_alone = [breaks_at(test) for test in tests]
        corrected = verdicts_after_holm(verdicts_alone, [test.p_value for test in tests])
        for method, verdict in zip(methods, corrected, strict=True):
            verdicts[model, method] = verdict
    return verdicts


def changes_of_modes(
    shares: Table, modes: Sequence[str], *, than: str = "independent"
) -> ShownTable:
    """What comes back where a part of each edit is removed: shares of links in other modes minus ``than``.

    A row for each stored model, method, mode and kind of link, on the same edits; *Holm* corrects for the
    tests of one kind of link of one model.
    """
    rows_of_tests = []
    contrasts = []
    least_detectable = []
    references = in_mode(shares, than)
    for mode in modes:
        for (model, method), edits in in_mode(shares, mode).items():
            if (model, method) not in references:
                continue  # nothing is stored that it could be compared with
            reference = references[model, method].set_index("edit")
            changed = edits.set_index("edit")
            for kind in (DIRECT_QUESTION, FIRST, LATER):
                in_both_modes = (
                    reference[[kind]].join(changed[kind], rsuffix=" changed", how="inner").dropna()
                )
                contrast = paired(in_both_modes[kind], in_both_modes[f"{kind} changed"], "fraction")
                contrasts.append(contrast)
                least_detectable.append(
                    detectable(in_both_modes[f"{kind} changed"] - in_both_modes[kind])
                )
                rows_of_tests.append(
                    {
                        "model": model,
                        "method": method,
                        "mode": mode,
                        "links": kind,
                        than: f"{in_both_modes[kind].mean():.2f}",
                        "known": with_interval(fraction_interval(in_both_modes[f"{kind} changed"])),
                        "change": with_interval(contrast.difference, signed=True),
                        "n edits": contrast.difference.n,
                    }
                )
    tests = Table(rows_of_tests)
    if tests.empty:
        return ShownTable(tests)
    tests["Holm"] = ""
    for _, family in tests.groupby(["model", "links"]):
        p_values = [contrasts[index].p_value for index in family.index]
        verdicts_alone = [
            verdict_of(contrasts[index], more="more known", less="less known")
            for index in family.index
        ]
        tests.loc[family.index, "Holm"] = verdicts_after_holm(verdicts_alone, p_values)
    return with_power(tests, least_detectable, tests["n edits"], digits=2)
