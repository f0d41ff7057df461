"""Notebook 09: every editor."""

from __future__ import annotations

from helpers.comparison.measures import GRAPHS, LISTS, TEXT, RowKey, models_of, stored_rows
from helpers.editing.editors import distinct, method_label
from helpers.results.archive import archive
from helpers.thinkedit.metrics import DEEP, OWN
from helpers.thinkedit.tables import difference_table, is_recalled, split_app, terms_of_runs
from tools.headlines.headline import Headline, UnsupportedError, ranged

_MODEL = "smollm2-135m"
_SHOWN = ("memit", "memit+app", "ft-m")


def headlines() -> list[Headline]:
    """From every stored row: no editor breaks chains and keeps what else is known of the subject."""
    rows = stored_rows(groups=(LISTS, TEXT, GRAPHS))
    on_both = {
        key: row.estimates
        for key, row in rows.items()
        if {DEEP, OWN} <= row.estimates.keys() and not (key.placebo or key.half_shown)
    }
    for key, estimates in on_both.items():
        if min(estimates[DEEP].mean, estimates[OWN].mean) > 0.5:
            raise UnsupportedError(
                f"{key.method} on {key.model}: deep and the subject's other facts are both above 0.5"
            )
    _check_app()
    numbers = []
    for method in _SHOWN:
        estimates = on_both[RowKey(_MODEL, method)]
        deep = "{mean:.2f} [{low:.2f}, {high:.2f}] of its edits are deep".format_map(
            vars(estimates[DEEP])
        )
        label = f"part left of the subject's other facts, {method_label(method)} ({deep})"
        numbers.append((label, ranged(vars(estimates[OWN]))))
    editors = distinct(dict.fromkeys(key.method.partition("+")[0] for key in on_both))
    model_count = len(models_of({key: rows[key] for key in on_both}))
    counts = f"{len(editors)} editors and {model_count} models"
    return [
        Headline(
            "09",
            "No editor here leaves most of its edits without a chain to the old fact and also preserves most"
            " of the subject's other facts",
            f"We compare means of {counts} with both measures stored and all chains scored. If more than half"
            " of an editor's edits are *deep* (no chain of known facts leads to the old one), less than half"
            " of the probability of the subject's other facts is left. With APP, MEMIT's and ROME's edits"
            " keep more of these facts, and fewer edits are deep.",
            (numbers[0], numbers[1], numbers[2]),
            "09_front",
            "Shown for SmolLM2 135M, Gemma 3 270M and Qwen2.5-Coder 1.5B, dequantised from 4 bits; PEAK-CF"
            " and what each model recalls, each edit alone. Not shown: larger models; sequences.",
        )
    ]


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
