"""The README's first screen: a figure's caption, three findings and a short table, from published tables."""

from __future__ import annotations

import pandas as pd

from helpers.behaviour.agreement import by_state
from helpers.peak.figures import MAIN_RUN
from helpers.peak.findings import findings
from helpers.peak.first_screen import RUN, answers_of_record, lost_counts, typical_record
from helpers.peak.metrics import method_metrics, summarise
from helpers.peak.tables import scores_of
from helpers.results.archive import archive
from helpers.results.statistics import Estimate
from helpers.results.text import in_points
from tools.headlines.headline import UnsupportedError, holds
from tools.headlines.peak import free_text_of, lost_in_text, states_of_main_run
from tools.headlines.thinkedit import memits_edits

_FURTHER_RUN = f"{MAIN_RUN}@editors"
_METHODS = (
    *("FT-L", "FT-M", "FT-M+APP", "MEND", "ROME", "ROME+APP", "MEMIT", "MEMIT+APP"),
    *("AlphaEdit", "LoRA", "MEMOIR", "In context", "GRACE"),
)
_MEASURES = {  # of the short table, and their titles
    "ES": "new answer more probable (ES)",
    "GS": "at paraphrases (GS)",
    "LS": "unrelated kept (LS)",
    "AFF_hard": "forgetting (AFF)",
    "ANF_hard": "noise (ANF)",
}
_IN_TEXT = "named in free text"


def caption_of_figure() -> str:
    """One sentence on the figure."""
    run = archive("ablations").get(RUN)
    record = typical_record(run)
    answers = answers_of_record(run, record)
    lost_without, lost_with = lost_counts(answers).values()
    correct_count = len(answers.query("list == 'correct'"))
    return (
        f"*A typical ROME edit of SmolLM2-135M, “{record.edit_prompt} … {record.target_new}”: {lost_without}"
        f" of the {correct_count} correct answers that the model knows lose at least nine tenths of their"
        f" probability per token, and with APP only {lost_with} does.*"
    )


def findings_lines() -> str:
    """What ROME writes and forgets, what APP saves and costs, what MEMIT does to the subject's facts."""
    metrics, temporal = (
        method_metrics(scores_of(archive("peak").get(name)))
        for name in (MAIN_RUN, MAIN_RUN.replace("-cf", "-t"))
    )
    tested = findings(metrics, temporal)
    holds(tested, "AFF hard - 50, ROME")
    (saved,) = holds(tested, "AFF hard ROME - ROME+APP")
    success, forgetting = (_mean_of(metrics["ROME"], name) for name in ("ES", "AFF_hard"))
    unnamed = lost_in_text()
    named, named_with_app = (100 * free_text_of(state).mean() for state in ("ROME", "ROME+APP"))
    other_facts, others = memits_edits()
    if other_facts.high >= others.low:
        raise UnsupportedError("other facts about the subject are not more damaged than the rest")
    return "\n".join(
        [
            "- **By probability most edits succeed, but the model forgets the other correct answers.** On"
            f" PEAK-CF, PEAK's counterfactual records, ROME makes {in_points(success)} % of the new answers"
            f" more probable than the least probable correct one (ES, n = {success.n}). Forgetting"
            f" of the other correct answers (AFF; 0: nothing lost, 100: all lost) is"
            f" {in_points(forgetting)} % (n = {forgetting.n}).",
            "- **APP protects other answers, but fewer of ROME's new answers are generated.** On PEAK-CF it"
            " lowers ROME's forgetting of answers that its loss contains by"
            f" {in_points(saved.difference)} points (n = {saved.difference.n})."
            f" But generated text names the new answer after {named_with_app:.0f} instead of {named:.0f} %"
            f" of the edits, {in_points(unnamed)} points less (n = {unnamed.n}).",
            "- **MEMIT erases the subject's other facts.** After its edits of facts that the model"
            f" recalls, {in_points(other_facts)} % of the probability of the edited subject's *other* facts"
            f" is left. Of facts about other subjects, {in_points(others)} % is left (n = {others.n} edits;"
            " intervals over the wordings of their prompts).",
        ]
    )


def _mean_of(metrics: pd.DataFrame, name: str) -> Estimate:
    mean, low, high, n = summarise(metrics[[name]]).iloc[0]
    return Estimate(float(mean), float(low), float(high), int(n))


def first_screen_table() -> pd.DataFrame:
    """Some editors on the main run's records in percent, with n and what free text names."""
    metrics: dict[str, pd.DataFrame] = {}
    states = dict(states_of_main_run())
    for name in (MAIN_RUN, _FURTHER_RUN):
        metrics |= method_metrics(scores_of(archive("peak").get(name)))
    states |= by_state(archive("scorers").get(_FURTHER_RUN))
    rows = {}
    for method in (name for name in _METHODS if name in metrics):
        means = 100 * summarise(metrics[method][list(_MEASURES)])["mean"]
        cells = {title: f"{means[name]:.0f}" for name, title in _MEASURES.items()}
        named = states[method]["free, greedy"].mean() if method in states else None
        rows[method] = {
            **cells,
            _IN_TEXT: "–" if named is None else f"{100 * named:.0f}",
            "n": str(len(metrics[method])),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("editor")
