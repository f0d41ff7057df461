"""Published runs of ThinkEdit and their tables, the paper's in the same form; needs no model.

A run is one model on one layout of the edits. Its tables are *chains* (which facts make up which chains)
and, of each method and mode, *exact*, *sampled* and *texts* (``TableKey``); method *none* in mode *before* is
the unedited model, in mode *again* another draw of it. A measure is the mean over edits of each edit's ratio,
at most 1; next to it is the ratio pooled as the authors pool, by Definitions 3 and 4 over all edits at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
from pandas import DataFrame as Table

from helpers.editing.editors import distinct, method_label
from helpers.results.archive import HALF_SHOWN, ArchiveError, Run, TableKey
from helpers.results.notes import AnyTable, ShownTable, as_shown, with_note, with_power
from helpers.results.statistics import (
    LEVEL,
    Contrast,
    Estimate,
    detectable,
    fraction_interval,
    paired,
    share_interval,
)
from helpers.results.text import (
    INCONCLUSIVE,
    model_words,
    published_table,
    verdicts_after_holm,
    with_interval,
)
from helpers.thinkedit import metrics
from helpers.thinkedit.knowgic import LAYOUTS, load_edited_graphs
from helpers.thinkedit.metrics import (
    DEEP,
    DEFAULT,
    DIRECT,
    OVERALL,
    OWN,
    SUCCESSFUL,
    Known,
    capped_mean,
    capped_ratios,
    pooled_ratio,
    sums_of,
)
from helpers.thinkedit.modes import AGAIN, BEFORE, PLACEBO, SEQUENCES

METHOD_KEYS = ["model", "method"]
STEPS = (OVERALL, "1", "2", "3", "4", "5")
MEASURES = ("IFR", "CKP")
SHARES = ("Efficacy", "Generalisation", "Specificity")
PRICE = ("Efficacy", "IFR", SUCCESSFUL, "CKP")  # of APP: what it is a price for, and what is paid
LONGER = "2 or more"
PLACEBO_MEASURES = ("IFR", OWN, "CKP")
ORDER_MEASURES = ("Efficacy", "IFR", "CKP")
UNEDITED_AGAIN = "unedited, again"  # a method's name: what a second draw keeps of the first
FACT_KINDS = (DIRECT, OWN, "CKP")  # facts by what they are about
UNDERTRAINED = "MEND: undertrained, the validation loss of the packaged networks was still falling"
_DRAWN = ("samples", "temperature", "seed", "max_new_tokens", "first_line")  # of samples and texts
_FORMS = {"fact": "object asked", "reverse": "subject asked", "yes_no": "yes or no"}
_ORDER = (
    "none",
    UNEDITED_AGAIN,
    "alphaedit",
    "memit",
    "rect",
    "prune",
    "prune-added",
    "rome",
)  # the paper's


def is_recalled(run: Run) -> bool:
    """Whether a run's edits are taken from what its model recalls."""
    return bool(run.about.source.get("layout") == f"recalled-{run.about.source['model']}")


def has_whole_graphs(run: Run) -> bool:
    """Whether a run's edits are of what its model recalls, with all chains of each graph scored."""
    return is_recalled(run) and not run.name.endswith(f"@{HALF_SHOWN}")


def model_of(run: Run) -> str:
    """A run's model, with its edits where they are neither the paper's nor of what the model recalls."""
    layout = run.about.source.get("layout", "2025-06")
    model_name = str(run.about.source["model"])
    if is_recalled(run) or layout == "2025-06":
        return model_name
    return f"{model_name}, {layout}"


def caption_of_runs(runs: Sequence[Run], *further_words: str, kind: str = "exact") -> str:
    """What scores of a kind are of: models, edits, preset, dtype and device, how samples were drawn."""
    models_by_settings: dict[tuple[str, ...], list[str]] = {}  # by what their scores are of
    for run in runs:
        source_of_run = {**run.about.source, **run.about.caption}
        first_key = next(key for key in run.keys if key.kind == kind)
        settings_of_scores = run.about.settings[str(first_key)]
        layout_words = "what it recalls" if is_recalled(run) else source_of_run["layout"]
        settings_words = (
            f"edits of {f'KnowGIC {layout_words}' if layout_words in LAYOUTS else layout_words}",
            f"preset {source_of_run['preset']}",
            f"{source_of_run['dtype']} on {source_of_run['device']}",
            *(
                f"{name} {settings_of_scores[name]}"
                for name in _DRAWN
                if name in settings_of_scores
            ),
        )
        edit_count = run.joined(kind)["case_id"].nunique()
        words_of_model = f"{model_words(source_of_run['model'])}, {edit_count} edits"
        models_by_settings.setdefault(settings_words, []).append(words_of_model)
    return "\n".join(
        ", ".join([f"ours: {'; '.join(models_in_words)}", *settings_words, *further_words])
        for settings_words, models_in_words in models_by_settings.items()
    )


