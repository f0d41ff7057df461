"""The results page: every table that the stored scores give, ours next to the papers'."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from every_editor import everything
from page_parts import escaped, html, metrics_of, model_order, runs_of

from helpers.editing.editors import Variant, method_label
from helpers.klob.tables import criteria_text, made_of
from helpers.paths import FIGURES
from helpers.peak.ablations import by_label, finished, studies_of
from helpers.peak.tables import beside_paper, caption_of, editing_table, paper_setting
from helpers.results.archive import Run
from helpers.thinkedit import tables as thinkedit
from helpers.thinkedit.metrics import DEFAULT

_MODES = ("sequential", "independent")
_ESTIMATORS = {"exact": "exact probabilities", "sampled": "sampled responses"}
_PLAIN = ("AFF_hard", "ANF_hard", "AFF_random", "ANF_random", "ES", "GS", "LS_authors")


def results_page(data: Path = FIGURES / "data") -> str:
    """The page's text (MyST) from stored tables; a part without any reports so."""
    parts = [
        ("All editors, all measures", everything(data)),
        ("Editing: PEAK and APP", _peak(data / "peak")),
        ("Ablations of APP", _ablations(data / "ablations")),
        ("Locating: KLoB", _klob(data / "klob")),
        ("Deducing: ThinkEdit", _thinkedit(data / "thinkedit")),
    ]
    lines = [
        "---\nhide-toc: true\n---\n# Results",
        "Drawn from the stored scores in `figures/data` when this site was built. How each number "
        "is computed: [](metrics.md). A click on a column's title sorts its table.",
    ]
    for title, blocks in parts:
        lines += [f"## {title}", *(list(blocks) or ["*No scores are stored yet.*"])]
    return "\n\n".join(lines) + "\n"


def _peak(folder: Path) -> Iterator[str]:
    for run in runs_of(folder):
        by_record = {name: metrics_of(run, name) for name in run.tables}
        yield f"### {escaped(run.about.source['model'])} on {escaped(run.about.source['dataset'])}"
        marks = "with APP significantly better †, worse ‡"
        yield f"{escaped(caption_of(run))}. Percent, 95 % intervals; {marks}."
        yield html(editing_table(by_record).table)
        settings = paper_setting(run.about.source["model"], run.about.source["dataset"])
        yield f"Next to the paper ({escaped(', '.join(settings))}); * is a slip there:"
        yield html(beside_paper(by_record, settings, metrics=_PLAIN).table)


def _ablations(folder: Path) -> Iterator[str]:
    for run in runs_of(folder):
        stored = studies_of(run)
        metrics = {Variant.parse(name): metrics_of(run, name) for name in stored.scores}
        for editor in dict.fromkeys(variant.editor for variant in metrics):
            chosen = finished(metrics, [v for v in metrics if v.editor == editor])
            yield f"### {method_label(editor)}, {escaped(run.name)}"
            yield escaped(stored.described(*chosen.values())) + ". Percent."
            yield html(editing_table(by_label(chosen)).table)


def _klob(folder: Path) -> Iterator[str]:
    for run in runs_of(folder):
        similarities, sentences = run.joined("similarities"), run.joined("sentences")
        yield "### " + escaped(f"{run.about.source['model']} on {run.about.source['dataset']}")
        yield (
            f"{escaped(made_of(run))}. Unclipped mean (95 % interval); "
            "columns (paper): the mean of clipped values with the paper's shortcut for Sim_all. "
            "The paper prints no results of locating methods, so there is none next to ours."
        )
        for granularity in sorted(similarities["granularity"].unique()):
            yield f"Compared by {granularity}:"
            yield html(criteria_text(similarities, sentences, granularity=granularity).table)


def _thinkedit(folder: Path) -> Iterator[str]:
    runs = runs_of(folder)
    recalled = tuple(run for run in runs if thinkedit.is_recalled(run))
    yield from _chains("What the model recalls", recalled)
    given = tuple(run for run in runs if not thinkedit.is_recalled(run))
    yield from _chains("KnowGIC", given, printed=thinkedit.paper_techniques().round(3))


def _chains(
    graphs: str, stored: tuple[Run, ...], *, printed: pd.DataFrame | None = None
) -> Iterator[str]:
    """IFR and CKP of runs on one kind of graph, by estimator and mode; the paper's next to sequences."""
    for estimator, words in _ESTIMATORS.items():
        runs = tuple(run for run in stored if estimator in run.kinds)
        if not runs:
            continue
        terms = thinkedit.terms_of_runs(runs, estimator=estimator)
        if estimator == "exact":
            words = f"{words}, {DEFAULT}"
        for mode in _MODES:
            if mode not in set(terms["mode"]):
                continue
            yield f"### {graphs}, edits {mode}, {words}"
            yield escaped(thinkedit.caption_of_runs(runs, f"{estimator}, {mode}", kind=estimator))
            yield (
                "Means over edits with 95 % intervals; pooled as the paper pools, with the range without one"
                " edit and the largest edit's share; n: edits (chains or facts). IFR: lower is better; CKP:"
                " higher is better."
            )
            shown = thinkedit.as_text(thinkedit.technique_table(terms, mode=mode), digits=3)
            table = shown.table.sort_values(
                "model", key=lambda names: names.map(model_order), kind="stable"
            )
            yield html(table.set_index(["model", "method"]))
            if printed is not None and mode == "sequential":
                yield "The paper's, pooled (Tables 5 and 6):"
                yield html(printed.set_index(["model", "method"]))
