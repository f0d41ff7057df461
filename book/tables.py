"""The results page: every table that can be drawn from the stored scores, without a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from helpers.editing.variants import method_label
from helpers.klob.tables import criteria_text, made_of
from helpers.paths import FIGURES
from helpers.peak import stored_scores as peak_scores
from helpers.peak.ablation_tables import by_label, finished, variant_metrics
from helpers.peak.tables import editing_table, method_metrics
from helpers.results.archive import Archive
from helpers.thinkedit import stored_scores as thinkedit_scores
from helpers.thinkedit.technique_tables import as_text, technique_table

_MARKUP = re.compile(r"([\\`*_{}\[\]<>&$|~])")
_MODES = ("independent", "sequential")
_ESTIMATORS = {"exact": "exact probabilities", "sampled": "sampled responses"}


def escaped(text: object) -> str:
    """Text from data as the page shows it as it is, whatever Markdown or HTML is in it."""
    return _MARKUP.sub(r"\\\1", str(text).replace("\n", " "))


def results_page(data: Path = FIGURES / "data") -> str:
    """The page's text (MyST); a part without stored scores says so.

    Args:
        data: folder of the stored result tables.
    """
    parts = [
        ("Editing: PEAK and APP", _peak(data / "peak")),
        ("Ablations of APP", _ablations(data / "ablations")),
        ("Locating: KLoB", _klob(data / "klob")),
        ("Deducing: ThinkEdit", _thinkedit(data / "thinkedit")),
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
    for run in Archive(folder).runs():
        caption = peak_scores.caption_of(run)
        yield f"### {escaped(caption.model)} on {escaped(caption.dataset)}"
        yield f"{escaped(caption)}. Percent, 95 % intervals; with APP significantly better †, worse ‡."
        yield _html(editing_table(method_metrics(peak_scores.scores_of(run))))


def _ablations(folder: Path) -> Iterator[str]:
    for run in Archive(folder).runs():
        stored = peak_scores.studies_of(run)
        metrics = variant_metrics(stored.scores)
        by_editor: dict[str, list] = {}
        for variant in metrics:
            by_editor.setdefault(variant.editor, []).append(variant)
        for editor, variants in by_editor.items():
            chosen = finished(metrics, variants)
            where = f"{stored.caption.dataset}, {stored.caption.model}"
            yield f"### {method_label(editor)} on {escaped(where)}"
            yield escaped(stored.described(*chosen.values())) + ". Percent."
            yield _html(editing_table(by_label(chosen)))


def _klob(folder: Path) -> Iterator[str]:
    for run in Archive(folder).runs():
        similarities, sentences = run.tables["similarities"], run.tables["sentences"]
        yield "### " + escaped(f"{run.about.source['model']} on {run.about.source['dataset']}")
        yield f"{escaped(made_of(run))}. Headline value (unclipped mean, 95 % interval)."
        for granularity in sorted(similarities["granularity"].unique()):
            yield f"Compared by {granularity}:"
            yield _html(criteria_text(similarities, sentences, granularity=granularity))


def _thinkedit(folder: Path) -> Iterator[str]:
    for estimator, words in _ESTIMATORS.items():
        runs = tuple(run for run in Archive(folder).runs() if estimator in run.tables)
        if not runs:
            continue
        found = thinkedit_scores.evaluation(runs, estimator=estimator)
        for mode in _MODES:
            if mode not in set(found.recovery["mode"]):
                continue
            yield f"### KnowGIC, edits {mode}, {words}"
            scores = thinkedit_scores.scores_of(runs, estimator)
            yield escaped(thinkedit_scores.caption(scores, f"{estimator}, {mode}"))
            yield "Pooled, with 95 % intervals. IFR: lower is better; CKP: higher is better."
            table = as_text(technique_table(found, mode=mode), digits=3)
            yield _html(table.set_index(["model", "method"]))


def _html(table: pd.DataFrame) -> str:
    """A table that scrolls in its own box, with one row of titles, by which a reader may sort."""
    html = table.reset_index().to_html(index=False, border=0, na_rep="–")
    return f'```{{raw}} html\n<div class="table-scroll">{html}</div>\n```'
