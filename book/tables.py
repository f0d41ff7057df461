"""The results page: every table that can be drawn from the stored scores, without a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from helpers.editing.variants import method_label
from helpers.paths import FIGURES
from helpers.reporting import thinkedit_stored, thinkedit_tables
from helpers.reporting.ablation_tables import by_label, finished, variant_metrics
from helpers.reporting.ablations_stored import load_ablations, stored_ablations
from helpers.reporting.klob_stored import load_klob_run, stored_klob_runs
from helpers.reporting.klob_tables import criteria_text
from helpers.reporting.peak_tables import editing_table, method_metrics
from helpers.reporting.stored import load_run, stored_runs
from helpers.reporting.thinkedit_gallery import evaluation, stored_models

_MODES = ("independent", "sequential")
_ESTIMATORS = {"exact": "exact probabilities", "sampled": "sampled responses"}


def results_page(data: Path = FIGURES / "data") -> str:
    """The page's text (MyST); a part without stored scores says so.

    Args:
        data: folder of the stored result tables.
    """
    parts = [
        ("Editing: PEAK and APP", _peak(data / "peak")),
        ("Ablations of APP", _ablations(data / "peak_ablations")),
        ("Locating: KLoB", _klob(data / "klob")),
        ("Deducing: ThinkEdit", _thinkedit(data)),
    ]
    lines = [
        "# Results",
        "Drawn from the stored scores in `figures/data` when this site was built. How each number "
        "is computed: [](metrics.md). What it stands beside in the papers: the notebooks.",
    ]
    for title, blocks in parts:
        lines += [f"## {title}", *(list(blocks) or ["*No scores are stored yet.*"])]
    return "\n\n".join(lines) + "\n"


def _peak(folder: Path) -> Iterator[str]:
    for name in stored_runs(folder):
        run = load_run(name, folder)
        yield f"### {run.caption.model} on {run.caption.dataset}"
        yield f"{run.caption}. Percent, ± half the 95 % interval; † APP is significantly better."
        yield _html(editing_table(method_metrics(run.scores)))


def _ablations(folder: Path) -> Iterator[str]:
    for name in stored_ablations(folder):
        stored = load_ablations(name, folder)
        metrics = variant_metrics(stored.scores)
        by_editor: dict[str, list] = {}
        for variant in metrics:
            by_editor.setdefault(variant.editor, []).append(variant)
        for editor, variants in by_editor.items():
            chosen = finished(metrics, variants)
            yield f"### {method_label(editor)} on {stored.caption.dataset}, {stored.caption.model}"
            yield stored.described(*chosen.values()) + ". Percent."
            yield _html(editing_table(by_label(chosen)))


def _klob(folder: Path) -> Iterator[str]:
    for name in stored_klob_runs(folder):
        run = load_klob_run(name, folder)
        similarities, sentences = run.tables["similarities"], run.tables["sentences"]
        yield f"### {run.about['model']} on {run.about['source']}"
        yield f"{run}. Headline value (unclipped mean, 95 % interval)."
        for granularity in sorted(similarities["granularity"].unique()):
            yield f"Compared by {granularity}:"
            yield _html(criteria_text(similarities, sentences, granularity=granularity))


def _thinkedit(folder: Path) -> Iterator[str]:
    for estimator, words in _ESTIMATORS.items():
        models = stored_models(folder, estimator=estimator)
        if not models:
            continue
        found = evaluation(models, estimator=estimator, folder=folder)
        for mode in _MODES:
            if mode not in set(found.recovery["mode"]):
                continue
            yield f"### KnowGIC, edits {mode}, {words}"
            yield thinkedit_stored.caption(
                thinkedit_stored.stored(estimator, models, folder), f"{estimator}, {mode}"
            )
            yield "IFR: lower is better; CKP: higher is better; *n* edits have a known chain."
            table = thinkedit_tables.technique_table(found, mode=mode)
            yield _html(table.set_index(["model", "method"]).round(3))


def _html(table: pd.DataFrame) -> str:
    """A table that scrolls in its own box, with one row of titles, by which a reader may sort."""
    html = table.reset_index().to_html(index=False, border=0, na_rep="–")
    return f'```{{raw}} html\n<div class="table-scroll">{html}</div>\n```'
