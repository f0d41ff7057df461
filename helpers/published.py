"""The published tables by name: ours, made from stored results without a model, and the papers' numbers.

``python -m helpers table NAME`` prints one. An entry of ``TABLES`` names the stored runs that its table is
made of and the function that makes it; the notebooks show the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from helpers import UserError
from helpers.behaviour.agreement import app_price_table, by_state, scorer_table
from helpers.editing.editors import fairer
from helpers.klob import tables as klob
from helpers.peak.ablations import (
    by_label,
    coefficients_table,
    fairer_editors,
    finished,
    sequence_metrics,
    studies_of,
    variant_metrics,
)
from helpers.peak.gates import gate_table
from helpers.peak.metrics import method_metrics, metric_interval
from helpers.peak.placebo import placebo_table
from helpers.peak.tables import (
    MAIN_METRICS,
    Metrics,
    beside_paper,
    caption_of,
    paper_setting,
    scores_of,
    unedited,
)
from helpers.records import did_you_mean
from helpers.results.archive import PACKAGED_WORDS, Run, archive
from helpers.results.notes import (
    AnyTable,
    ShownTable,
    as_shown,
    method_notes,
    training_notes,
    with_note,
)
from helpers.results.text import in_points
from helpers.thinkedit import tables as thinkedit

SEQUENTIAL = "sequential"  # ThinkEdit's mode in the paper's tables
# Columns that say what a row is of; the others are measures.
_KEYS = (
    "method",
    "source",
    "model",
    "locator",
    "scorer",
    "metric",
    "edits",
    "records",
    "n",
    "subtask",
)


@dataclass(frozen=True)
class PublishedTable:
    """A table by name.

    ``make`` gets the stored runs of the archive ``of`` whose names end in ``data``: those of one model, or
    all where the table has several models (``several``).
    """

    title: str
    make: Callable[[Sequence[Run]], AnyTable]
    of: str = ""  # the archive; none: the table needs no stored run
    data: str = ""
    several: bool = False
    caption: Callable[[Run], str] = lambda run: run.name


def published_table_named(
    name: str, *, model: str = "", measures: Sequence[str] = ()
) -> tuple[str, ShownTable]:
    """A table's title with what it was made of, and the table; ``measures`` are the columns to be kept."""
    if name not in TABLES:
        raise UserError(f"no table {name!r}{did_you_mean(name, TABLES)}; see helpers table --list")
    entry = TABLES[name]
    runs = _runs_of(name, entry, model)
    table = as_shown(entry.make(runs))
    captions = [entry.caption(run) for run in runs]
    return "\n".join([entry.title, *captions]), _only(table, measures)


def tables_listed() -> list[str]:
    """A line for each table: its name and what it shows."""
    return [f"{name:20s} {entry.title}" for name, entry in TABLES.items()]


def _runs_of(name: str, entry: PublishedTable, model: str) -> list[Run]:
    """The stored runs of a table, packaged models first; without ``model`` one run, or all."""
    if not entry.of:
        if model:
            raise UserError(f"{name}: the table is of no model; omit --model")
        return []
    stored = [
        run
        for run in archive(entry.of).runs()
        if run.name.endswith(entry.data) and "@" not in run.name and "_recalled" not in run.name
    ]
    of_models: dict[str, list[Run]] = {model_name: [] for model_name in PACKAGED_WORDS}
    for run in stored:
        of_models.setdefault(str(run.about.source["model"]), []).append(run)
    model_names = [model_name for model_name, runs in of_models.items() if runs]
    if model and model not in model_names:
        hint = did_you_mean(model, model_names)
        raise UserError(f"{name}: no run of {model!r}{hint}; there are {', '.join(model_names)}")
    if model:
        model_names = [model]
    elif not entry.several:
        model_names = model_names[:1]
    return [run for model_name in model_names for run in of_models[model_name]]


def _only(shown: ShownTable, measures: Sequence[str]) -> ShownTable:
    """The table with the columns of some measures, by the beginnings of their titles."""
    if not measures:
        return shown
    table = shown.table
    if any(table.index.names):
        table = table.reset_index()
    keys = [column for column in table if str(column).split(",")[0] in _KEYS]
    titles = [str(column) for column in table if column not in keys]
    wanted: list[object] = []
    for measure in measures:
        alike = [t for t in titles if t.casefold().startswith(measure.casefold())]
        if not alike:
            hint = did_you_mean(measure, titles)
            raise UserError(f"no measure {measure!r}{hint}; there are {', '.join(titles)}")
        wanted += [title for title in alike if title not in wanted]
    return ShownTable(table[[*keys, *wanted]], shown.note)


