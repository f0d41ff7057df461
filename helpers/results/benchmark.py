"""A benchmark's run that a params file asks for, to be published: a table of scores for each method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import pandas as pd

from helpers import models
from helpers.editing.build import build_editors
from helpers.editing.editors import method_label
from helpers.editing.presets import preset_words
from helpers.paths import REPOSITORY, run_name
from helpers.results.archive import About
from helpers.results.evaluation import Benchmark, Case, Evaluation, small
from helpers.results.publish import Part, Publication
from helpers.results.store import ResultsStore


def benchmark_publication(benchmark: Benchmark[Case], params: Mapping[str, Any]) -> Publication:
    """Every method of the parameters on every case of a benchmark, by the model that they name."""
    lm = models.load_named(params)
    store = ResultsStore(REPOSITORY / params["results"])
    editor_options = {key: params[key] for key in ("preset", "corpus", "seed")}
    parts = []
    for method, editor in build_editors(params["methods"], lm, **editor_options).items():
        evaluation = Evaluation(lm, benchmark, store, editor, progress=True)
        parts.append(evaluation_part(method_label(method), evaluation))
    caption = {
        "records": len(benchmark.cases),
        "relations": {case.case_id: benchmark.relation(case) for case in benchmark.cases},
        "preset": preset_words(lm.name, params["preset"], []),
    }
    about = About(Evaluation(lm, benchmark, store).source, caption=caption)
    return Publication(run_name(lm.name, benchmark.data["dataset"]), about, parts)


def evaluation_part(name: str, evaluation: Evaluation[Case]) -> Part:
    """Scores before and after the edits that an evaluation makes."""
    assert evaluation.editor is not None
    settings = {
        **evaluation.editor.settings(),
        **evaluation.mode.settings,
        **evaluation.benchmark.settings,
    }
    return part_of_cases(name, settings, evaluation.before_and_after, evaluation.cases.by_id)


def part_of_cases(
    name: str,
    settings: Mapping[str, Any],
    give: Callable[..., pd.DataFrame],
    cases: Collection[int],
) -> Part:
    """What ``give`` makes of these cases, or with ``from_store_only`` has of them, as it is published."""

    def table(*, from_store_only: bool = False) -> pd.DataFrame:
        return small(give(from_store_only=from_store_only))

    return Part(name, settings, table, partial(table, from_store_only=True), cases)
