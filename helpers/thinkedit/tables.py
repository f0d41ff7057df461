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
from helpers.results.archive import ArchiveError, Run, TableKey
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
    survivors,
    with_interval,
)
from helpers.thinkedit import metrics
from helpers.thinkedit.knowgic import LAYOUTS, load_edits
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
    pooled,
    sums_of,
)
from helpers.thinkedit.modes import AGAIN, BEFORE, PLACEBO, SEQUENCES

KEYS = ["model", "method"]
STEPS = (OVERALL, "1", "2", "3", "4", "5")
MEASURES = ("IFR", "CKP")
SHARES = ("Efficacy", "Generalisation", "Specificity")
PRICE = ("Efficacy", "IFR", SUCCESSFUL, "CKP")  # of APP: what it is a price for, and what is paid
LONGER = "2 or more"
PLACEBO_MEASURES = ("IFR", OWN, "CKP")
ORDER_MEASURES = ("Efficacy", "IFR", "CKP")
UNEDITED_AGAIN = "unedited, again"  # a method's name: what a second draw keeps of the first
KINDS = (DIRECT, OWN, "CKP")  # facts by what they are about
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
        source = {**run.about.source, **run.about.caption}
        first_key = next(key for key in run.keys if key.kind == kind)
        settings = run.about.settings[str(first_key)]
        layout = "what it recalls" if is_recalled(run) else source["layout"]
        settings_words = (
            f"edits of {f'KnowGIC {layout}' if layout in LAYOUTS else layout}",
            f"preset {source['preset']}",
            f"{source['dtype']} on {source['device']}",
            *(f"{name} {settings[name]}" for name in _DRAWN if name in settings),
        )
        edit_count = run.joined(kind)["case_id"].nunique()
        words_of_model = f"{model_words(source['model'])}, {edit_count} edits"
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


@lru_cache(maxsize=16)
def terms_of_runs(
    runs: tuple[Run, ...], *, estimator: str = "exact", rule: Known = DEFAULT
) -> Table:
    """``metrics.terms_of`` every model, method and mode, and ``success_terms`` where scores are exact.

    A second draw of the unedited model is a method of every mode, ``UNEDITED_AGAIN``.
    """
    parts = []
    for run in runs:
        keys = [key for key in run.keys if key.kind == estimator and key.mode != BEFORE]
        modes_of_edits = dict.fromkeys(key.mode for key in keys if key.mode != AGAIN)
        for key in keys:
            terms = _terms_of_table(run, key, rule).assign(model=model_of(run))
            if key.mode == AGAIN:
                again = terms.assign(method=UNEDITED_AGAIN)
                parts += [again.assign(mode=mode) for mode in modes_of_edits]
            else:
                parts.append(terms.assign(method=key.method, mode=key.mode))
    if not parts:
        return Table(columns=[*KEYS, "mode", "measure"], dtype=str)
    return pd.concat(parts, ignore_index=True)


def _terms_of_table(run: Run, key: TableKey, rule: Known) -> Table:
    """The terms of one method in one mode; of exact scores also those of success."""
    facts = facts_of(run, key.method, mode=key.mode, rule=rule, estimator=key.kind)
    terms = metrics.terms_of(facts, run.tables["chains"])
    if key.kind != "exact":
        return terms
    success = metrics.success_terms(run.tables[str(key)])
    return pd.concat([terms, success, _of_successful(terms, success)])


def _of_successful(terms: Table, success: Table) -> Table:
    """The chains of the edits that succeed: of an edit that fails, much is left for another reason."""
    efficacy = success[success["measure"] == "Efficacy"]
    successful = efficacy.loc[efficacy["ratio"] == 1, "edit"]
    of_them = (terms["measure"] == "IFR") & terms["edit"].isin(successful)
    return terms[of_them].assign(measure=SUCCESSFUL)


def split_app(terms: Table) -> tuple[Table, Table]:
    """The methods as they are, and their versions with APP under the same names, to set side by side."""
    with_app = terms["method"].str.endswith("+app")
    plain_names = terms["method"].str.removesuffix("+app")
    return terms[~with_app], terms.assign(method=plain_names)[with_app]


