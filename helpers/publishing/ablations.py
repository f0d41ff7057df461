"""Notebook 04's studies, each piece written to the published tables as soon as it is finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from helpers.editing.variants import OBJECTIVES, Variant, objectives
from helpers.paths import run_name
from helpers.publishing.adoption import adopt, as_json, is_published
from helpers.reporting.ablations_stored import add_said, add_scores, load_part, sequence_key
from helpers.reporting.peak_tables import Caption
from helpers.reporting.stored import StoredRun
from helpers.runs.answer_lists import AnswerLists
from helpers.runs.methods import build_methods, build_variants
from helpers.runs.peak_scores import PeakRun
from helpers.runs.sequences import PeakSequence

CHUNK = 10  # records edited between two writes to the results store


def publish_ablations(
    run: PeakRun, params: Mapping[str, Any], caption: Caption, folder: Path
) -> Path:
    """Variants, responses and sequences of edits, in this order.

    Args:
        run: with all records that any study needs; independent edits and responses take the first
            ``params["records"]``, sequences as many as their last checkpoint.
        params: the parameters of notebook 04.
        caption: what the tables say about themselves.
        folder: where ``<model>_<dataset>/`` goes.
    """
    first = replace(run, data=replace(run.data, records=run.data.records[: params["records"]]))
    first = replace(first, chunk=CHUNK)
    _publish_variants(first, params, caption, folder)
    _publish_said(first, params, caption, folder)
    _publish_sequences(run, params, caption, folder)
    return folder / _name(caption)


def studies(params: Mapping[str, Any]) -> dict[str, list[Variant]]:
    """The variants of every study, from the parameters of notebook 04.

    Args:
        params: ``editors`` (those studied closely), ``fairer`` and ``others`` (editors of the two
            further tables), ``neighbours``, ``factors`` and ``margins`` (values to try).

    Returns:
        *objectives* (PEAK, Figures 3 and 5), *fairer* (Table 5), *neighbours* (Figure 4), *others*
        (editors beyond the paper) and *sensitivity* (around Table 8's coefficients).
    """
    close = params["editors"]
    return {
        "objectives": [v for editor in close for v in objectives(editor)],
        "fairer": [
            Variant(editor + suffix)
            for editor in params["fairer"]
            for suffix in ("", "+all", "+app")
        ],
        "neighbours": [
            Variant(f"{editor}+app", "neighbours", float(count))
            for editor in close
            for count in params["neighbours"]
        ],
        "others": [
            Variant(editor + suffix) for editor in params["others"] for suffix in ("", "+app")
        ],
        "sensitivity": [
            Variant(f"{editor}+app", field, float(value), field != "margin")
            for editor in close
            for field in (*OBJECTIVES, "margin")
            for value in params["margins" if field == "margin" else "factors"]
        ],
    }


def _publish_variants(
    run: PeakRun, params: Mapping[str, Any], caption: Caption, folder: Path
) -> None:
    published = load_part("scores", folder / _name(caption))
    for variants in studies(params).values():
        editors = build_variants(variants, run.language_model, **_options(params))
        adopt(run, editors, published)
        for name, editor in editors.items():
            scores, settings = {name: run.scores(editor)}, {name: editor.settings()}
            made = StoredRun(caption, scores, settings, run.settings({}))
            add_scores(_name(caption), made, folder=folder)


def _publish_said(run: PeakRun, params: Mapping[str, Any], caption: Caption, folder: Path) -> None:
    if not params["said"]:
        return
    lists = AnswerLists(run, samples=params["samples"])
    drawn = {"samples": lists.samples, **asdict(lists.sampling)}
    about = {"records": len(run.data.records), **drawn}
    said = {"before": lists.said(), "again": lists.again().said()}
    add_said(_name(caption), caption, said, about, {}, folder)
    for method in params["said"]:
        (editor,) = build_methods([method], run.language_model, **_options(params)).values()
        settings = {method: as_json(editor.settings())}
        add_said(_name(caption), caption, {method: lists.said(editor)}, about, settings, folder)


def _publish_sequences(
    run: PeakRun, params: Mapping[str, Any], caption: Caption, folder: Path
) -> None:
    published = load_part("sequences", folder / _name(caption))
    for method in params["sequences"]:
        (editor,) = build_methods([method], run.language_model, **_options(params)).values()
        sequence, reached = PeakSequence(run, editor), []
        for edits in sorted(params["checkpoints"]):
            key = sequence_key(method, edits)
            if is_published(run, editor, key, published):
                continue
            reached.append(edits)
            scores = {key: sequence.scores(reached)[edits]}
            made = StoredRun(caption, scores, {key: editor.settings()}, run.settings({}))
            add_scores(_name(caption), made, part="sequences", folder=folder)


def _name(caption: Caption) -> str:
    return run_name(caption.model, caption.dataset)


def _options(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: params[key] for key in ("preset", "corpus", "seed")}
