"""Notebook 03's published run as a list of parts, and what the parts of other runs of PEAK share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from helpers import models
from helpers.editing.build import build_editors
from helpers.editing.editor import Editor
from helpers.editing.editors import Variant, method_label
from helpers.editing.presets import preset_words
from helpers.params import check_range
from helpers.paths import REPOSITORY, run_name
from helpers.peak.ablations import sequence_key
from helpers.peak.records import load_peak
from helpers.peak.run import PeakRun, PeakSequence
from helpers.results.archive import About, TableKey
from helpers.results.benchmark import evaluation_part
from helpers.results.evaluation import small
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore


def publication(params: Mapping[str, Any]) -> Publication:
    """Every method of notebook 03 on every record, a table a method."""
    run = peak_run(params)
    editors = editors_of(run, params["methods"], params)
    parts = [
        evaluation_part(method_label(method), run.evaluation(editor))
        for method, editor in editors.items()
    ]
    return publication_of(run, params, parts, params["methods"])


def peak_run(params: Mapping[str, Any]) -> PeakRun:
    """Model, records and results store that the parameters name."""
    lm = models.load_named(params)
    data = load_peak(
        params["dataset"],
        strict_lists=params["strict_lists"],
        seed=params["seed"],
        limit=params["records"],
        keep=params.get("keep"),
    )
    store = ResultsStore(REPOSITORY / params["results"])
    shown_half = params.get("shown_half", False)
    return PeakRun(lm, data, store, progress=True, shown_half=shown_half)


def publication_of(
    run: PeakRun,
    params: Mapping[str, Any],
    parts: Sequence[Part],
    methods: Sequence[str],
    more: Mapping[str, Any] | None = None,
) -> Publication:
    """A run's parts; ``more`` is what else all its rows depend on."""
    sample_words = ""
    keep = params.get("keep")
    if keep is not None:
        first = f"first {keep} over-represented, others " if keep else ""
        sample_words = f"{first}by relation, seed {params['seed']}"
    relations = {r.case_id: r.relation for r in run.data.records}
    about_records = {"records": len(relations), "relations": relations, "sample": sample_words}

    # The caption words the preset of these methods, and of others that are published with them.
    def caption(table_names: Collection[str]) -> dict[str, Any]:
        keys = [TableKey.parse(name) for name in table_names]
        published = [key.method.lower() for key in keys if key.is_method]
        every_method = dict.fromkeys([*methods, *published])
        protected = [method for method in every_method if method.endswith("+app")]
        words = preset_words(run.lm.name, params["preset"], protected)
        return {**about_records, "preset": words}

    name = run_name(run.lm.name, run.data.name)
    return Publication(name, About(run.settings(more or {}), caption=caption(())), parts, caption)


def sequence_parts(run: PeakRun, params: Mapping[str, Any]) -> Iterator[Part]:
    """Scores after the ``checkpoints`` of ``sequences``, a table for each (``sequence_key``)."""
    checkpoints = sorted(params["checkpoints"])
    for count in checkpoints if params["sequences"] else ():
        check_range("checkpoints", count, 1, len(run.data.records))
    for method, editor in editors_of(run, params["sequences"], params).items():
        for number, edits in enumerate(checkpoints, start=1):
            read_scores = partial(PeakSequence(run, editor).scores, checkpoints[:number])
            cases = [record.case_id for record in run.data.records[:edits]]
            yield Part(
                str(sequence_key(method, edits)),
                editor.settings() | run.ask_settings,
                partial(_small_table, read_scores),
                cases=cases,
            )


def _small_table(read_table: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """A table as it is published, once it is read or made."""
    return small(read_table())


def editors_of(
    run: PeakRun, methods: Sequence[str | Variant], params: Mapping[str, Any]
) -> dict[str, Editor]:
    """Editors by name, as the parameters have them."""
    options = {key: params[key] for key in ("preset", "corpus", "seed")}
    return build_editors(methods, run.lm, **options)