def _beside(by_record: Metrics, papers: dict[str, pd.DataFrame], *notes: str) -> ShownTable:
    """Ours with intervals, and the paper's below each method."""
    beside = beside_paper(by_record, papers, metrics=MAIN_METRICS)
    table = beside.table.copy()
    for method, metrics in by_record.items():
        for column in table:
            metric = "LS" if column == "LS_held" else str(column)
            estimate = metric_interval(metric, metrics[metric])
            table.loc[(method, "ours"), column] = f"{in_points(estimate)} (n={estimate.n})"
    return with_note(ShownTable(table, beside.note), *notes)


def _editing(runs: Sequence[Run], *, table: str) -> ShownTable:
    """A run's methods and its unedited model, next to one of PEAK's tables."""
    (run,) = runs
    scores = scores_of(run)
    by_record = {**unedited(scores), **method_metrics(scores)}
    source = run.about.source
    papers = paper_setting(source["model"], source["dataset"], tables=[table])
    return _beside(by_record, papers, *method_notes(run))


def _fairer(runs: Sequence[Run]) -> ShownTable:
    (run,) = runs
    variants = [variant for editor in fairer_editors(run) for variant in fairer(editor)]
    by_record = by_label(finished(variant_metrics(studies_of(run).scores), variants))
    papers = paper_setting("llama2-7b", "peak-cf", tables=["peak_table_5"])  # its only model
    return _beside(by_record, papers, *training_notes(run))


def _sequences(runs: Sequence[Run]) -> ShownTable:
    (run,) = runs
    by_record = {
        f"{key.method} after {key.edits}": metrics
        for key, metrics in sequence_metrics(studies_of(run)).items()
    }
    shown = _beside(by_record, {}, "one sequence of edits a method")
    table = shown.table.droplevel("source")
    return ShownTable(table, shown.note)


def _noise_floor(runs: Sequence[Run]) -> AnyTable:
    (foreign,) = runs
    own = archive("peak").get(foreign.name)
    table = placebo_table(method_metrics(scores_of(own)), method_metrics(scores_of(foreign)))
    return with_note(table, *method_notes(foreign))


def _scorers(runs: Sequence[Run]) -> AnyTable:
    (run,) = runs
    return with_note(scorer_table(by_state(run)), *training_notes(run))


def _price(runs: Sequence[Run]) -> AnyTable:
    (run,) = runs
    return with_note(app_price_table(by_state(run)), *training_notes(run))


def _criteria(runs: Sequence[Run], *, granularity: str) -> ShownTable:
    (run,) = runs
    similarities, sentences = run.joined("similarities"), run.joined("sentences")
    return klob.criteria_text(similarities, sentences, granularity=granularity)


def _nulls(runs: Sequence[Run]) -> AnyTable:
    (run,) = runs
    null = run.joined("null")
    tables = []
    for subtask in ("consistency", "relevance"):
        table = klob.null_text(
            null, subtask=subtask, granularity="neuron", share=klob.DEFAULT_SHARE
        )
        tables.append(table.assign(subtask=subtask))
    return pd.concat(tables)


def _techniques(runs: Sequence[Run], *, printed: Sequence[str]) -> ShownTable:
    """IFR and CKP after sequences of edits, and below them the paper's, which pools."""
    plain, _ = thinkedit.split_app(thinkedit.terms_of_runs(tuple(runs)))
    ours = thinkedit.as_text(thinkedit.technique_table(plain, mode=SEQUENTIAL))
    return _below(ours, thinkedit.paper_techniques(*printed))


def _lengths(runs: Sequence[Run]) -> ShownTable:
    plain, _ = thinkedit.split_app(thinkedit.terms_of_runs(tuple(runs)))
    ours = thinkedit.as_text(thinkedit.length_table(plain, mode=SEQUENTIAL))
    return _below(ours, thinkedit.paper_lengths())