def by_method(terms: Table, mode: str) -> dict[tuple[str, str], Table]:
    """Terms of each (model, method) in one mode; ArchiveError where there are no results of it."""
    of_mode = terms[terms["mode"] == mode]
    if of_mode.empty:
        raise ArchiveError(f"no results of mode {mode!r}; there are {set(terms['mode'])}")
    groups = of_mode.groupby(KEYS)
    return {(str(model), str(method)): of_method for (model, method), of_method in groups}


def measure_table(terms: Table, measures: Sequence[str], *, mode: str) -> Table:
    """A row per method. Of each measure its mean over edits (``IFR``) with its 95 % interval (``IFR low``,
    ``IFR high``), the numbers of ``IFR edits`` and ``IFR terms`` (chains or facts), and, of ratios, the
    ``Pooled`` one as the paper takes it (``IFR pooled``).
    """
    rows = []
    for (model, method), terms_of_method in by_method(terms, mode).items():
        row: dict[str, object] = {"model": model, "method": method}
        for name in measures:
            of_measure = terms_of_method[terms_of_method["measure"] == name]
            sums = sums_of(of_measure)
            if name in (*SHARES, DEEP):
                mean = share_interval(of_measure["ratio"])
            else:
                mean = capped_mean(sums)
                if name != SUCCESSFUL:
                    row[f"{name} pooled"] = pooled(sums)
            row |= {name: mean.mean, f"{name} low": mean.low, f"{name} high": mean.high}
            row |= {f"{name} edits": len(sums), f"{name} terms": len(of_measure)}
        rows.append(row)
    return ordered(Table(rows))


def technique_table(terms: Table, *, mode: str) -> Table:
    """IFR, CKP, efficacy, specificity (the paper's Tables 5 and 6) and generalisation of each method."""
    shares = [name for name in SHARES if (terms["measure"] == name).any()]
    return measure_table(terms, [*MEASURES, *shares], mode=mode)


def app_table(plain: Table, with_app: Table, *, mode: str) -> Table:
    """Each method that has both, without and with APP, on the same edits: IFR and CKP next to the efficacy
    that they cost.
    """
    edits = [*KEYS, "mode", "edit"]
    shared = plain[edits].merge(with_app[edits]).drop_duplicates()
    sides = {"without": plain, "with": with_app}
    rows = [
        measure_table(terms.merge(shared), PRICE, mode=mode).assign(APP=side)
        for side, terms in sides.items()
    ]
    table = ordered(pd.concat(rows, ignore_index=True))
    table.insert(len(KEYS), "APP", table.pop("APP"))
    return table


def deep_table(terms: Table, *, mode: str) -> Table:
    """Share of edits with no known chain of two steps or more left (Definition 2), of those that had one."""
    return measure_table(terms, [DEEP], mode=mode).query(f"`{DEEP} edits` > 0")


def length_table(terms: Table, *, mode: str) -> Table:
    """IFR overall and by chain length (the paper's Table 10), from the deducible chains of each."""
    chains = terms[terms["measure"] == "IFR"]
    by_length = chains.assign(measure=chains["length"].astype(str))
    longer = chains[chains["length"] > 1].assign(measure=LONGER)
    every = pd.concat([chains.assign(measure=OVERALL), by_length, longer])
    return measure_table(every, [*STEPS, LONGER], mode=mode)


