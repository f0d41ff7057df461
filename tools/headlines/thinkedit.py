"""Notebook 06: deducing."""

from __future__ import annotations

from helpers.results.archive import archive
from helpers.results.statistics import Estimate
from helpers.thinkedit import stored_scores, technique_tables
from helpers.thinkedit.pooled import edit_sums, pooled
from helpers.thinkedit.subject_tables import KINDS, sums_by_kind
from tools.headlines.headline import Headline, UnsupportedError


def headlines() -> list[Headline]:
    """From MEMIT's edits of what SmolLM2 recalls: what one takes and leaves, what a sequence costs."""
    run = archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m")
    found = stored_scores.evaluation((run,))

    def left(steps: str) -> Estimate:
        sums = edit_sums(found, mode="independent", steps=steps)
        return pooled(sums[(sums["method"] == "memit") & (sums["measure"] == "IFR")])

    direct, around = left("1"), left("2")
    beside = pooled(sums_by_kind(run, "memit", mode="independent")[KINDS[1]])
    pairs = technique_tables.against_mode(found, found, mode="sequential", other_mode="independent")
    changes = technique_tables.changes(pairs)
    cost = changes[(changes["method"] == "memit") & (changes["measure"] == "CKP")].iloc[0]
    if direct.high >= around.low or beside.high >= 0.5 or cost["verdict"] != "less":
        raise UnsupportedError("what MEMIT leaves, or what its sequence costs, is open")
    return [
        Headline(
            "06",
            "An edit takes most other facts about its subject along; little can still be deduced",
            "After MEMIT's edit SmolLM2 hardly names the old object any more. Chains of two facts"
            " that lead to it keep a little more. Most other facts about the subject are gone, too,"
            " which the paper's CKP does not count. A sequence of edits costs much of the context.",
            (
                ("left of other facts about the edited subjects, MEMIT", _range(beside)),
                ("left of the old fact along two steps (IFR)", _range(around)),
                (
                    f"change of the context kept (CKP) in a sequence of {cost['edits']:.0f}",
                    f"{cost['mean']:.2f} [{cost['low']:.2f}, {cost['high']:.2f}]",
                ),
            ),
            "06_recalled_methods",
            f"What SmolLM2 135M (4-bit weights, dequantised) recalls, {direct.n} edits, exact"
            " probabilities.",
        )
    ]


def _range(estimate: Estimate) -> str:
    ends = (estimate.mean, estimate.low, estimate.high)
    mean, low, high = (f"{value:.2f}" for value in ends)
    return f"{mean} [{low}, {high}]"
