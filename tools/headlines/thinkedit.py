"""Notebook 06: deducing."""

from __future__ import annotations

from helpers.results.archive import Run, archive
from helpers.results.statistics import Estimate
from helpers.thinkedit import tables
from helpers.thinkedit.metrics import OWN, pooled, sums_of
from helpers.thinkedit.tables import evaluate
from tools.headlines.headline import Headline, UnsupportedError, ranged

_MODELS = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-1.5b")


def headlines() -> list[Headline]:
    """From MEMIT's edits of what the models recall: how many are deep, what is left, what is erased."""
    found = [_memit(archive("thinkedit").get(f"{name}_recalled-{name}")) for name in _MODELS]
    ours, paper = found[0], tables.paper_techniques()["IFR"]
    if max(each["IFR"].high for each in found) >= paper.min():
        raise UnsupportedError("IFR is not below all values of the paper's methods")
    if max(each[OWN].high for each in found) >= 0.5:
        raise UnsupportedError("MEMIT does not erase most other facts about the subject")
    if min(each["deep"].low for each in found) <= 0.5:
        raise UnsupportedError("that most of MEMIT's edits are deep is inconclusive")
    three, names = "{:.2f}, {:.2f} and {:.2f}", ("IFR", OWN, "CKP")
    means = {name: three.format(*(each[name].mean for each in found)) for name in names}
    counts = {name: "{}, {} and {}".format(*(each[name].n for each in found)) for name in names}
    return [
        Headline(
            "06",
            "Most of MEMIT's edits leave no chain to the old fact, but they also erase most other facts"
            " about the edited subject",
            "IFR is the mean part of the old fact that is left along its chains. It is"
            f" {means['IFR']} on SmolLM2, Gemma and Qwen2.5-Coder (n = {counts['IFR']} edits). The paper"
            f" reports {paper.min():.2f} to {paper.max():.2f} for its methods on larger models and other"
            " graphs. Of the *other* facts about the edited subject"
            f" {means[OWN]} of the probability is left (n = {counts[OWN]}). CKP does not measure this"
            f" loss, because it counts facts about other subjects ({means['CKP']}; n = {counts['CKP']})."
            " We defined the measure for the subject's other facts after seeing the first results.",
            (
                ("SmolLM2: deep edits, after which no chain is left", ranged(vars(ours["deep"]))),
                ("SmolLM2: left of the old fact along chains (IFR)", ranged(vars(ours["IFR"]))),
                ("SmolLM2: left of the subject's other facts (post hoc)", ranged(vars(ours[OWN]))),
            ),
            "06_what_is_left",
            f"Shown for SmolLM2 135M, Gemma 3 270M and Qwen2.5-Coder 1.5B ({counts['IFR']} edits),"
            " dequantised from 4 bits, on facts that each recalls; exact probabilities, edits alone."
            " Also shown: KnowGIC. Not shown: other domains; most editors of the largest.",
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