def facts_of(
    run: Run, method: str, *, mode: str, rule: Known = DEFAULT, estimator: str = "exact"
) -> Table:
    """``metrics.facts_table`` of a method's stored edits; ArchiveError where there are none."""
    before = str(TableKey(estimator, "none", BEFORE))
    after = str(TableKey(estimator, method, mode))
    if after not in run.tables:
        raise ArchiveError(f"run {run.name!r} has no {estimator} scores of {method}, {mode}")
    return metrics.facts_table(run.tables[before], run.tables[after], rule=rule)


def terms_of_runs(
    runs: tuple[Run, ...], *, estimator: str = "exact", rule: Known = DEFAULT
) -> Table:
    """``metrics.terms_of`` every model, method and mode, and ``success_terms`` where scores are exact.

    A second draw of the unedited model is a method of every mode, ``UNEDITED_AGAIN``.
    """
    terms_by_run = [_terms_of_run(run, estimator, rule) for run in runs]
    filled = [terms for terms in terms_by_run if len(terms)]
    if not filled:
        return Table(columns=[*METHOD_KEYS, "mode", "measure"], dtype=str)
    return pd.concat(filled, ignore_index=True)


@lru_cache(maxsize=32)  # tables and figures of a notebook begin with the same runs
def _terms_of_run(run: Run, estimator: str, rule: Known) -> Table:
    keys_of_edits = [key for key in run.keys if key.kind == estimator and key.mode != BEFORE]
    modes_of_edits = dict.fromkeys(key.mode for key in keys_of_edits if key.mode != AGAIN)
    tables_of_methods = []
    for key in keys_of_edits:
        measure_terms = _terms_of_table(run, key, rule).assign(model=model_of(run))
        if key.mode == AGAIN:
            terms_of_second_draw = measure_terms.assign(method=UNEDITED_AGAIN)
            tables_of_methods += [terms_of_second_draw.assign(mode=mode) for mode in modes_of_edits]
        else:
            tables_of_methods.append(measure_terms.assign(method=key.method, mode=key.mode))
    return pd.concat(tables_of_methods, ignore_index=True) if tables_of_methods else Table()


def _terms_of_table(run: Run, key: TableKey, rule: Known) -> Table:
    """The terms of one method in one mode; of exact scores also those of success."""
    fact_probabilities = facts_of(run, key.method, mode=key.mode, rule=rule, estimator=key.kind)
    measure_terms = metrics.terms_of(fact_probabilities, run.tables["chains"])
    if key.kind != "exact":
        return measure_terms
    terms_of_success = metrics.success_terms(run.tables[str(key)])
    return pd.concat(
        [measure_terms, terms_of_success, _of_successful(measure_terms, terms_of_success)]
    )


def _of_successful(measure_terms: Table, terms_of_success: Table) -> Table:
    """The chains of the edits that succeed: of an edit that fails, much is left for another reason."""
    efficacy = terms_of_success[terms_of_success["measure"] == "Efficacy"]
    successful = efficacy.loc[efficacy["ratio"] == 1, "edit"]
    is_ifr_of_successful = (measure_terms["measure"] == "IFR") & measure_terms["edit"].isin(
        successful
    )
    return measure_terms[is_ifr_of_successful].assign(measure=SUCCESSFUL)


def split_app(measure_terms: Table) -> tuple[Table, Table]:
    """The methods as they are, and their versions with APP under the same names, to set side by side."""
    has_app = measure_terms["method"].str.endswith("+app")
    plain_names = measure_terms["method"].str.removesuffix("+app")
    return measure_terms[~has_app], measure_terms.assign(method=plain_names)[has_app]


def by_method(measure_terms: Table, mode: str) -> dict[tuple[str, str], Table]:
    """Terms of each (model, method) in one mode; ArchiveError where there are no results of it."""
    of_mode = measure_terms[measure_terms["mode"] == mode]
    if of_mode.empty:
        raise ArchiveError(f"no results of mode {mode!r}; there are {set(measure_terms['mode'])}")
    terms_by_method = of_mode.groupby(METHOD_KEYS)
    return {(str(model), str(method)): of_method for (model, method), of_method in terms_by_method}


