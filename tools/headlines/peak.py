"""Notebooks 01 to 04 and 07: editing and APP."""

from __future__ import annotations

import pandas as pd

from helpers.peak.ablation_findings import fairer_findings, neighbour_findings, objective_findings
from helpers.peak.ablation_gallery import fairer_editors
from helpers.peak.ablation_tables import variant_metrics
from helpers.peak.construction.tables import validation_report
from helpers.peak.findings import findings
from helpers.peak.metrics_table import summarise
from helpers.peak.records import load_peak
from helpers.peak.stored_scores import scores_of, studies_of
from helpers.peak.tables import method_metrics
from helpers.results.archive import archive
from helpers.results.evidence import Evidence, in_points
from helpers.results.proportions import proportion_interval
from helpers.results.statistics import Estimate
from tools.headlines.headline import Headline, UnsupportedError, holds

SMALL = "SmolLM2-135M-Instruct (4-bit weights, dequantised)"


def headlines() -> list[Headline]:
    """From the published runs."""
    metrics = method_metrics(scores_of(archive("peak").get("smollm2-135m_peak-cf")))
    tested = findings(metrics)
    records = max(len(table) for table in metrics.values())
    official = f"first {records} records of PEAK-CF, {SMALL}"
    return [
        _one_fact(metrics, tested, official),
        _construction(),
        _editing(metrics, tested, official),
        _ablations(),
        _explorer(metrics, official),
    ]


def _one_fact(metrics: dict[str, pd.DataFrame], tested: list[Evidence], official: str) -> Headline:
    holds(tested, "AFF hard - 50, ROME", "AFF hard ROME - ROME+APP")
    return Headline(
        "01",
        "A successful edit can ruin its neighbours",
        "ROME appends an answer to a fact and buries the correct answers that were there; with APP"
        " more of them stay. The notebook follows one fact; the numbers are means over many.",
        (
            ("new answer written, ROME (ES)", _cell(metrics, "ROME", "ES")),
            ("correct answers forgotten, ROME (AFF)", _cell(metrics, "ROME", "AFF_hard")),
            ("forgotten with APP", _cell(metrics, "ROME+APP", "AFF_hard")),
        ),
        "01_one_record",
        f"Figure: one packaged fact, {SMALL}. Numbers: {official}.",
    )


def _construction() -> Headline:
    for name in ("peak-mini-cf", "peak-mini-t"):
        if contradictions := validation_report(load_peak(name).records):
            raise UnsupportedError(f"{name} contradicts itself: {contradictions[0]}")
    tables = archive("construction").get("packaged_smollm2-135m").tables
    counterfactual = tables["filter"][tables["filter"]["set"] == "PEAK-CF"]
    passed = proportion_interval((counterfactual["step"] == "").astype(float))
    answers = counterfactual["correct_kept"].sum() / counterfactual["correct"].sum()
    funnel = tables["funnel"].set_index(["set", "step"])["left"]
    first, last = (funnel["PEAK-CF"].iloc[place] for place in (0, -1))
    return Headline(
        "02",
        "The benchmark can be rebuilt from triples",
        "Openly licensed facts become records in PEAK's form. No record has an answer that is both"
        " correct and false by name. Facts that the model does not know are left out.",
        (
            ("facts that became PEAK-CF records", f"{last:,} of {first:,}"),
            ("candidate records the model knows", _percent(passed)),
            ("their correct answers that it knows", f"{100 * answers:.0f} %"),
        ),
        "02_funnel",
        f"Packaged facts, filtered by {SMALL}.",
    )


def _editing(metrics: dict[str, pd.DataFrame], tested: list[Evidence], official: str) -> Headline:
    editors = ("FT-L", "FT-M", "ROME", "MEMIT")
    pairs = [f"{m} {e} - {e}+APP" for e in editors for m in ("AFF hard", "ANF hard")]
    holds(tested, *pairs)
    gain, price = holds(tested, "AFF hard ROME - ROME+APP", "GS ROME - ROME+APP")
    return Headline(
        "03",
        "Edits perturb the answers beside them; APP softens that, at a price",
        "APP lowers forgetting and noise of fine-tuning, ROME and MEMIT. With ROME an edit then"
        " reaches fewer paraphrases.",
        (
            ("correct answers forgotten, ROME (AFF)", _cell(metrics, "ROME", "AFF_hard")),
            ("less of it with APP", _points(gain)),
            ("paraphrases lost to APP (GS)", _points(price)),
        ),
        "03_paper",
        f"Official records: {official}; Gemma 3 270M and PEAK-T beside it.",
    )


def _ablations() -> Headline:
    run = archive("ablations").get("smollm2-135m_peak-cf")
    metrics = variant_metrics(studies_of(run).scores)
    parts = objective_findings(metrics, ["rome"])
    (neighbours,) = holds(neighbour_findings(metrics, ["rome"]), "AFF hard, ROME: k = 1 - APP")
    (first,) = holds(parts, "ANF hard, ROME: without L1 - without L2")
    fairer = fairer_findings(metrics, fairer_editors(run))
    (targets,) = holds(fairer, "ANF hard, ROME: + (sum) - APP")
    holds(fairer, *(f"ANF hard, {e}: + (sum) - APP" for e in ("MEMIT", "FT-M", "MEND")))
    return Headline(
        "04",
        "APP's benefit does not come merely from seeing the correct answers",
        "Editors that take all correct answers as targets, weighed like the new one, leave more noise"
        " than APP. More neighbours protect more. L1 matters most for ROME's noise, not everywhere.",
        (
            ("noise that targets leave beyond APP, ROME (ANF)", _points(targets)),
            ("less forgetting with the whole list than with one neighbour", _points(neighbours)),
            ("more noise without L1 than without L2", _points(first)),
        ),
        "04_fairer",
        f"First 20 records of PEAK-CF ({first.difference.n} can be measured), {SMALL}.",
    )


def _explorer(metrics: dict[str, pd.DataFrame], official: str) -> Headline:
    return Headline(
        "07",
        "Try an edit of your own",
        "Choose a fact, a new answer and an editor, and see what becomes of the other answers."
        " Averages over many facts say what to expect.",
        tuple(
            (f"correct answers forgotten, {method} (AFF)", _cell(metrics, method, "AFF_hard"))
            for method in ("ROME", "FT-M", "MEND")
        ),
        "03_additivity_smollm2-135m_peak-cf",
        f"Numbers and figure: {official}.",
    )


def _cell(metrics: dict[str, pd.DataFrame], method: str, metric: str) -> str:
    mean, low, high, n = summarise(metrics[method][[metric]]).iloc[0]
    return _percent(Estimate(float(mean), float(low), float(high), int(n)))


def _percent(estimate: Estimate) -> str:
    if not estimate.n:
        raise UnsupportedError("a headline's number has no record behind it")
    return f"{in_points(estimate)} %"


def _points(evidence: Evidence) -> str:
    return f"{in_points(evidence.difference)} points"
