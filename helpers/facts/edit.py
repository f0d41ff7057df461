"""Facts of your own: make their edits, look at what they did in one table, write them for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from helpers import UserError
from helpers.editing import presets
from helpers.editing.app import App
from helpers.editing.build import build_editor, check_method
from helpers.editing.corpus import corpus_named
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor, Memo, with_memo
from helpers.editing.editors import split_method
from helpers.editing.moments import unmade_layers, usual_seconds
from helpers.editing.placebo import Topic, foreign_records
from helpers.editing.request import RequestError
from helpers.facts.answers import fact_table, finished_rows, text_rows
from helpers.facts.benchmark import fact_benchmark, joint_edit, joint_mode
from helpers.facts.fact import Fact, listed
from helpers.facts.result import EDITOR, EditedFacts
from helpers.models import LanguageModel
from helpers.models.batching import records_at_once
from helpers.params import check_whole_number
from helpers.processes import span_in_words, tell_nothing
from helpers.results.evaluation import INDEPENDENT, Evaluation
from helpers.results.store import ResultsStore

Tell = Callable[[str], None]


def edit_facts(  # noqa: PLR0913 - what a user chooses, each by its name
    lm: LanguageModel,
    facts: Sequence[Fact],
    *,
    editor: str = "rome",
    editors: Sequence[str] = (),
    app: App | bool | None = None,
    preset: presets.Preset | None = None,
    together: bool = False,
    placebo: bool = False,
    corpus: str = "self",
    seed: int = 0,
    results: Path | str | None = None,
    tell: Tell = tell_nothing,
) -> EditedFacts:
    """Edit each fact from the unedited model, and look at what became of it.

    The table has one row a fact, without columns that no fact asks for:

    - ``outcome``: *known before* where the unedited model gives the target; else *written* where the
      edited model does, *not written*, or *given up*. A model gives a target where its greedy
      continuation begins with the target's tokens and the name ends there, as ``starts`` decides: "Nigeria"
      does not give Niger;
    - ``P before``, ``P after``: probability of the whole target, the product over its tokens;
    - ``efficacy``: 1 where the target is given after the edit, else 0 (reliability of Yao et al. 2023),
      NaN where it was known; ``generality``: the share of paraphrases after which it is given;
    - ``locality``: the share of the unedited model's next 12 tokens that the edited model generates
      before it first departs from them, averaged over the locality prompts;
    - ``CPC``, ``AFF``, ``ANF``: damage to correct and false answers, both given (PEAK, Equations 3, 5, 6);
    - ``warning``: what is odd about the fact (``fact_warnings``) or its edit.

    Args:
        editors: several instead of ``editor``: the table has a row a fact and editor.
        preset: None takes what the model's file recommends for each editor.
        together: makes one edit of all edits, instead of one each.
        placebo: also score each fact under the same editor's edit of another fact (``editing.placebo``).
        results: a folder that keeps each fact's answers as it is edited; what it has is not computed again.
        tell: gets a line before what takes long, and how far that is.

    The other options are those of ``build_editor``.
    """
    facts = listed(facts)
    if not isinstance(lm, LanguageModel):
        raise UserError(f"{lm!r:.60} is no loaded model: give models.load(…)")
    methods = checked_methods(lm.name, editors or (editor,), preset)
    check_facts(facts, methods, app)
    check_whole_number("seed", seed)
    corpus_named(corpus, seed=seed)
    if placebo and together:
        raise RequestError("a placebo is another fact's edit: omit together, or the placebo")
    benchmark = fact_benchmark(facts)
    edited_instead = _edited_instead(facts, seed, tell) if placebo else {}
    # One by one on a CPU where they are kept: an interruption costs what is made together.
    chunk = records_at_once(lm.device, 1) if results else len(facts)
    memo: Memo = {}
    tables: dict[str, list[pd.DataFrame]] = {"own": [], "placebo": [], "texts": []}
    edits: dict[str, Callable[[], tuple[Edit, ...]]] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    with TemporaryDirectory() as scratch:
        store = ResultsStore(Path(results or scratch))
        unedited = Evaluation(lm, benchmark, store, tell=tell)
        # Before an edit is made: it refuses whatever cannot be scored.
        before = finished_rows(unedited, unedited.results)
        for number, (method, preset_of_method) in enumerate(methods.items(), start=1):
            _announce_moments(lm, method, preset_of_method, corpus, seed, tell)
            built_editor = build_editor(
                method,
                lm,
                preset=preset_of_method,
                app=app,
                corpus=corpus,
                seed=seed,
                progress=not results,
                memo=memo,
            )
            keeping_editor = with_memo(built_editor, memo)  # each edit is made once
            mode = joint_mode(facts) if together else INDEPENDENT
            own_evaluation = Evaluation(
                lm, benchmark, store, keeping_editor, mode, chunk, tell=tell
            )
            edits[method] = cache(partial(_edits, keeping_editor, facts, together=together))
            settings[method] = own_evaluation.settings
            results_of_method = store.open(settings[method])
            missing_count = len(own_evaluation.cases.missing(results_of_method))
            progress = f"{method} ({number} of {len(methods)})"
            tell(f"{progress}: {missing_count} of {len(facts)} facts to be edited")
            own_rows = finished_rows(own_evaluation, results_of_method)
            table_of = partial(
                fact_table,
                lm,
                facts,
                before,
                together=together,
                edits_subject_token=_edits_subject(lm, method, preset_of_method),
            )
            editor_column = {EDITOR: method} if editors else {}
            tables["own"].append(table_of(own_rows).assign(**editor_column))
            texts = text_rows(lm, facts, before.answers, own_rows.answers)
            tables["texts"].append(texts.assign(**editor_column))
            if edited_instead:
                tell(f"{progress}: each fact is scored under another fact's edit (placebo)")
                mode = benchmark.placebo(edited_instead)
                # No edit is made for it: several facts are scored at once.
                foreign_evaluation = replace(own_evaluation, mode=mode, chunk=None)
                foreign_rows = finished_rows(foreign_evaluation, foreign_evaluation.results)
                tables["placebo"].append(table_of(foreign_rows).assign(**editor_column))
    joined_tables = {name: _below_each_other(parts) for name, parts in tables.items()}
    return EditedFacts(
        lm,
        facts,
        edits,
        settings,
        table=joined_tables["own"],
        texts=joined_tables["texts"],
        placebo=joined_tables["placebo"],
    )


def _edits(editor: Editor, facts: Sequence[Fact], *, together: bool) -> tuple[Edit, ...]:
    """One edit for each fact, or the one for all."""
    if together:
        return (joint_edit(editor, facts),)
    return tuple(editor.edit([fact.request for fact in facts]))


def _below_each_other(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The tables below each other; the editor, where it is named, is the first column."""
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    if EDITOR in table:
        other_columns = [name for name in table if name not in (EDITOR, "warning")]
        table = table[[EDITOR, *other_columns, *(["warning"] if "warning" in table else [])]]
    return table