def measure_table(measure_terms: Table, measures: Sequence[str], *, mode: str) -> Table:
    """A row per method. Of each measure its mean over edits (``IFR``) with its 95 % interval (``IFR low``,
    ``IFR high``), the numbers of ``IFR edits`` and ``IFR terms`` (chains or facts), and, of ratios, the
    ``Pooled`` one as the paper takes it (``IFR pooled``).
    """
    rows_of_methods = []
    for (model, method), terms_of_method in by_method(measure_terms, mode).items():
        row_of_method: dict[str, object] = {"model": model, "method": method}
        for measure in measures:
            terms_of_measure = terms_of_method[terms_of_method["measure"] == measure]
            sums_of_edits = sums_of(terms_of_measure)
            if measure in (*SHARES, DEEP):
                estimate = share_interval(terms_of_measure["ratio"])
            else:
                estimate = capped_mean(sums_of_edits)
                if measure != SUCCESSFUL:
                    row_of_method[f"{measure} pooled"] = pooled_ratio(sums_of_edits)
            row_of_method |= {
                measure: estimate.mean,
                f"{measure} low": estimate.low,
                f"{measure} high": estimate.high,
            }
            row_of_method |= {
                f"{measure} edits": len(sums_of_edits),
                f"{measure} terms": len(terms_of_measure),
            }
        rows_of_methods.append(row_of_method)
    return in_papers_order(Table(rows_of_methods))


def technique_table(measure_terms: Table, *, mode: str) -> Table:
    """IFR, CKP, efficacy, specificity (the paper's Tables 5 and 6) and generalisation of each method."""
    measured_shares = [share for share in SHARES if (measure_terms["measure"] == share).any()]
    return measure_table(measure_terms, [*MEASURES, *measured_shares], mode=mode)


def app_table(terms_without_app: Table, terms_with_app: Table, *, mode: str) -> Table:
    """Each method that has both, without and with APP, on the same edits: IFR and CKP next to the efficacy
    that they cost.
    """
    edit_columns = [*METHOD_KEYS, "mode", "edit"]
    edits_of_both = (
        terms_without_app[edit_columns].merge(terms_with_app[edit_columns]).drop_duplicates()
    )
    terms_by_side = {"without": terms_without_app, "with": terms_with_app}
    tables_of_sides = [
        measure_table(terms_of_side.merge(edits_of_both), PRICE, mode=mode).assign(APP=side)
        for side, terms_of_side in terms_by_side.items()
    ]
    both_sides = in_papers_order(pd.concat(tables_of_sides, ignore_index=True))
    both_sides.insert(len(METHOD_KEYS), "APP", both_sides.pop("APP"))
    return both_sides


def rule_table(
    runs: Sequence[Run], rules: Sequence[Known], methods: Sequence[str], *, mode: str
) -> ShownTable:
    """IFR and CKP of some methods under several rules for "known", a row a model, method and rule."""
    runs_of_methods = tuple(_of_methods(run, methods, mode) for run in runs)
    tables_of_rules = []
    for rule in rules:
        of_rule = technique_table(terms_of_runs(runs_of_methods, rule=rule), mode=mode)
        tables_of_rules.append(of_rule.assign(rule=str(rule)))
    all_rows = pd.concat(tables_of_rules)
    in_order = all_rows.sort_values(METHOD_KEYS, kind="stable", ignore_index=True)
    shown = as_text(in_order)
    table = shown.table.drop(columns=[share for share in SHARES if share in shown.table])
    table.insert(len(METHOD_KEYS), "rule", in_order["rule"])
    return replace(shown, table=table)


def _of_methods(run: Run, methods: Sequence[str], mode: str) -> Run:
    """The run without the exact scores of other methods and modes."""
    return run.only(
        [
            str(key)
            for key in run.keys
            if key.kind != "exact"
            or key.mode == BEFORE
            or (key.method in methods and key.mode == mode)
        ]
    )


def deep_table(measure_terms: Table, *, mode: str) -> Table:
    """Share of edits with no known chain of two steps or more left (Definition 2), of those that had one."""
    return measure_table(measure_terms, [DEEP], mode=mode).query(f"`{DEEP} edits` > 0")


