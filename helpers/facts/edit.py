"""Facts of your own: make their edits, look at what they did in one table, write them for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from helpers import UserError
from helpers.editing import presets
from helpers.editing.app import App
from helpers.editing.build import build_editor, check_method
from helpers.editing.corpus import corpus_named
from helpers.editing.editor import Memo
from helpers.editing.editors import split_method
from helpers.editing.moments import unmade_layers, usual_seconds
from helpers.editing.placebo import Topic, foreign_records
from helpers.editing.request import RequestError
from helpers.facts.answers import Answers, edit_warnings, fact_row, text_rows
from helpers.facts.fact import Fact, fact_warnings, listed
from helpers.facts.result import EDITOR, EditedFacts
from helpers.facts.run import Answered, FactRun, content_number
from helpers.models import LanguageModel
from helpers.params import check_whole_number
from helpers.processes import span_in_words, tell_nothing
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
    - ``warning``: what is odd about the fact (``fact_warnings``) or its edit (``edit_warnings``).

    Args:
        editors: several instead of ``editor``: the table has a row a fact and editor.
        preset: None takes what the model's file recommends for each editor.
        together: makes one edit of all edits, instead of one each.
        placebo: also score each fact under the same editor's edit of another fact (``editing.placebo``).
        results: a folder that keeps each fact's answers as it is edited; what it has is not computed again.
        tell: gets a line before what takes long.

    The other options are those of ``build_editor``.
    """
    facts = listed(facts)
    methods = _checked_methods(lm, editors or (editor,), app, preset, facts)
    check_whole_number("seed", seed)
    corpus_named(corpus, seed=seed)
    if placebo and together:
        raise RequestError("a placebo is another fact's edit: omit together, or the placebo")
    store = ResultsStore(Path(results)) if results else None
    unedited_run = FactRun(lm, facts, None, store)
    # Before an edit is made: it refuses whatever cannot be scored.
    before = [answered.answers for answered in unedited_run.answers(unedited_run.own_edits)]
    foreign_indices = _foreign_facts(facts, seed, tell) if placebo else None
    memo: Memo = {}
    tables: dict[str, list[pd.DataFrame]] = {"own": [], "placebo": [], "texts": []}
    runs: dict[str, FactRun] = {}
    for number, (method, preset_of_method) in enumerate(methods.items(), start=1):
        _announce_moments(lm, method, preset_of_method, corpus, seed, tell)
        built_editor = build_editor(
            method,
            lm,
            preset=preset_of_method,
            app=app,
            corpus=corpus,
            seed=seed,
            progress=store is None,
            memo=memo,
        )
        run = FactRun(lm, facts, built_editor, store, together=together)
        runs[method] = run
        missing_count = run.missing(run.own_edits)
        tell(
            f"{method} ({number} of {len(methods)}): {missing_count} of {len(facts)} facts to be edited"
        )
        editor_column = {EDITOR: method} if editors else {}
        edits_subject = _edits_subject(lm, method, preset_of_method)
        own_answers = run.answers(run.own_edits)
        table = _fact_rows(run, before, own_answers, edits_subject_token=edits_subject)
        tables["own"].append(table.assign(**editor_column))
        text_table = text_rows(lm, facts, before, [answered.answers for answered in own_answers])
        tables["texts"].append(text_table.assign(**editor_column))
        if foreign_indices:
            answers_under_others = run.answers(foreign_indices)
            table = _fact_rows(run, before, answers_under_others, edits_subject_token=edits_subject)
            tables["placebo"].append(table.assign(**editor_column))
    joined_tables = {name: _below_each_other(parts) for name, parts in tables.items()}
    return EditedFacts(
        lm,
        facts,
        {method: run.edits for method, run in runs.items()},
        {method: run.settings for method, run in runs.items()},
        table=joined_tables["own"],
        texts=joined_tables["texts"],
        placebo=joined_tables["placebo"],
    )


def _below_each_other(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The tables below each other; the editor, where it is named, is the first column."""
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    if EDITOR in table:
        other_columns = [name for name in table if name not in (EDITOR, "warning")]
        table = table[[EDITOR, *other_columns, *(["warning"] if "warning" in table else [])]]
    return table


def _fact_rows(
    run: FactRun, before: Sequence[Answers], after: Sequence[Answered], *, edits_subject_token: bool
) -> pd.DataFrame:
    """The rows of one editor's edits in the table."""
    rows = []
    for fact, answers_before, answered_after in zip(run.facts, before, after, strict=True):
        row = fact_row(
            run.lm, fact, answers_before, answered_after.answers, answered_after.diagnostics
        )
        warnings = fact_warnings(fact, run.facts, together=run.together)
        warnings += edit_warnings(
            run.lm, fact, answered_after.diagnostics, edits_subject_token=edits_subject_token
        )
        if warnings:
            row["warning"] = "; ".join(warnings)
        rows.append(row)
    return pd.DataFrame(rows)


def _checked_methods(
    lm: LanguageModel,
    editors: Sequence[str],
    app: App | bool | None,
    preset: presets.Preset | None,
    facts: Sequence[Fact],
) -> dict[str, presets.Preset]:
    """Each method with its preset; whatever is wrong with one of them is raised before the first is built."""
    methods: dict[str, presets.Preset] = {}
    for method in editors:
        split_method(method)  # before a preset is looked for
        methods[method] = preset or presets.default_preset(method, lm.name)
        check_method(method, lm.name, methods[method])
        if method.endswith("+icd"):
            raise RequestError(
                f"{method}: the table scores every answer of a fact, and icd would train on them; use"
                " build_editor, and score other answers"
            )
        if app or method.endswith("+app"):
            for fact in facts:
                if not (fact.correct or fact.false):
                    raise RequestError(
                        f"{fact.request.text!r}: APP protects answers; give some, or omit APP"
                    )
    return methods


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


def _foreign_facts(facts: Sequence[Fact], seed: int, tell: Tell) -> list[int] | None:
    """For each fact the one whose edit is its placebo, of another prompt and subject; None without one."""
    topics = []
    for fact in facts:
        names = frozenset((fact.target, *fact.correct, *fact.false))
        topics.append(Topic(str(content_number(fact)), fact.prompt, fact.subject, names))
    try:
        return foreign_records(topics, seed=seed)
    except UserError:
        tell("no placebo: a fact has no other fact of another prompt and subject; give more facts")
        return None
