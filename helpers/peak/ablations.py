"""Notebook 04's studies, each piece written to the published tables as soon as it is finished."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.editing.build import build_editor, build_editors
from helpers.editing.editors import OBJECTIVES, Variant, fairer, objectives
from helpers.paths import run_name
from helpers.peak.answer_lists import AnswerLists
from helpers.peak.run import PeakRun
from helpers.peak.schema import PeakRecord
from helpers.peak.sequences import PeakSequence
from helpers.peak.stored_scores import is_published, said_key, sequence_key, small
from helpers.results.archive import About, Archive, ArchiveError

CHUNK = 10  # records edited between two writes to the results store


def publish_ablations(run: PeakRun, params: Mapping[str, Any], about: About, into: Archive) -> Path:
    """Variants, responses and sequential edits, in this order.

    Args:
        run: with all records that any study needs; independent edits and responses take the first
            ``params["records"]``, sequences as many as their last checkpoint.
        params: the parameters of notebook 04.
        about: what all tables say about themselves.
        into: the archive *ablations*.

    Raises:
        ArchiveError: the published run has another source, or was made with other settings.
    """
    name = run_name(run.language_model.name, run.data.name)
    into.check(name, about)
    pieces = _Pieces(into, name, about)
    first = replace(run, data=replace(run.data, records=run.data.records[: params["records"]]))
    first = replace(first, chunk=CHUNK)
    _publish_variants(first, params, pieces)
    _publish_said(first, params, pieces)
    _publish_sequences(run, params, pieces)
    return into.folder(name)


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
        "fairer": [v for editor in params["fairer"] for v in fairer(editor)],
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


@dataclass(frozen=True)
class _Pieces:
    """Where the pieces of one run's studies go, and what all of them say about themselves."""

    into: Archive
    name: str
    about: About

    def published(
        self, key: str, settings: Mapping[str, Any], records: Sequence[PeakRecord]
    ) -> bool:
        """Whether a piece has been made with these settings of these records."""
        known = self.into.known(self.name)
        return known is not None and is_published(known, key, settings, records)

    def put(self, key: str, table: pd.DataFrame, settings: Mapping[str, Any]) -> None:
        """Add a piece.

        Raises:
            ArchiveError: other pieces of the run contradict it.
        """
        known = self.into.known(self.name)
        for other, made in (known.about.settings if known else {}).items():
            if contradict(other, made, key, settings):
                raise ArchiveError(
                    f"{self.into.folder(self.name)}: {other} was made with other settings than {key}, so"
                    " the two cannot be compared: run with the stored settings, or under --name NAME"
                )
        about = replace(self.about, settings={key: settings})
        self.into.put(self.name, {key: small(table)}, about)


def _publish_variants(run: PeakRun, params: Mapping[str, Any], pieces: _Pieces) -> None:
    for variants in studies(params).values():
        whole = [Variant(variant.method) for variant in variants]
        editors = build_editors([*whole, *variants], run.language_model, **_options(params))
        for variant in (each for each in dict.fromkeys(variants) if str(each) in editors):
            name, editor = str(variant), editors[str(variant)]
            if variant.field and editor.settings() == editors[variant.method].settings():
                continue  # half of nothing: MEND's APP has L1 alone
            if not pieces.published(name, editor.settings(), run.data.records):
                pieces.put(name, run.scores(editor), editor.settings())


def _publish_said(run: PeakRun, params: Mapping[str, Any], pieces: _Pieces) -> None:
    if not params["said"]:
        return
    lists = AnswerLists(run, samples=params["samples"])
    drawn = {"samples": lists.samples, **asdict(lists.sampling)}
    sampling = {"sampling": {"records": len(run.data.records), **drawn}}
    pieces.put(said_key("before"), lists.said(), sampling)
    pieces.put(said_key("again"), lists.again().said(), sampling)
    for method in params["said"]:
        editor = build_editor(method, run.language_model, **_options(params))
        pieces.put(said_key(method), lists.said(editor), {**editor.settings(), **sampling})


def _publish_sequences(run: PeakRun, params: Mapping[str, Any], pieces: _Pieces) -> None:
    for method in params["sequences"]:
        editor = build_editor(method, run.language_model, **_options(params))
        sequence, reached = PeakSequence(run, editor), []
        for edits in sorted(params["checkpoints"]):
            key = sequence_key(method, edits)
            if not pieces.published(key, editor.settings(), run.data.records[:edits]):
                reached.append(edits)
                pieces.put(key, sequence.scores(reached)[edits], editor.settings())


def contradict(
    first: str, settings: Mapping[str, Any], second: str, others: Mapping[str, Any]
) -> bool:
    """Whether two tables cannot be compared: samples drawn otherwise, or the same editor under settings
    that differ in more than the variants' names say.
    """
    if (
        "sampling" in settings
        and "sampling" in others
        and settings["sampling"] != others["sampling"]
    ):
        return True
    if not ("editor" in settings and "editor" in others):  # of the unedited model
        return False
    variants = [Variant.parse(_method(name)) for name in (first, second)]
    if variants[0].editor != variants[1].editor:
        return False
    if _fixed(settings) != _fixed(others):
        return True
    one, other = (values.get("app") or {} for values in (settings, others))
    named = {variant.field for variant in variants}
    return any(one[field] != other[field] for field in one.keys() & other.keys() - named)


def _method(table: str) -> str:
    """The variant in a table's name."""
    return table.removeprefix("said by ").partition(" after ")[0]


def _fixed(settings: Mapping[str, Any]) -> Any:
    """Settings that no variant changes; the stop rule goes with APP."""
    free = ("app", "targets", "sampling")
    kept = {key: value for key, value in settings.items() if key not in free}
    versions = kept.get("versions", {})
    kept["versions"] = {part: number for part, number in versions.items() if part != "app"}
    if "base" in kept:
        kept["base"] = _fixed(kept["base"])
    stop = ("stop_on", "stop_threshold")
    hyperparameters = kept.get("hyperparameters", {})
    kept["hyperparameters"] = {k: v for k, v in hyperparameters.items() if k not in stop}
    return _as_json(kept)


def _as_json(settings: Mapping[str, Any]) -> Any:
    """Settings as JSON gives them back, where tuples are lists."""
    return json.loads(json.dumps(settings))


def _options(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: params[key] for key in ("preset", "corpus", "seed")}
