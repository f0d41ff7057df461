"""Notebook 09: every editor."""

from __future__ import annotations

from helpers.comparison.measures import GRAPHS, LISTS, TEXT, models_of, stored_rows
from helpers.editing.editors import distinct, method_label
from helpers.results.archive import archive
from helpers.thinkedit.metrics import DEEP, OWN
from helpers.thinkedit.tables import (
    difference_table,
    is_recalled,
    split_app,
    technique_table,
    terms_of_runs,
)
from tools.headlines.headline import Headline, UnsupportedError, ranged
from tools.headlines.thinkedit import edits_alone, wording_count

_MODEL = "smollm2-135m"
_RUN = f"{_MODEL}_recalled-{_MODEL}"
_SHOWN = (
    (_RUN, "memit", OWN),
    (_RUN, "memit+app", OWN),
    (f"{_RUN}@editors", "memoir", OWN),
    (f"{_RUN}@editors", "memoir", "CKP"),
)


def headlines() -> list[Headline]:
    """From every stored row: no editor breaks chains and keeps both kinds of what else is known."""
    rows = stored_rows(groups=(LISTS, TEXT, GRAPHS))
    on_both = {
        key: row.estimates
        for key, row in rows.items()
        if {DEEP, OWN, "CKP"} <= row.estimates.keys() and not (key.placebo or key.half_shown)
    }
    losing_others: dict[str, list[str]] = {}  # models by method
    for key, estimates in on_both.items():
        if min(estimates[measure].mean for measure in (DEEP, OWN, "CKP")) > 0.5:
            raise UnsupportedError(
                f"{key.method} on {key.model}: deep and both kinds of facts are all above 0.5"
            )
        if min(estimates[DEEP].mean, estimates[OWN].mean) > 0.5:
            losing_others.setdefault(key.method, []).append(key.model)
    if losing_others != {"memoir": ["smollm2-135m"], "grace": ["gemma3-270m"]}:
        raise UnsupportedError(f"deep with the subject's other facts: {losing_others}")
    _check_app()
    numbers = []
    wordings = set()
    for run_name, method, measure in _SHOWN:
        run = archive("thinkedit").get(run_name)
        estimates = edits_alone(run, method)
        wordings.add(wording_count(run, method))
        deep = "{mean:.2f} [{low:.2f}, {high:.2f}] of its edits are deep".format_map(
            vars(estimates[DEEP])
        )
        facts = "the subject's other facts" if measure == OWN else "facts about other subjects"
        label = f"part left of {facts}, {method_label(method)} ({deep})"
        numbers.append((label, ranged(vars(estimates[measure]))))
    wording_counts = " to ".join(str(count) for count in sorted({min(wordings), max(wordings)}))
    counts = []
    for model in models_of({key: rows[key] for key in on_both}):
        of_model = [key.method.partition("+")[0] for key in on_both if key.model == model]
        counts.append(f"{len(distinct(dict.fromkeys(of_model)))} on {model}")
    return [
        Headline(
            "09",
            "No editor here leaves most of its edits without a chain to the old fact and also preserves most"
            " of the other facts, about the subject and about others",
            "We compare means of the editors with these measures stored and all chains scored"
            f" ({', '.join(counts)}). If more than half"
            " of an editor's edits are *deep* (no chain of known facts leads to the old one), it loses on"
            " average more than half of the subject's other facts or, as MEMOIR and (on Gemma) GRACE do, of"
            " the facts about other subjects (their intervals of deep edits and of these facts include"
            " half). With APP, MEMIT's and ROME's edits keep more of the subject's facts, and fewer edits are"
            f" deep; on SmolLM2 only {_success('memit+app'):.2f} and {_success('rome+app'):.2f} of them"
            " succeed.",
            tuple(numbers),
            "09_front",
            "Shown for SmolLM2 135M, Gemma 3 270M and Qwen2.5-Coder 1.5B, dequantised from 4 bits; PEAK-CF"
            " and what each model recalls, each edit alone. Intervals in this box are over the wordings of"
            f" the edits' prompts ({wording_counts}); those over edits, in the tables, are narrower. Not"
            " shown: larger models; sequences.",
        )
    ]


def _success(method: str) -> float:
    """The share of a method's edits of what SmolLM2 recalls that make the new object the more probable."""
    terms = terms_of_runs((archive("thinkedit").get(_RUN),))
    efficacy = technique_table(terms, mode="independent").set_index("method")["Efficacy"]
    return float(efficacy[method])


def _check_app() -> None:
    """That with APP more of the subject's other facts is left and fewer edits are deep, on the same edits."""
    runs = tuple(
        run for run in archive("thinkedit").runs() if is_recalled(run) and "@" not in run.name
    )
    without_app, with_app = split_app(terms_of_runs(runs))
    tests = difference_table(with_app, without_app, mode="independent", measures=(OWN, DEEP)).table
    expected = {OWN: "more", DEEP: "less"}
    tested = set()
    for test in tests.to_dict("records"):
        if test["method"] not in ("memit", "rome"):
            continue
        tested.add((test["method"], test["measure"]))
        if test["Holm"] != expected[test["measure"]]:
            raise UnsupportedError(
                f"APP and {test['method']} on {test['model']}: {test['measure']}"
            )
    missing = {(method, measure) for method in ("memit", "rome") for measure in expected} - tested
    if missing:
        raise UnsupportedError(f"APP is not tested: {sorted(missing)}")