def checked_methods(
    model: str, editors: Sequence[str], preset: presets.Preset | None
) -> dict[str, presets.Preset]:
    """Each method with its preset for a model; whatever is wrong with one of them is raised."""
    methods: dict[str, presets.Preset] = {}
    if isinstance(editors, str):
        raise UserError(f"editors={editors!r}: give a list, {editors.split(',')}")
    for method in editors:
        split_method(method)  # before a preset is looked for
        methods[method] = preset or presets.default_preset(method, model)
        check_method(method, model, methods[method])
        if method.endswith("+icd"):
            raise RequestError(
                f"{method}: the table scores every answer of a fact, and icd would train on them; use"
                " build_editor, and score other answers"
            )
    return methods


def check_facts(
    facts: Sequence[Fact], methods: Iterable[str], app: App | bool | None = None
) -> None:
    """Refuse facts that lack what one of the methods needs, before a model is loaded for them."""
    for method in methods:
        named_editor, suffix = split_method(method)
        for fact in facts:
            named_editor.editor_class.check_request(fact.request)
            if (app or suffix == "app") and not (fact.correct or fact.false):
                raise RequestError(
                    f"{fact.request.text!r}: APP protects answers; give some, or omit APP"
                )


def _edits_subject(lm: LanguageModel, method: str, preset: presets.Preset) -> bool:
    hyperparameters = presets.base_hyperparameters(method, lm.name, preset)
    return isinstance(hyperparameters, presets.VectorHyperparameters)


def _announce_moments(
    lm: LanguageModel, method: str, preset: presets.Preset, corpus_name: str, seed: int, tell: Tell
) -> None:
    """Tell of second moments that neither the package nor the cache has, and how long they will take."""
    model_size = lm.layout.blocks, lm.layout.hidden_size
    layers = presets.base_hyperparameters(
        method, lm.name, preset, model_size=model_size
    ).moment_layers
    corpus = corpus_named(corpus_name, seed=seed)
    missing = unmade_layers(lm, layers, corpus)
    if missing:
        seconds = usual_seconds(lm, corpus)
        duration = f"about {span_in_words(seconds)}" if seconds else "minutes to hours"
        tell(
            f"{method}: second moments of layers {missing} over {corpus.name} are made first, once for"
            f" {lm.name}: {duration}"
        )


def _edited_instead(facts: Sequence[Fact], seed: int, tell: Tell) -> dict[int, Fact]:
    """By each fact's number the fact whose edit is its placebo, of another prompt and subject, if any."""
    topics = []
    for fact in facts:
        names = frozenset((fact.target, *fact.correct, *fact.false))
        topics.append(Topic(str(fact.case_id), fact.prompt, fact.subject, names))
    try:
        foreign_indices = foreign_records(topics, seed=seed)
    except UserError:
        tell("no placebo: a fact has no other fact of another prompt and subject; give more facts")
        return {}
    return {fact.case_id: facts[index] for fact, index in zip(facts, foreign_indices, strict=True)}