def length_table(measure_terms: Table, *, mode: str) -> Table:
    """IFR overall and by chain length (the paper's Table 10), from the deducible chains of each."""
    chains = measure_terms[measure_terms["measure"] == "IFR"]
    by_length = chains.assign(measure=chains["length"].astype(str))
    longer_chains = chains[chains["length"] > 1].assign(measure=LONGER)
    chains_at_each_length = pd.concat([chains.assign(measure=OVERALL), by_length, longer_chains])
    return measure_table(chains_at_each_length, [*STEPS, LONGER], mode=mode)


def difference_table(
    measure_terms: Table,
    other_terms: Table,
    *,
    mode: str,
    other_mode: str = "",
    than: str = "",
    measures: Sequence[str] = MEASURES,
) -> ShownTable:
    """Mean differences on the same edits: each method's measures minus those in the other evaluation.

    There it is the same method in ``other_mode``, or the method ``than``; by default in the same mode. A
    method that is ``than`` by construction is not compared with it (``distinct``).
    """
    references_by_method = by_method(other_terms, other_mode or mode)
    sums_by_measure = {}
    for (model, method), terms_of_method in by_method(measure_terms, mode).items():
        terms_of_reference = references_by_method.get((model, than or method))
        is_same_method = method == than or (
            mode not in SEQUENCES and len(distinct([than, method])) == 1
        )
        if terms_of_reference is None or (than and is_same_method):
            continue
        for measure in measures:
            reference_sums = sums_of(terms_of_reference[terms_of_reference["measure"] == measure])
            method_sums = sums_of(terms_of_method[terms_of_method["measure"] == measure])
            sums_by_measure[model, method, measure] = reference_sums, method_sums
    return _table_of_tests(sums_by_measure)


def longer_table(measure_terms: Table, *, mode: str) -> ShownTable:
    """IFR along chains of two steps or more minus that of the direct question, over edits with both.

    A method that is another one by construction is not tested again (``distinct``).
    """
    evaluated = by_method(measure_terms, mode)
    sums_by_measure = {}
    for (model, method), terms_of_method in evaluated.items():
        methods_of_model = [
            other_method for of_model, other_method in evaluated if of_model == model
        ]
        if mode not in SEQUENCES and method not in distinct(methods_of_model):
            continue
        chains = terms_of_method[terms_of_method["measure"] == "IFR"]
        direct_chains = chains[chains["length"] == 1]
        longer_chains = chains[chains["length"] > 1]
        sums_by_measure[model, method, "IFR"] = sums_of(direct_chains), sums_of(longer_chains)
    return _table_of_tests(sums_by_measure)


def with_placebos(measure_terms: Table) -> Table:
    """The evaluation with a further method for each that has a placebo, such as "rome, placebo"; the one
    given where none is stored.
    """
    foreign_terms = measure_terms[measure_terms["mode"] == PLACEBO]
    placebo_names = foreign_terms["method"] + f", {PLACEBO}"
    return pd.concat(
        [measure_terms, foreign_terms.assign(method=placebo_names, mode="independent")],
        ignore_index=True,
    )


def placebo_differences(measure_terms: Table) -> ShownTable:
    """Each edit minus another edit's update on the same chains: what is lost because of *this* edit."""
    if PLACEBO not in set(measure_terms["mode"]):
        raise ArchiveError(f"no placebo is stored: publish with modes: [independent, {PLACEBO}]")
    return difference_table(
        measure_terms,
        measure_terms,
        mode="independent",
        other_mode=PLACEBO,
        measures=PLACEBO_MEASURES,
    )


def placebo_lines(measure_terms: Table) -> list[str]:
    """What a foreign edit gives, a line for each model and method that has a placebo."""
    if PLACEBO not in set(measure_terms["mode"]):
        return []
    lines = []
    for row_of_method in measure_table(measure_terms, PLACEBO_MEASURES, mode=PLACEBO).to_dict(
        "records"
    ):
        measures_in_words = []
        for measure in PLACEBO_MEASURES:
            estimate = Estimate(
                row_of_method[measure],
                row_of_method[f"{measure} low"],
                row_of_method[f"{measure} high"],
                row_of_method[f"{measure} edits"],
            )
            measures_in_words.append(f"{measure} {with_interval(estimate)} (n = {estimate.n})")
        editor_label = method_label(row_of_method["method"])
        lines.append(
            f"{row_of_method['model']}: a foreign edit of {editor_label} gives {'; '.join(measures_in_words)}"
        )
    return lines


