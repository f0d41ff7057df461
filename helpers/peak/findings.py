"""The paper's findings as differences that can be tested on any model (PEAK, Section 7).

A finding is one or more comparisons of two sets of per-record values: paired where both come from the
same records, Welch otherwise; a difference is positive where the finding holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import pandas as pd

from helpers.editing.editors import Variant, distinct, fairer, method_label, objectives
from helpers.peak.metrics import DEFAULT_FILTER, AnswerFilter, kind_of_metric, method_metrics
from helpers.peak.tables import DATASETS, HARD_METRICS, Metrics, metric_contrast, scores_of
from helpers.results.archive import Run
from helpers.results.statistics import mean_above, unpaired_means
from helpers.results.text import INCONCLUSIVE, Evidence, corrected_verdicts

ByVariant = Mapping[Variant, pd.DataFrame]  # for each one row of metrics per record
Runs = Mapping[tuple[str, str], Metrics]  # of published runs, by model and data set

PAPER_EDITORS = ("FT-L", "FT-M", "KN", "MEND", "ROME", "MEMIT")  # the paper's; FT in two forms
FINE_TUNING = ("FT-L", "FT-M")  # the first at hand is compared as FT: FT-L is the paper's
WITH_APP = ("FT-L", "FT-M", "MEND", "ROME", "MEMIT")
HARD_FACTORS = ("AFF_hard", "ANF_hard")
EDITS = ("ES", "GS")
VERDICTS = ("holds", INCONCLUSIVE, "reversed")
PLAIN_EDITORS = "plain editors"  # in a table: the mean over the paper's editors without APP
EVERY_OBJECTIVE = "every objective helps"
L1_MATTERS_MOST = "L1 matters most"
LESS_PROTECTION = "all answers as targets protect less than APP"
TARGETS_COST = "all answers as targets cost edits (not in the paper)"
FORGET_RANDOM = (
    "all answers as targets forget more than APP, against random false answers (post hoc)"
)
POOLED_TARGETS = "all answers as targets protect less than APP, mean over editors (post hoc)"
POOLED = "all editors"  # label of the mean over editors
APP_REDUCES = "APP reduces perturbation"
APP_COSTS = "APP costs edits"
ICD_ABOVE_APP = "higher with icd than with APP"


def metrics_of_runs(runs: Iterable[Run], *, answer_filter: AnswerFilter = DEFAULT_FILTER) -> Runs:
    """The metrics of all methods of published runs, by model and data set."""
    return {
        (run.about.source["model"], run.about.source["dataset"]): _metrics_of_run(
            run, answer_filter
        )
        for run in runs
        if run.tables
    }


@lru_cache(maxsize=8)  # tables and figures of a notebook begin with the same runs
def _metrics_of_run(run: Run, answer_filter: AnswerFilter) -> Metrics:
    return method_metrics(scores_of(run), answer_filter)


def findings(counterfactual: Metrics, temporal: Metrics | None = None) -> list[Evidence]:
    """Evidence for every finding that the runs at hand can speak to; ``temporal`` is of the same model.

    That larger models suffer more (Appendix B.4) is not tested: our models differ in family, tuning and
    dtype as well.
    """
    evidence = [*_evidence_of_editors(counterfactual), *_evidence_of_app(counterfactual)]
    if temporal is not None:
        finding = "PEAK-T has lower AFF, ANF, ES and GS"
        temporal, counterfactual = _methods_of_both(temporal, counterfactual)
        for metric in (*HARD_FACTORS, *EDITS) if _plain_editors(temporal) else ():
            on_temporal = _mean_over_editors(temporal, metric)
            on_counterfactual = _mean_over_editors(counterfactual, metric)
            item = Evidence(
                finding,
                unpaired_means(on_temporal, on_counterfactual),
                metric=metric,
                higher="PEAK-CF",
                lower="PEAK-T",
                methods=PLAIN_EDITORS,
                samples=(on_counterfactual, on_temporal),
            )
            evidence.append(item)
    return evidence


def objective_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """Every objective helps, and L1 most (Section 7.6, Figures 3 and 5), of the variants at hand."""
    evidence: list[Evidence] = []
    for editor in editors:
        _, whole_objective, without_first, *without_others = objectives(editor)
        for without_one in (without_first, *without_others):
            evidence += _differences(EVERY_OBJECTIVE, metrics, whole_objective, without_one)
        for without_one in without_others:
            evidence += _differences(L1_MATTERS_MOST, metrics, without_one, without_first)
    return evidence


def fairer_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """Targets instead of objectives protect less than APP (Section 7.7, Table 5); what they cost."""
    evidence: list[Evidence] = []
    for editor in editors:
        without_app, *more_targets, with_app = fairer(editor)
        for targets_variant in more_targets:
            evidence += _differences(LESS_PROTECTION, metrics, with_app, targets_variant)
            evidence += _differences(TARGETS_COST, metrics, targets_variant, without_app, ("ES",))
    return evidence


def icd_against_app(metrics: Metrics) -> list[Evidence]:
    """icd minus APP on the same records, for every editor that has both: success, locality and damage.

    The finding is that a measure is higher with icd; it is reversed where the measure is lower.
    """
    editors = [label.removesuffix("+ICD") for label in metrics if label.endswith("+ICD")]
    return [
        _between_methods(
            ICD_ABOVE_APP, metrics, metric, higher=f"{editor}+ICD", lower=f"{editor}+APP"
        )
        for editor in editors
        if f"{editor}+APP" in metrics
        for metric in HARD_METRICS
    ]


def against_others(metrics: Metrics, method: str, others: Iterable[str]) -> list[Evidence]:
    """A method minus others on the same records: success, locality and damage.

    The finding is that a measure is higher with the method; it is reversed where the measure is lower.
    """
    return [
        _between_methods(f"higher with {method}", metrics, metric, higher=method, lower=other)
        for other in others
        for metric in HARD_METRICS
    ]


def pooled_fairer_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """``fairer_findings`` against random false answers, and of each record's mean over the editors.

    Added after the first results: the estimates of single editors agree, but few records decide each.
    """
    evidence: list[Evidence] = []
    by_weighting: dict[str, list[tuple[Variant, Variant]]] = {}
    for editor in editors:
        _, *more_targets, with_app = fairer(editor)
        for targets in more_targets:
            if targets in metrics and with_app in metrics:
                pairs = by_weighting.setdefault(short_name(targets), [])
                pairs.append((with_app, targets))
                evidence += _differences(FORGET_RANDOM, metrics, with_app, targets, ("AFF_random",))
    for weighting, pairs in by_weighting.items():
        for metric in (*HARD_FACTORS, "AFF_random"):
            values_with_app, values_of_targets = (
                pd.concat([metrics[variant][metric] for variant in variants], axis=1, join="inner")
                for variants in zip(*pairs, strict=True)
            )
            evidence.append(
                _paired_evidence(
                    POOLED_TARGETS,
                    metric,
                    values_with_app.mean(axis=1, skipna=False),
                    values_of_targets.mean(axis=1, skipna=False),
                    higher=weighting,
                    lower="APP",
                    editor=POOLED,
                )
            )
    return evidence


def neighbour_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """One neighbour of each list helps, more help more (Section 7.8, Figure 4)."""
    evidence: list[Evidence] = []
    for editor in editors:
        all_neighbours = Variant(f"{editor}+app")
        without_neighbours = Variant(all_neighbours.method, "neighbours", 0.0)
        with_one = Variant(all_neighbours.method, "neighbours", 1.0)
        evidence += _differences("one neighbour helps", metrics, with_one, without_neighbours)
        evidence += _differences("more neighbours help more", metrics, all_neighbours, with_one)
    return evidence


def app_findings(
    metrics: ByVariant, editors: Iterable[str], *, alone: bool = True
) -> list[Evidence]:
    """APP reduces perturbation, and costs edits (Section 7.4); of ``distinct`` editors if edits are alone."""
    evidence: list[Evidence] = []
    editors = distinct(editors) if alone else editors
    for editor in editors:
        without_app = Variant(editor)
        with_app = Variant(f"{editor}+app")
        evidence += _differences(APP_REDUCES, metrics, with_app, without_app)
        evidence += _differences(APP_COSTS, metrics, with_app, without_app, EDITS)
    return evidence


def findings_of_runs(runs: Runs) -> dict[tuple[str, str], list[Evidence]]:
    """``findings`` of each run; those on PEAK-CF are compared with PEAK-T."""
    counterfactual, temporal = DATASETS
    evidence = {}
    for (model, dataset), metrics in runs.items():
        temporal_metrics = runs.get((model, temporal)) if dataset == counterfactual else None
        evidence[model, dataset] = findings(metrics, temporal_metrics)
    return evidence


def verdict_counts(runs: Runs, *, with_undecided: bool = False) -> pd.DataFrame:
    """How many tests of each finding come out how, after Holm's correction: a row a finding and run.

    Tests of too few relations decide nothing, whatever the records are. They are omitted, unless
    ``with_undecided``.
    """
    tests = []
    for (model, dataset), evidence in findings_of_runs(runs).items():
        for item, verdict in zip(evidence, corrected_verdicts(evidence), strict=True):
            if with_undecided or not item.contrast.too_few_relations:
                tests.append((item.finding, f"{model}, {dataset}", verdict))
    columns = ["finding", "run", "verdict"]
    counts = pd.DataFrame(tests, columns=columns).groupby(columns, sort=False).size()
    return counts.unstack(fill_value=0).reindex(columns=list(VERDICTS), fill_value=0)


def _evidence_of_editors(metrics: Metrics) -> Iterator[Evidence]:
    for symbol in ("AFF", "ANF") if _plain_editors(metrics) else ():
        against_hard = _mean_over_editors(metrics, f"{symbol}_hard")
        against_random = _mean_over_editors(metrics, f"{symbol}_random")
        yield Evidence(
            "hard answers suffer more than random ones",
            metric_contrast(symbol, against_random, against_hard),  # means over editors: numbers
            higher=f"{symbol} hard",
            lower=f"{symbol} random",
            methods=PLAIN_EDITORS,
            samples=(against_hard - against_random,),
        )
    for method in ("ROME", "MEMIT"):
        for metric, level in (("ES", 0.9), ("AFF_hard", 0.5)) if method in metrics else ():
            values = metrics[method][metric]
            yield Evidence(
                "edits succeed, their lists do not survive",
                mean_above(values, level, kind_of_metric(metric)),
                metric=metric,
                lower=f"{100 * level:.0f}",
                methods=method,
                samples=(values,),
            )
    if {"MEND", "ROME"} <= set(metrics):
        finding = "MEND perturbs little, at the price of locality"
        for metric in ("AFF_hard", "LS"):
            yield _between_methods(finding, metrics, metric, higher="ROME", lower="MEND")
    if {"KN", "ROME"} <= set(metrics):
        yield _between_methods("KN edits weakly", metrics, "ES", higher="ROME", lower="KN")


def _evidence_of_app(metrics: Metrics) -> Iterator[Evidence]:
    for editor in WITH_APP:
        with_app = f"{editor}+APP"
        if editor not in metrics or with_app not in metrics:
            continue
        for metric in HARD_FACTORS:
            yield _between_methods(APP_REDUCES, metrics, metric, higher=editor, lower=with_app)
        yield _between_methods(
            "APP also improves locality", metrics, "LS", higher=with_app, lower=editor
        )
        for metric in EDITS:
            yield _between_methods(APP_COSTS, metrics, metric, higher=editor, lower=with_app)


def _between_methods(
    finding: str, metrics: Metrics, metric: str, *, higher: str, lower: str
) -> Evidence:
    """A metric under two methods on the same records."""
    values_lower = metrics[lower][metric]
    values_higher = metrics[higher][metric]
    return _paired_evidence(
        finding, metric, values_lower, values_higher, higher=higher, lower=lower
    )


def _paired_evidence(
    finding: str,
    metric: str,
    values_lower: pd.Series,
    values_higher: pd.Series,
    *,
    higher: str,
    lower: str,
    editor: str = "",
) -> Evidence:
    """One metric's values on the same records, as ``metric_contrast`` tests their difference."""
    return Evidence(
        finding,
        metric_contrast(metric, values_lower, values_higher),
        metric=metric,
        higher=higher,
        lower=lower,
        editor=editor,
        samples=(values_higher - values_lower,),
    )