def _below(ours: ShownTable, papers: pd.DataFrame) -> ShownTable:
    """Our rows and, below them, the paper's numbers of the same columns."""
    texts = papers.copy()
    for column in papers.select_dtypes("number"):
        texts[column] = papers[column].map("{:.3f}".format).replace("nan", "–")
    rows = pd.concat(
        [ours.table.assign(source="ours"), texts.assign(source="paper, pooled")], ignore_index=True
    )
    columns = ["source", *(column for column in rows if column != "source")]
    return ShownTable(rows[columns].fillna("–"), ours.note)


TABLES = {
    "peak_table_3": PublishedTable(
        "PEAK-CF: success of edits and damage to the fact's other answers (PEAK, Table 3)",
        partial(_editing, table="peak_table_3"),
        of="peak",
        data="_peak-cf",
        caption=caption_of,
    ),
    "peak_table_4": PublishedTable(
        "PEAK-T, the temporal set (PEAK, Table 4)",
        partial(_editing, table="peak_table_4"),
        of="peak",
        data="_peak-t",
        caption=caption_of,
    ),
    "peak_table_5": PublishedTable(
        "All correct answers as targets, next to APP (PEAK, Table 5)",
        _fairer,
        of="ablations",
        data="_peak-cf",
    ),
    "peak_table_8": PublishedTable(
        "APP's coefficients (PEAK, Table 8)",
        lambda runs: coefficients_table(runs[0], paper_model="llama2-7b"),
        of="ablations",
        data="_peak-cf",
    ),
    "peak_table_9": PublishedTable(
        "PEAK-CF next to the paper's LLaMA-2 13B (PEAK, Table 9)",
        partial(_editing, table="peak_table_9"),
        of="peak",
        data="_peak-cf",
        caption=caption_of,
    ),
    "placebo": PublishedTable(
        "The noise floor: each record under its own edit and under another record's",
        _noise_floor,
        of="placebo",
        data="_peak-cf",
        caption=caption_of,
    ),
    "gates": PublishedTable(
        "After which prompts edits act that change no weights",
        lambda runs: gate_table(runs[0]),
        of="peak",
        data="_peak-cf",
        caption=caption_of,
    ),
    "sequences": PublishedTable(
        "Edits one upon the other: the records edited so far, after n edits",
        _sequences,
        of="ablations",
        data="_peak-cf",
    ),
    "scorers": PublishedTable(
        "The same edits under every scorer, in percent",
        _scorers,
        of="scorers",
        data="_peak-cf",
        caption=caption_of,
    ),
    "app_price": PublishedTable(
        "What APP costs: success without and with it, in percent",
        _price,
        of="scorers",
        data="_peak-cf",
        caption=caption_of,
    ),
    "klob_table_1": PublishedTable(
        "Sizes of KLoB's files and of klob-mini (KLoB, Table 1)",
        lambda runs: klob.size_table("klob-mini"),
    ),
    "klob_criteria": PublishedTable(
        "Locating methods by KLoB's three criteria, neurons; (paper): as the paper computes them",
        partial(_criteria, granularity="neuron"),
        of="klob",
        data="_klob-mini",
        caption=klob.made_of,
    ),
    "klob_layers": PublishedTable(
        "Locating methods by KLoB's three criteria, layers",
        partial(_criteria, granularity="layer"),
        of="klob",
        data="_klob-mini",
        caption=klob.made_of,
    ),
    "klob_nulls": PublishedTable(
        "Neurons that sentences share, next to sentences dealt at random",
        _nulls,
        of="klob",
        data="_klob-mini",
        caption=klob.made_of,
    ),
    "thinkedit_table_4": PublishedTable(
        "KnowGIC: chains by number of steps (ThinkEdit, Table 4)",
        lambda runs: thinkedit.chain_length_table(),
    ),
    "thinkedit_table_5": PublishedTable(
        "What is left of the old fact (IFR) and kept of others (CKP), next to Llama-3 (ThinkEdit, Table 5)",
        partial(_techniques, printed=["thinkedit_table_5"]),
        of="thinkedit",
        several=True,
    ),
    "thinkedit_table_6": PublishedTable(
        "The same next to Qwen2.5 (ThinkEdit, Table 6)",
        partial(_techniques, printed=["thinkedit_table_6"]),
        of="thinkedit",
        several=True,
    ),
    "thinkedit_table_10": PublishedTable(
        "IFR by the chain's number of steps (ThinkEdit, Table 10)",
        _lengths,
        of="thinkedit",
        several=True,
    ),
}
