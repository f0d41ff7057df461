"""Notebook 06: deducing."""

from __future__ import annotations

from helpers.results.archive import archive
from helpers.results.statistics import Estimate
from helpers.thinkedit import stored_scores
from helpers.thinkedit.pooled import difference, edit_sums, pooled
from tools.headlines.headline import Headline, UnsupportedError


def headlines() -> list[Headline]:
    """From Gemma's published sequences of edits, by the paper's estimator, pooled over edits."""
    runs = (archive("thinkedit").get("gemma3-270m"),)
    evaluation = stored_scores.evaluation(runs, estimator="sampled", modes=("sequential",))
    sums = edit_sums(evaluation, mode="sequential")
    context = sums[sums["measure"] == "CKP"]
    rome, memit = (context[context["method"] == name] for name in ("rome", "memit"))
    compared = difference(memit, rome)
    if compared.verdict != "less":
        raise UnsupportedError("ROME's sequence is no longer shown to leave less of the context")
    return [
        Headline(
            "06",
            "A sequence of ROME edits leaves less of the context than MEMIT's",
            "Models this small cannot settle which method leaves the old fact most deducible: few"
            " chains are deducible before any edit, and the order changes with what counts as known.",
            (
                ("context preserved after ROME's sequence (CKP)", _range(pooled(rome))),
                ("after MEMIT's", _range(pooled(memit))),
                ("ROME's minus MEMIT's", _range(compared.estimate)),
            ),
            "06_sampled",
            f"KnowGIC (2025-06), Gemma 3 270M (4-bit weights, dequantised), {compared.estimate.n}"
            " edits with a known context, five responses a question.",
        )
    ]


def _range(estimate: Estimate) -> str:
    return f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