def orders_table(measure_terms: Table) -> Table:
    """A row for each order of a sequence that was made in several; no rows where none was."""
    tables_of_orders = []
    for order, mode in enumerate(SEQUENCES, start=1):
        if mode in set(measure_terms["mode"]):
            tables_of_orders.append(
                measure_table(measure_terms, ORDER_MEASURES, mode=mode).assign(order=order)
            )
    rows_of_orders = in_papers_order(pd.concat(tables_of_orders, ignore_index=True))
    order_count = rows_of_orders.groupby(METHOD_KEYS)["order"].transform("size")
    return rows_of_orders[order_count > 1].reset_index(drop=True)


def order_lines(measure_terms: Table) -> list[str]:
    """The lowest and the highest mean over the orders of each sequence that was made in several, and their
    difference; last, how many orders the others have.
    """
    lines = []
    for (model, method), orders in orders_table(measure_terms).groupby(METHOD_KEYS, sort=False):
        ranges_in_words = []
        for measure in ORDER_MEASURES:
            lowest = orders[measure].min()
            highest = orders[measure].max()
            if pd.notna(lowest):
                range_words = f"{lowest:.2f} to {highest:.2f} (range {highest - lowest:.2f})"
                ranges_in_words.append(f"{measure} {range_words}")
        joined_ranges = ", ".join(ranges_in_words)
        lines.append(
            f"{model}, {method_label(str(method))}, over {len(orders)} orders: {joined_ranges}"
        )
    return [*lines, "every other sequence: one order" if lines else "every sequence: one order"]


def order_differences(measure_terms: Table, *, than: str) -> ShownTable:
    """Each method's sequence minus that of ``than`` on the same edits, over all pairs of their orders.

    No rows where both were made in one order. ``lowest`` and ``highest`` are the pairs' mean differences. A
    ``verdict`` needs the same one in every pair, so its p-value is the pairs' largest one. ``Holm``:
    corrected for the tests of the same measure and model.
    """
    sequences = _sequences(measure_terms)
    tested_rows = []
    for (model, method), orders_of_method in sequences.items():
        orders_of_other = sequences.get((model, than), [])
        pair_count = len(orders_of_other) * len(orders_of_method)
        if method == than or pair_count < 2:
            continue
        for measure in ORDER_MEASURES:
            contrasts = [
                _contrast(
                    _ratios_of(terms_of_other, measure),
                    _ratios_of(terms_of_method, measure),
                    measure,
                )
                for terms_of_other in orders_of_other
                for terms_of_method in orders_of_method
            ]
            mean_differences = [contrast.difference.mean for contrast in contrasts]
            edit_count = contrasts[0].difference.n
            if edit_count:
                lowest = f"{min(mean_differences):+.2f}"
                highest = f"{max(mean_differences):+.2f}"
                verdict, p_value = _shared_verdict(contrasts)
                tested_rows.append(
                    (
                        model,
                        method,
                        measure,
                        pair_count,
                        lowest,
                        highest,
                        edit_count,
                        verdict,
                        p_value,
                    )
                )
    column_names = [
        *METHOD_KEYS,
        "measure",
        "pairs",
        "lowest",
        "highest",
        "edits",
        "verdict",
        "Holm",
    ]
    return _with_note_on_mend(_with_holm(Table(tested_rows, columns=column_names)))


def _shared_verdict(contrasts: Sequence[Contrast]) -> tuple[str, float]:
    """The verdict of several tests if it is the same one in all, and the p-value that all of them show it."""
    distinct_verdicts = {verdict_of(contrast) for contrast in contrasts}
    if len(distinct_verdicts) > 1:
        return INCONCLUSIVE, 1.0
    return distinct_verdicts.pop(), max(contrast.p_value for contrast in contrasts)


def _ratios_of(terms_of_method: Table, measure: str) -> pd.Series:
    """A method's capped ratio of a measure for each edit."""
    return capped_ratios(sums_of(terms_of_method[terms_of_method["measure"] == measure]))


def _sequences(measure_terms: Table) -> dict[tuple[str, str], list[Table]]:
    """Terms of each order in which the sequence of a (model, method) was made."""
    sequences: dict[tuple[str, str], list[Table]] = {}
    for mode in SEQUENCES:
        if mode in set(measure_terms["mode"]):
            for key, terms_of_order in by_method(measure_terms, mode).items():
                sequences.setdefault(key, []).append(terms_of_order)
    return sequences


