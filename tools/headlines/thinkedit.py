"""Notebook 06: deducing."""

from __future__ import annotations

from helpers.results.archive import Run, archive
from helpers.results.statistics import Estimate
from helpers.thinkedit import tables
from helpers.thinkedit.metrics import OWN, pooled, sums_of
from helpers.thinkedit.tables import evaluate
from tools.headlines.headline import Headline, UnsupportedError, ranged

_MAIN, _OTHER = "smollm2-135m", "gemma3-270m"


def headlines() -> list[Headline]:
    """From MEMIT's edits of what the models recall: how many are deep, what is left, what is erased."""
    main, other = (archive("thinkedit").get(f"{name}_recalled-{name}") for name in (_MAIN, _OTHER))
    ours, theirs = _memit(main), _memit(other)
    paper = tables.paper_techniques()["IFR"]
    if max(each["IFR"].high for each in (ours, theirs)) >= paper.min():
        raise UnsupportedError("IFR is not below all values of the paper's methods")
    if max(each[OWN].high for each in (ours, theirs)) >= 0.5:
        raise UnsupportedError("MEMIT does not erase most other facts about the subject")
    if min(each["deep"].low for each in (ours, theirs)) <= 0.5:
        raise UnsupportedError("that most of MEMIT's edits are deep is inconclusive")
    return [
        Headline(
            "06",
            "Most of MEMIT's edits of two small models leave no chain to the old fact, but they also"
            " erase most other facts about the edited subject",
            f"IFR, the mean part of the old fact that is left along its chains, is {ours['IFR'].mean:.2f}"
            f" on SmolLM2 and {theirs['IFR'].mean:.2f} on Gemma. The paper reports {paper.min():.2f} to"
            f" {paper.max():.2f} for its methods on larger models. Of the *other* facts about the edited"
            f" subject {ours[OWN].mean:.2f} and {theirs[OWN].mean:.2f} of the probability is"
            " left. CKP does not measure this loss, because it counts facts about other subjects"
            f" ({ours['CKP'].mean:.2f} and {theirs['CKP'].mean:.2f}). We defined the middle group"
            " after seeing the first results.",
            (
                (
                    f"MEMIT edits of SmolLM2 that are deep (n = {ours['deep'].n})",
                    ranged(vars(ours["deep"])),
                ),
                ("SmolLM2: left of the old fact along chains (IFR)", ranged(vars(ours["IFR"]))),
                ("SmolLM2: left of the subject's other facts (post hoc)", ranged(vars(ours[OWN]))),
            ),
            "06_what_is_left",
            f"Shown for SmolLM2 135M ({ours['IFR'].n} edits) and Gemma 3 270M ({theirs['IFR'].n}), both"
            " dequantised from 4 bits, on facts that each recalls; exact probabilities, edits alone. Also"
            " shown: KnowGIC; ROME on what Qwen2.5-Coder recalls. Not shown: other editors there.",
        )
    ]


def _memit(run: Run) -> dict[str, Estimate]:
    """MEMIT's share of deep edits and IFR, and what it leaves of each kind of fact; each edit alone."""
    found = evaluate((run,)).query("mode == 'independent'")
    deep = tables.deep_table(found, mode="independent").query("method == 'memit'")
    name = tables.DEEP
    mean, low, high = (float(deep[part].item()) for part in (name, f"{name} low", f"{name} high"))
    share = Estimate(mean, low, high, int(deep["edits"].item()))
    terms = found[found["method"] == "memit"].groupby("measure")
    return {"deep": share, **{str(measure): pooled(sums_of(part)) for measure, part in terms}}
