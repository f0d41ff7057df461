"""Notebook 06: deducing."""

from __future__ import annotations

import pandas as pd

from helpers.results.archive import Run, archive
from helpers.results.statistics import Estimate, fraction_interval
from helpers.thinkedit.metrics import DEEP, OWN
from helpers.thinkedit.tables import ratios_by_wording, terms_of_runs
from tools.headlines.headline import Headline, UnsupportedError, ranged

_MODELS = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-1.5b")
_NAMES = (DEEP, "IFR", OWN, "CKP")


def headlines() -> list[Headline]:
    """From MEMIT's edits of what the models recall: how many are deep, what is left, what is erased."""
    found = [
        edits_alone(archive("thinkedit").get(f"{name}_recalled-{name}"), "memit")
        for name in _MODELS
    ]
    ours = found[0]
    wordings = wording_count(
        archive("thinkedit").get(f"{_MODELS[0]}_recalled-{_MODELS[0]}"), "memit"
    )
    if max(each[OWN].high for each in found) >= min(each["CKP"].low for each in found):
        raise UnsupportedError(
            "MEMIT does not erase more of the subject's other facts than of others"
        )
    if max(each[OWN].high for each in found) >= 0.5:
        raise UnsupportedError("MEMIT does not erase most other facts about the subject")
    if ours[DEEP].low <= 0.5 or min(each[DEEP].mean for each in found) <= 0.5:
        raise UnsupportedError("that most of MEMIT's edits are deep is inconclusive")
    three = "{:.2f}, {:.2f} and {:.2f}"
    means = {name: three.format(*(each[name].mean for each in found)) for name in _NAMES}
    counts = {name: "{}, {} and {}".format(*(each[name].n for each in found)) for name in _NAMES}
    return [
        Headline(
            "06",
            "Most of MEMIT's edits leave no chain to the old fact, but they also erase most other facts"
            " about the edited subject",
            "Of the probability of the *other* facts about the subject"
            f" {means[OWN]} is left on SmolLM2, Gemma and Qwen2.5-Coder (n = {counts[OWN]} edits). Of facts"
            f" about other subjects (the paper's CKP) {means['CKP']} is left. Little of the old fact is left"
            f" along its chains (IFR {means['IFR']}), but a chain breaks as soon as its fact about the"
            " subject is lost, so a low IFR alone is no success. We defined the first measure after seeing"
            " the first results.",
            (
                ("SmolLM2: share of deep edits (no chain is left)", ranged(vars(ours[DEEP]))),
                (
                    "SmolLM2: part of the old fact left along chains (IFR)",
                    ranged(vars(ours["IFR"])),
                ),
                (
                    "SmolLM2: part left of the subject's other facts (post hoc)",
                    ranged(vars(ours[OWN])),
                ),
                (
                    "SmolLM2: part left of facts about other subjects (CKP)",
                    ranged(vars(ours["CKP"])),
                ),
            ),
            "06_what_is_left",
            f"Shown for SmolLM2 135M, Gemma 3 270M and Qwen2.5-Coder 1.5B ({counts['IFR']} edits),"
            " dequantised from 4 bits, on facts that each recalls; exact probabilities, edits alone."
            f" Intervals in this box are over the {wordings} wordings of SmolLM2's edit prompts;"
            " those over edits, in most tables, are narrower."
            " Not shown: other domains, most editors on the largest model. The paper's IFR is pooled over"
            " sequences on larger models.",
        )
    ]


def memits_edits() -> tuple[Estimate, Estimate]:
    """What MEMIT's edits of SmolLM2 leave of the subject's other facts, and of facts about others (CKP).

    Intervals are over wordings.
    """
    of_edits = edits_alone(archive("thinkedit").get("smollm2-135m_recalled-smollm2-135m"), "memit")
    return of_edits[OWN], of_edits["CKP"]


def edits_alone(run: Run, method: str) -> dict[str, Estimate]:
    """A method's share of deep edits, IFR, and what it leaves of each kind of fact; each edit alone.

    Intervals are over wordings.
    """
    return {name: fraction_interval(ratios) for name, ratios in _ratios(run, method).items()}


def wording_count(run: Run, method: str) -> int:
    """Of how many wordings the prompts of a method's edits are."""
    return int(_ratios(run, method)["CKP"].index.nunique())


def _ratios(run: Run, method: str) -> dict[str, pd.Series]:
    terms = terms_of_runs((run,))
    of_method = terms[(terms["method"] == method) & (terms["mode"] == "independent")]
    return {
        name: ratios_by_wording(run, of_method[of_method["measure"] == name]) for name in _NAMES
    }