def _table_of_tests(
    sums_by_measure: Mapping[tuple[str, str, str], tuple[Table, Table]],
) -> ShownTable:
    """Differences of capped ratios by (model, method, measure), from sums of the first and second side.

    They are tested over the edits of both sides (``statistics.paired``). ``verdict`` is of each test by
    itself, ``Holm`` corrected for the tests of the same measure and model. ``could show``: the smallest
    difference that as many edits would show in four of five cases, rounded up.
    """
    tested_rows = []
    for (*model_and_method, measure), sums_of_both in sums_by_measure.items():
        first_ratios, second_ratios = map(capped_ratios, sums_of_both)
        contrast = _contrast(first_ratios, second_ratios, measure)
        change = contrast.difference
        if change.n:
            change_in_words = with_interval(change, signed=True)
            detectable_difference = detectable(second_ratios - first_ratios)
            could_show = (
                np.ceil(round(100 * detectable_difference, 6)) / 100
                if detectable_difference <= 1
                else float("nan")
            )
            verdict = verdict_of(contrast)
            tested_rows.append(
                (
                    *model_and_method,
                    measure,
                    change_in_words,
                    change.n,
                    verdict,
                    contrast.p_value,
                    could_show,
                )
            )
    column_names = [*METHOD_KEYS, "measure", "difference", "edits", "verdict", "Holm", "could show"]
    table = _with_holm(Table(tested_rows, columns=column_names))
    return _with_note_on_mend(with_power(table, table["could show"], table["edits"], digits=2))


def _contrast(first: pd.Series, second: pd.Series, measure: str) -> Contrast:
    """The paired test of the edits' capped ratios of a measure."""
    return paired(first, second, "share" if measure in SHARES else "fraction")


def _with_holm(table: Table) -> Table:
    """The table with verdicts in place of the p-values in ``Holm``, by model and measure."""
    corrected = table.astype({"Holm": object})
    for _, family in table.groupby(["model", "measure"]):
        verdicts = verdicts_after_holm(family["verdict"].tolist(), family["Holm"].tolist())
        corrected.loc[family.index, "Holm"] = verdicts
    return corrected


def verdict_of(contrast: Contrast, *, more: str = "more", less: str = "less") -> str:
    """Which way a difference goes, or ``INCONCLUSIVE`` where chance explains it."""
    if not contrast.p_value < LEVEL:
        return INCONCLUSIVE
    return more if contrast.difference.mean > 0 else less


def wording_table(runs: Sequence[Run], *, rule: Known = DEFAULT) -> ShownTable:
    """Measures of edits made alone, with intervals over edits, and over the wordings of their prompts.

    Edits share wordings, and those of one may be alike; in brackets the number of wordings. For packaged
    graphs, which have texts.
    """
    rows_of_methods = []
    for run in runs:
        terms_of_run = terms_of_runs((run,), rule=rule)
        for (model, method), terms_of_method in by_method(terms_of_run, "independent").items():
            row_of_method: dict[str, object] = {"model": model, "method": method}
            for measure in (*MEASURES, metrics.OWN, DEEP):
                terms_of_measure = terms_of_method[terms_of_method["measure"] == measure]
                ratios = ratios_by_wording(run, terms_of_measure)
                interval_of = share_interval if measure == DEEP else fraction_interval
                row_of_method[measure] = with_interval(interval_of(ratios.to_numpy()))
                over_wordings = with_interval(fraction_interval(ratios))
                wording_count = ratios.index.nunique()
                row_of_method[f"{measure}, by wording"] = f"{over_wordings} ({wording_count})"
            rows_of_methods.append(row_of_method)
    return _with_note_on_mend(in_papers_order(Table(rows_of_methods)))


def ratios_by_wording(run: Run, terms_of_measure: Table) -> pd.Series:
    """A measure's value for each edit of a method, at most 1, with the wording of the edit's prompt as its
    relation: an interval of it is over wordings. For packaged graphs, which have texts.
    """
    wording_of_edit = {
        edit.case_id: edit.prompt for edit in load_edited_graphs(run.about.source["layout"])
    }
    ratio_of_edit = capped_ratios(sums_of(terms_of_measure))
    wordings = ratio_of_edit.index.map(wording_of_edit)
    return ratio_of_edit.set_axis(wordings).rename_axis("relation")


