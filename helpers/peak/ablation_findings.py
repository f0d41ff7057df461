"""What the paper says of APP's parts, as differences that can be tested (PEAK, Sections 7.6 to 7.8).

Every comparison is paired over the records of one editor's variants, by the test that fits the metric
(``helpers.peak.findings``). A difference is positive where the finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from helpers.editing.editors import OBJECTIVES, Variant, fairer, method_label
from helpers.peak.ablation_tables import ByVariant
from helpers.peak.findings import paired
from helpers.results.text import Evidence

FACTORS = ("AFF_hard", "ANF_hard")
EDITS = ("ES", "GS")


def objective_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """Every objective helps, and L1 most (Section 7.6, Figures 3 and 5).

    Args:
        metrics: of the variants at hand; a comparison whose variants are not is left out.
        editors: those studied.
    """
    evidence: list[Evidence] = []
    for editor in editors:
        whole = Variant(f"{editor}+app")
        short = {
            name: Variant(whole.method, field, 0.0, True) for field, name in OBJECTIVES.items()
        }
        for variant in short.values():
            evidence += _differences("every objective helps", metrics, whole, variant, FACTORS)
        for name in ("L2", "L3"):
            evidence += _differences("L1 matters most", metrics, short[name], short["L1"], FACTORS)
    return evidence


def fairer_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """Targets instead of objectives protect less than APP, at like efficacy (Section 7.7, Table 5).

    The paper finds no loss of efficacy; whether there is one is tested beside it.
    """
    evidence: list[Evidence] = []
    for editor in editors:
        plain, *plus, whole = fairer(editor)
        for variant in plus:
            finding = "all answers as targets protect less than APP"
            evidence += _differences(finding, metrics, whole, variant, FACTORS)
            finding = "all answers as targets cost edits (not in the paper)"
            evidence += _differences(finding, metrics, variant, plain, ("ES",))
    return evidence


def neighbour_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """One neighbour of each list helps, more help more (Section 7.8, Figure 4)."""
    evidence: list[Evidence] = []
    for editor in editors:
        whole = Variant(f"{editor}+app")
        none, one = (Variant(whole.method, "neighbours", float(k)) for k in (0, 1))
        evidence += _differences("one neighbour helps", metrics, one, none, FACTORS)
        evidence += _differences("more neighbours help more", metrics, whole, one, FACTORS)
    return evidence


def app_findings(metrics: ByVariant, editors: Iterable[str]) -> list[Evidence]:
    """APP reduces perturbation, and costs edits (Section 7.4)."""
    evidence: list[Evidence] = []
    for editor in editors:
        plain, whole = Variant(editor), Variant(f"{editor}+app")
        evidence += _differences("APP reduces perturbation", metrics, whole, plain, FACTORS)
        evidence += _differences("APP costs edits", metrics, whole, plain, EDITS)
    return evidence


def _differences(
    finding: str, metrics: ByVariant, lower: Variant, higher: Variant, columns: Iterable[str]
) -> Iterator[Evidence]:
    """``higher`` minus ``lower`` in each metric, where both are at hand."""
    if lower not in metrics or higher not in metrics:
        return
    change = f"{method_label(lower.editor)}: {_state(higher)} - {_state(lower)}"
    for column in columns:
        first, second = metrics[lower][column], metrics[higher][column]
        yield paired(finding, f"{column}, {change}", column, first, second)


def _state(variant: Variant) -> str:
    """``plain``, ``APP``, ``without L1``, ``+ (mean)``."""
    label = method_label(variant.method).removeprefix(method_label(variant.editor))
    return variant.change or {"": "plain", "+APP": "APP"}.get(label, label)