def _differences(
    finding: str,
    metrics: ByVariant,
    lower: Variant,
    higher: Variant,
    columns: Iterable[str] = HARD_FACTORS,
) -> Iterator[Evidence]:
    """Metrics under two variants of one editor on the same records; none where one is not at hand."""
    if lower not in metrics or higher not in metrics:
        return
    for metric in columns:
        yield _paired_evidence(
            finding,
            metric,
            metrics[lower][metric],
            metrics[higher][metric],
            higher=short_name(higher),
            lower=short_name(lower),
            editor=method_label(lower.editor),
        )


def short_name(variant: Variant) -> str:
    """``plain``, ``APP``, ``without L1``, ``+ (mean)``."""
    app_suffix = method_label(variant.method).removeprefix(method_label(variant.editor))
    return variant.change or {"": "plain", "+APP": "APP"}.get(app_suffix, app_suffix)


def _methods_of_both(first: Metrics, second: Metrics) -> tuple[Metrics, Metrics]:
    shared_methods = [method for method in first if method in second]
    first_of_shared = {method: first[method] for method in shared_methods}
    second_of_shared = {method: second[method] for method in shared_methods}
    return first_of_shared, second_of_shared


def _mean_over_editors(metrics: Metrics, metric: str) -> pd.Series:
    values_of_editors = [metrics[method][metric] for method in _plain_editors(metrics)]
    return pd.concat(values_of_editors, axis=1).mean(axis=1)


def _plain_editors(metrics: Metrics) -> list[str]:
    """The paper's editors among the methods at hand, FT in one of its forms."""
    fine_tuning = [method for method in FINE_TUNING if method in metrics][:1]
    others = [name for name in PAPER_EDITORS if name in metrics and name not in FINE_TUNING]
    return fine_tuning + others