def difference_table(
    terms: Table,
    other: Table,
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
    others_by_method = by_method(other, other_mode or mode)
    pairs = {}
    for (model, method), second_terms in by_method(terms, mode).items():
        first_terms = others_by_method.get((model, than or method))
        same = method == than or (mode not in SEQUENCES and len(distinct([than, method])) == 1)
        if first_terms is None or (than and same):
            continue
        for measure in measures:
            first = sums_of(first_terms[first_terms["measure"] == measure])
            second = sums_of(second_terms[second_terms["measure"] == measure])
            pairs[model, method, measure] = first, second
    return _tested(pairs)


def longer_table(terms: Table, *, mode: str) -> ShownTable:
    """IFR along chains of two steps or more minus that of the direct question, over edits with both.

    A method that is another one by construction is not tested again (``distinct``).
    """
    evaluated = by_method(terms, mode)
    pairs = {}
    for (model, method), terms_of_method in evaluated.items():
        others = [name for of_model, name in evaluated if of_model == model]
        if mode not in SEQUENCES and method not in distinct(others):
            continue
        chains = terms_of_method[terms_of_method["measure"] == "IFR"]
        direct, longer = chains[chains["length"] == 1], chains[chains["length"] > 1]
        pairs[model, method, "IFR"] = sums_of(direct), sums_of(longer)
    return _tested(pairs)


def with_placebos(terms: Table) -> Table:
    """The evaluation with a further method for each that has a placebo, such as "rome, placebo"; the one
    given where none is stored.
    """
    foreign = terms[terms["mode"] == PLACEBO]
    names = foreign["method"] + f", {PLACEBO}"
    return pd.concat([terms, foreign.assign(method=names, mode="independent")], ignore_index=True)


def placebo_differences(terms: Table) -> ShownTable:
    """Each edit minus another edit's update on the same chains: what is lost because of *this* edit."""
    if PLACEBO not in set(terms["mode"]):
        raise ArchiveError(f"no placebo is stored: publish with modes: [independent, {PLACEBO}]")
    return difference_table(
        terms, terms, mode="independent", other_mode=PLACEBO, measures=PLACEBO_MEASURES
    )


def placebo_lines(terms: Table) -> list[str]:
    """What a foreign edit gives, a line for each model and method that has a placebo."""
    if PLACEBO not in set(terms["mode"]):
        return []
    lines = []
    for row in measure_table(terms, PLACEBO_MEASURES, mode=PLACEBO).to_dict("records"):
        parts = []
        for name in PLACEBO_MEASURES:
            mean = Estimate(
                row[name], row[f"{name} low"], row[f"{name} high"], row[f"{name} edits"]
            )
            parts.append(f"{name} {with_interval(mean)} (n = {mean.n})")
        method = method_label(row["method"])
        lines.append(f"{row['model']}: a foreign edit of {method} gives {'; '.join(parts)}")
    return lines


def orders_table(terms: Table) -> Table:
    """A row for each order of a sequence that was made in several; no rows where none was."""
    parts = []
    for order, mode in enumerate(SEQUENCES, start=1):
        if mode in set(terms["mode"]):
            parts.append(measure_table(terms, ORDER_MEASURES, mode=mode).assign(order=order))
    every = ordered(pd.concat(parts, ignore_index=True))
    order_count = every.groupby(KEYS)["order"].transform("size")
    return every[order_count > 1].reset_index(drop=True)


def order_lines(terms: Table) -> list[str]:
    """The lowest and the highest mean over the orders of each sequence that was made in several, and their
    difference; last, how many orders the others have.
    """
    lines = []
    for (model, method), orders in orders_table(terms).groupby(KEYS, sort=False):
        ranges = []
        for measure in ORDER_MEASURES:
            lowest, highest = orders[measure].min(), orders[measure].max()
            if pd.notna(lowest):
                range_words = f"{lowest:.2f} to {highest:.2f} (range {highest - lowest:.2f})"
                ranges.append(f"{measure} {range_words}")
        words = ", ".join(ranges)
        lines.append(f"{model}, {method_label(str(method))}, over {len(orders)} orders: {words}")
    return [*lines, "every other sequence: one order" if lines else "every sequence: one order"]


def order_differences(terms: Table, *, than: str) -> ShownTable:
    """Each method's sequence minus that of ``than`` on the same edits, over all pairs of their orders.

    No rows where both were made in one order. ``lowest`` and ``highest`` are the pairs' mean differences. A
    ``verdict`` needs the same one in every pair, so its p-value is the pairs' largest one. ``Holm``:
    corrected for the tests of the same measure and model.
    """
    sequences = _sequences(terms)
    rows = []
    for (model, method), orders in sequences.items():
        others = sequences.get((model, than), [])
        pair_count = len(others) * len(orders)
        if method == than or pair_count < 2:
            continue
        for measure in ORDER_MEASURES:
            contrasts = [
                _contrast(_ratios_of(first, measure), _ratios_of(second, measure), measure)
                for first in others
                for second in orders
            ]
            means = [contrast.difference.mean for contrast in contrasts]
            edit_count = contrasts[0].difference.n
            if edit_count:
                lowest, highest = f"{min(means):+.2f}", f"{max(means):+.2f}"
                means_of_pairs = (pair_count, lowest, highest)
                rows.append(
                    (model, method, measure, *means_of_pairs, edit_count, *_common(contrasts))
                )
    names = [*KEYS, "measure", "pairs", "lowest", "highest", "edits", "verdict", "Holm"]
    return _with_marks(_with_holm(Table(rows, columns=names)))


def _common(contrasts: Sequence[Contrast]) -> tuple[str, float]:
    """The verdict of several tests if it is the same one in all, and the p-value that all of them show it."""
    verdicts = {_direction(contrast) for contrast in contrasts}
    if len(verdicts) > 1:
        return INCONCLUSIVE, 1.0
    return verdicts.pop(), max(contrast.p_value for contrast in contrasts)


def _ratios_of(terms_of_method: Table, measure: str) -> pd.Series:
    """A method's capped ratio of a measure for each edit."""
    return capped_ratios(sums_of(terms_of_method[terms_of_method["measure"] == measure]))


def _sequences(terms: Table) -> dict[tuple[str, str], list[Table]]:
    """Terms of each order in which the sequence of a (model, method) was made."""
    sequences: dict[tuple[str, str], list[Table]] = {}
    for mode in SEQUENCES:
        if mode in set(terms["mode"]):
            for key, terms_of_order in by_method(terms, mode).items():
                sequences.setdefault(key, []).append(terms_of_order)
    return sequences


def _tested(pairs: Mapping[tuple[str, str, str], tuple[Table, Table]]) -> ShownTable:
    """Differences of capped ratios by (model, method, measure), from sums of the first and second side.

    They are tested over the edits of both sides (``statistics.paired``). ``verdict`` is of each test by
    itself, ``Holm`` corrected for the tests of the same measure and model. ``could show``: the smallest
    difference that as many edits would show in four of five cases, rounded up.
    """
    rows = []
    for (*keys, measure), sums in pairs.items():
        first, second = map(capped_ratios, sums)
        contrast = _contrast(first, second, measure)
        change = contrast.difference
        if change.n:
            text = with_interval(change, signed=True)
            least = detectable(second - first)
            could_show = np.ceil(round(100 * least, 6)) / 100 if least <= 1 else float("nan")
            words = _direction(contrast)
            rows.append((*keys, measure, text, change.n, words, contrast.p_value, could_show))
    names = [*KEYS, "measure", "difference", "edits", "verdict", "Holm", "could show"]
    table = _with_holm(Table(rows, columns=names))
    return _with_marks(with_power(table, table["could show"], table["edits"], digits=2))


def _contrast(first: pd.Series, second: pd.Series, measure: str) -> Contrast:
    """The paired test of the edits' capped ratios of a measure."""
    return paired(first, second, "share" if measure in SHARES else "fraction")


def _with_holm(table: Table) -> Table:
    """The table with verdicts in place of the p-values in ``Holm``, by model and measure."""
    corrected = table.astype({"Holm": object})
    for _, family in table.groupby(["model", "measure"]):
        verdicts = survivors(family["verdict"].tolist(), family["Holm"].tolist())
        corrected.loc[family.index, "Holm"] = verdicts
    return corrected


def _direction(contrast: Contrast) -> str:
    """``more`` or ``less``, or ``inconclusive`` where chance explains the difference."""
    if not contrast.p_value < LEVEL:
        return INCONCLUSIVE
    return "more" if contrast.difference.mean > 0 else "less"


def wording_table(runs: Sequence[Run], *, rule: Known = DEFAULT) -> ShownTable:
    """Measures of edits made alone, with intervals over edits, and over the wordings of their prompts.

    Edits share wordings, and those of one may be alike; in brackets the number of wordings. For packaged
    graphs, which have texts.
    """
    rows = []
    for run in runs:
        wording = {edit.case_id: edit.prompt for edit in load_edits(run.about.source["layout"])}
        for (model, method), terms in by_method(
            terms_of_runs((run,), rule=rule), "independent"
        ).items():
            row: dict[str, object] = {"model": model, "method": method}
            for name in MEASURES:
                sums = sums_of(terms[terms["measure"] == name])
                ratios = capped_ratios(sums)
                by_wording = ratios.set_axis(ratios.index.map(wording)).rename_axis("relation")
                row[name] = with_interval(capped_mean(sums))
                wordings = by_wording.index.nunique()
                by_cluster = with_interval(fraction_interval(by_wording))
                row[f"{name}, by wording"] = f"{by_cluster} ({wordings})"
            rows.append(row)
    return _with_marks(ordered(Table(rows)))


def known_table(runs: Sequence[Run], *, rule: Known = DEFAULT) -> Table:
    """Facts and chains that each unedited model knows, by the rule, and by rank as well.

    Of those asked for in responses, also the share that one response of five names at least, as in the
    paper's Appendix A.
    """
    rows = []
    for run in runs:
        scores = run.tables[str(TableKey("exact", "none", BEFORE))]
        row: dict[str, object] = {"model": model_of(run)}
        for known_rule in (rule, replace(rule, top=True)):
            facts = metrics.facts_table(scores, scores, rule=known_rule)
            chains = metrics.chain_table(facts, run.tables["chains"])
            rule_words = f"of at least {rule.threshold:g}"
            if known_rule.top:
                rule_words = "of any probability"
            row[f"facts {rule_words}"] = f"{facts['known_before'].sum()} of {len(facts)}"
            row[f"chains {rule_words}"] = f"{chains['kept'].sum()} of {len(chains)}"
        row["named once in five"] = "n/a"
        if "sampled" in run.kinds:
            is_named = run.tables[str(TableKey("sampled", "none", BEFORE))]["hits"] > 0
            row["named once in five"] = with_interval(share_interval(is_named.astype(float)))
        rows.append(row)
    paper_table = published_table("thinkedit_appendix_a")
    for model, share in zip(paper_table["model"], paper_table["value"], strict=True):
        rows.append({"model": f"{model}, the paper", "named once in five": f"{share:.2f}"})
    return Table(rows).fillna("–")


def form_table(runs: Sequence[Run], *, mode: str) -> Table:
    """Three ways to ask for the facts about the edited subject (Figures 11 to 14), before and after edits.

    Means over edits: the probability of the object, that of the subject where the object is given, and the
    share of facts to which *yes* is a more probable answer than *no*.
    """
    parts = []
    for run in runs:
        for key in run.keys:
            if key.kind == "exact" and key.mode in (BEFORE, mode):
                scores = run.tables[str(key)]
                if {*_FORMS} <= {*scores["form"]}:
                    parts.append(_forms(scores).assign(model=model_of(run), method=key.method))
    if not parts:
        raise ArchiveError(
            "no run asks for subjects, or with yes or no: publish with KnowGIC's edits"
        )
    return ordered(pd.concat(parts)[[*KEYS, *_FORMS.values(), "edits", "facts"]])


def _forms(scores: Table) -> Table:
    """A row with each form's mean over edits, of the facts that all forms ask for."""
    in_forms = scores[scores["form"].isin(list(_FORMS))]
    yes = (in_forms["original_sum"] > in_forms["other_sum"]).astype(float)
    answer = np.exp(in_forms["original_named"]).where(in_forms["form"] != "yes_no", yes)
    in_forms = in_forms.assign(answer=answer.astype(float))
    by_fact = in_forms.pivot(index=["case_id", "item"], columns="form", values="answer").dropna()
    by_edit = by_fact.groupby("case_id").mean()
    means = by_edit.mean().rename(_FORMS).to_frame().T
    return means.assign(edits=len(by_edit), facts=len(by_fact))


def text_table(runs: Sequence[Run], *, mode: str) -> Table:
    """Mean fluency (bits) and consistency of texts about ``n`` edited subjects."""
    texts = pd.concat([run.joined("texts").assign(model=run.about.source["model"]) for run in runs])
    of_mode = texts[texts["mode"].isin([BEFORE, mode])]
    groups = of_mode.rename(columns={"fluency_averaged": "fluency"}).groupby(KEYS)
    means = groups[["fluency", "consistency"]].mean()
    return ordered(means.assign(n=groups.size()).reset_index())


def paper_techniques(*names: str) -> Table:
    """The paper's Tables 5 and 6 in the form of ``technique_table``, or "thinkedit_repository"'s numbers."""
    printed = names or ("thinkedit_table_5", "thinkedit_table_6")
    table = pd.concat([published_table(name) for name in printed])
    wide = table.pivot(index=KEYS, columns="metric", values="value")
    titles = {"ifr": "IFR", "ckp": "CKP", "efficacy": "Efficacy", "specificity": "Specificity"}
    wide = wide[[metric for metric in titles if metric in wide]]
    return ordered(wide.rename(columns=titles).reset_index())


def paper_lengths() -> Table:
    """The paper's Table 10 in the form of ``length_table``; two steps and more by Definition 3."""
    table = published_table("thinkedit_table_10").query("metric == 'ifr'")
    wide = table.pivot(index=KEYS, columns="steps", values="value")
    weights = chain_length_table().loc["paper", list(STEPS[2:])] / np.sqrt([2, 3, 4, 5])
    longer = wide[list(STEPS[2:])] @ weights / weights.sum()
    wide = wide.reindex(columns=list(STEPS)).assign(**{LONGER: longer})
    return ordered(wide.reset_index())


def scalability_table() -> Table:
    """The authors' repository on Harry Potter's case: IFR by chain length and overall, and CKP, pooled; the
    first row has the number of chains.
    """
    rows = published_table("thinkedit_scalability")
    column = rows["steps"].where(rows["metric"] != "ckp", "CKP")
    wide = rows.assign(column=column).pivot(index=KEYS, columns="column", values="value")
    counts = wide.loc[[("", "")]].rename({"": "chains"}, level="model")
    counts[OVERALL] = counts[list(STEPS[1:])].sum(axis=1)
    by_method = ordered(wide.drop(("", "")).reset_index())
    table = pd.concat([counts.reset_index(), by_method], ignore_index=True)
    return table[[*KEYS, *STEPS, "CKP"]]


def chain_length_table() -> Table:
    """Chains by number of steps: the paper's Table 4, and the two published files."""
    rows = published_table("thinkedit_table_4").astype({"value": int})
    source = rows["metric"].str.removeprefix("chains").str.strip().replace("", "paper")
    table = rows.assign(source=source).pivot(index="source", columns="steps", values="value")
    table = table.loc[["paper", *LAYOUTS]].rename_axis(columns=None)
    return table.assign(all=table.sum(axis=1))


def ordered(table: Table) -> Table:
    """Models by name, methods in the paper's order, others after them."""
    rank = {method: number for number, method in enumerate(_ORDER)}
    editors = table["method"].str.removesuffix(f", {PLACEBO}").str.partition("+")[0]
    ranks = editors.map(lambda editor: rank.get(editor, len(rank)))
    order = pd.Series(zip(ranks, table["method"], strict=True), index=table.index, dtype=object)
    by = table.assign(_order=order).sort_values(["model", "_order"], kind="stable")
    return by.drop(columns="_order")


def as_text(table: Table, *, digits: int = 2) -> ShownTable:
    """A table whose measures are text with their intervals in brackets. Next to each are the ``Pooled``
    ratio, with its range without one edit and the largest edit's share, and n, edits and terms.
    """
    shown: dict[str, Sequence[str] | pd.Series] = {}
    shown |= {name: table[name] for name in (*KEYS, "order", "APP") if name in table}
    measures = [
        str(column).removesuffix(" terms") for column in table if str(column).endswith(" terms")
    ]
    for name in measures:
        ends = zip(table[name], table[f"{name} low"], table[f"{name} high"], strict=True)
        shown[name] = [with_interval(Estimate(*values, 0), digits=digits) for values in ends]
        if f"{name} pooled" in table:
            shown[f"{name}, the paper's pooling"] = table[f"{name} pooled"].map(str)
        if name not in SHARES:
            counts = table[f"{name} edits"].map(str)
            if (table[f"{name} terms"] != table[f"{name} edits"]).any():
                counts += table[f"{name} terms"].map(" ({})".format)
            shown[f"n {name}"] = counts
    return _with_marks(Table(shown))


def _with_marks(table: AnyTable) -> ShownTable:
    """A table with a line below that holds for each row of MEND."""
    has_mend = as_shown(table).table["method"].str.startswith("mend").any()
    return with_note(table, UNDERTRAINED if has_mend else "")