def known_table(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Table:
    """Facts and chains that each unedited model knows, by the rule, and by rank as well.

    Of those asked for in responses, also the share that one response of five names at least, as in the
    paper's Appendix A.
    """
    rows_of_models = []
    for run in runs:
        scores = run.tables[str(TableKey("exact", "none", BEFORE))]
        row_of_model: dict[str, object] = {"model": model_of(run)}
        for known_rule in (rule, replace(rule, top=True)):
            facts_known = metrics.facts_table(scores, scores, rule=known_rule)
            chains = metrics.chain_table(facts_known, run.tables["chains"])
            rule_words = f"of at least {rule.threshold:g}"
            if known_rule.top:
                rule_words = "of any probability"
            row_of_model[f"facts {rule_words}"] = (
                f"{facts_known['known_before'].sum()} of {len(facts_known)}"
            )
            row_of_model[f"chains {rule_words}"] = f"{chains['kept'].sum()} of {len(chains)}"
        row_of_model["named once in five"] = "n/a"
        if "sampled" in run.kinds:
            is_named = run.tables[str(TableKey("sampled", "none", BEFORE))]["hits"] > 0
            row_of_model["named once in five"] = with_interval(
                share_interval(is_named.astype(float))
            )
        rows_of_models.append(row_of_model)
    paper_table = published_table("thinkedit_appendix_a")
    for model, share in zip(paper_table["model"], paper_table["value"], strict=True):
        rows_of_models.append(
            {"model": f"{model}, the paper", "named once in five": f"{share:.2f}"}
        )
    return Table(rows_of_models).fillna("–")


def form_table(runs: Sequence[Run], *, mode: str) -> Table:
    """Three ways to ask for the facts about the edited subject (Figures 11 to 14), before and after edits.

    Means over edits: the probability of the object, that of the subject where the object is given, and the
    share of facts to which *yes* is a more probable answer than *no*.
    """
    tables_of_methods = []
    for run in runs:
        for key in run.keys:
            if key.kind == "exact" and key.mode in (BEFORE, mode):
                scores = run.tables[str(key)]
                if {*_FORMS} <= {*scores["form"]}:
                    tables_of_methods.append(
                        _forms(scores).assign(model=model_of(run), method=key.method)
                    )
    if not tables_of_methods:
        raise ArchiveError(
            "no run asks for subjects, or with yes or no: publish with KnowGIC's edits"
        )
    return in_papers_order(
        pd.concat(tables_of_methods)[[*METHOD_KEYS, *_FORMS.values(), "edits", "facts"]]
    )


def _forms(scores: Table) -> Table:
    """A row with each form's mean over edits, of the facts that all forms ask for."""
    in_forms = scores[scores["form"].isin(list(_FORMS))]
    yes_is_likelier = (in_forms["original_sum"] > in_forms["other_sum"]).astype(float)
    answer_value = np.exp(in_forms["original_named"]).where(
        in_forms["form"] != "yes_no", yes_is_likelier
    )
    in_forms = in_forms.assign(answer=answer_value.astype(float))
    values_by_fact = in_forms.pivot(
        index=["case_id", "item"], columns="form", values="answer"
    ).dropna()
    means_by_edit = values_by_fact.groupby("case_id").mean()
    means = means_by_edit.mean().rename(_FORMS).to_frame().T
    return means.assign(edits=len(means_by_edit), facts=len(values_by_fact))


def text_table(runs: Sequence[Run], *, mode: str) -> Table:
    """Mean fluency (bits) and consistency of texts about ``n`` edited subjects."""
    text_scores = pd.concat(
        [run.joined("texts").assign(model=run.about.source["model"]) for run in runs]
    )
    of_mode = text_scores[text_scores["mode"].isin([BEFORE, mode])]
    texts_by_method = of_mode.rename(columns={"fluency_averaged": "fluency"}).groupby(METHOD_KEYS)
    means = texts_by_method[["fluency", "consistency"]].mean()
    return in_papers_order(means.assign(n=texts_by_method.size()).reset_index())


def paper_techniques(*names: str) -> Table:
    """The paper's Tables 5 and 6 in the form of ``technique_table``, or "thinkedit_repository"'s numbers."""
    table_names = names or ("thinkedit_table_5", "thinkedit_table_6")
    printed_numbers = pd.concat([published_table(table_name) for table_name in table_names])
    by_measure = printed_numbers.pivot(index=METHOD_KEYS, columns="metric", values="value")
    measure_titles = {
        "ifr": "IFR",
        "ckp": "CKP",
        "efficacy": "Efficacy",
        "specificity": "Specificity",
    }
    by_measure = by_measure[[metric for metric in measure_titles if metric in by_measure]]
    return in_papers_order(by_measure.rename(columns=measure_titles).reset_index())


def paper_lengths() -> Table:
    """The paper's Table 10 in the form of ``length_table``; two steps and more by Definition 3."""
    printed_numbers = published_table("thinkedit_table_10").query("metric == 'ifr'")
    by_steps = printed_numbers.pivot(index=METHOD_KEYS, columns="steps", values="value")
    weights = chain_length_table().loc["paper", list(STEPS[2:])] / np.sqrt([2, 3, 4, 5])
    ifr_of_longer = by_steps[list(STEPS[2:])] @ weights / weights.sum()
    by_steps = by_steps.reindex(columns=list(STEPS)).assign(**{LONGER: ifr_of_longer})
    return in_papers_order(by_steps.reset_index())


def scalability_table() -> Table:
    """The authors' repository on Harry Potter's case: IFR by chain length and overall, and CKP, pooled; the
    first row has the number of chains.
    """
    printed_numbers = published_table("thinkedit_scalability")
    column_names = printed_numbers["steps"].where(printed_numbers["metric"] != "ckp", "CKP")
    by_column = printed_numbers.assign(column=column_names).pivot(
        index=METHOD_KEYS, columns="column", values="value"
    )
    chain_counts = by_column.loc[[("", "")]].rename({"": "chains"}, level="model")
    chain_counts[OVERALL] = chain_counts[list(STEPS[1:])].sum(axis=1)
    rows_of_methods = in_papers_order(by_column.drop(("", "")).reset_index())
    both_tables = pd.concat([chain_counts.reset_index(), rows_of_methods], ignore_index=True)
    return both_tables[[*METHOD_KEYS, *STEPS, "CKP"]]


def chain_length_table() -> Table:
    """Chains by number of steps: the paper's Table 4, and the two published files."""
    printed_numbers = published_table("thinkedit_table_4").astype({"value": int})
    source_names = (
        printed_numbers["metric"].str.removeprefix("chains").str.strip().replace("", "paper")
    )
    chains_by_steps = printed_numbers.assign(source=source_names).pivot(
        index="source", columns="steps", values="value"
    )
    chains_by_steps = chains_by_steps.loc[["paper", *LAYOUTS]].rename_axis(columns=None)
    return chains_by_steps.assign(all=chains_by_steps.sum(axis=1))


def in_papers_order(table: Table) -> Table:
    """Models by name, methods in the paper's order, others after them."""
    rank_of_editor = {method: rank for rank, method in enumerate(_ORDER)}
    editor_of_row = table["method"].str.removesuffix(f", {PLACEBO}").str.partition("+")[0]
    ranks = editor_of_row.map(lambda editor: rank_of_editor.get(editor, len(rank_of_editor)))
    sort_keys = pd.Series(zip(ranks, table["method"], strict=True), index=table.index, dtype=object)
    sorted_table = table.assign(_order=sort_keys).sort_values(["model", "_order"], kind="stable")
    return sorted_table.drop(columns="_order")


def as_text(table: Table, *, digits: int = 2) -> ShownTable:
    """A table whose measures are text with their intervals in brackets. Next to each are the ``Pooled``
    ratio, with its range without one edit and the largest edit's share, and n, edits and terms.
    """
    shown_columns: dict[str, Sequence[str] | pd.Series] = {}
    shown_columns |= {
        measure: table[measure] for measure in (*METHOD_KEYS, "order", "APP") if measure in table
    }
    measures = [
        str(column).removesuffix(" terms") for column in table if str(column).endswith(" terms")
    ]
    for measure in measures:
        estimates = zip(
            table[measure], table[f"{measure} low"], table[f"{measure} high"], strict=True
        )
        shown_columns[measure] = [
            with_interval(Estimate(*mean_and_ends, 0), digits=digits) for mean_and_ends in estimates
        ]
        if f"{measure} pooled" in table:
            shown_columns[f"{measure}, the paper's pooling"] = table[f"{measure} pooled"].map(str)
        if measure not in SHARES:
            counts_in_words = table[f"{measure} edits"].map(str)
            if (table[f"{measure} terms"] != table[f"{measure} edits"]).any():
                counts_in_words += table[f"{measure} terms"].map(" ({})".format)
            shown_columns[f"n {measure}"] = counts_in_words
    return _with_note_on_mend(Table(shown_columns))


def _with_note_on_mend(table: AnyTable) -> ShownTable:
    """A table with a line below that holds for each row of MEND."""
    has_mend = as_shown(table).table["method"].str.startswith("mend").any()
    return with_note(table, UNDERTRAINED if has_mend else "")
