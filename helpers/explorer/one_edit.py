"""One edit from all sides: probabilities, additivity, generated text; and the chains of facts that lead
back to the old answer. The edit is a record's, or a user's own in their words."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers import UserError
from helpers.behaviour.scorers import named_answers
from helpers.editing.build import build_editor
from helpers.editing.edit import Edit
from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.models import LanguageModel
from helpers.peak.metrics import metrics_table
from helpers.peak.records import PeakRecord
from helpers.peak.run import edit_request, joined_scores, questions
from helpers.results.figure import figure
from helpers.results.store import ResultsStore
from helpers.results.style import with_caption
from helpers.scoring.naming import fold
from helpers.scoring.responses import Sampling, sample_responses
from helpers.thinkedit import case
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.knowgic import Chain, EditedGraph, load_aliases
from helpers.thinkedit.metrics import DEFAULT, facts_table
from helpers.thinkedit.run import ThinkEditRun

MEASURES = ("ES", "GS", "LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random")
LISTING = Sampling(max_new_tokens=24, stop="\n", chat=False)


def with_target(record: PeakRecord, target: str) -> PeakRecord:
    """The record with another answer to append, which leaves the lists of false answers.

    Answers are the same whatever their case and accents; a known one keeps its own spelling. An empty
    one, or one that the fact already has, is a ``ValueError``.
    """
    target = target.strip()
    if not target:
        raise ValueError("name the answer to be appended")
    if correct_answer := _spelled_alike(target, record.correct):
        raise ValueError(f"{correct_answer} is already a correct answer; choose another one")
    known_answers = (record.target_new, *record.hard_false, *record.random_false)
    return replace(
        record,
        target_new=_spelled_alike(target, known_answers) or target,
        hard_false=_without(target, record.hard_false),
        random_false=_without(target, record.random_false),
    )


def _spelled_alike(answer: str, answers: Iterable[str]) -> str:
    """The first of ``answers`` that is ``answer`` but for case and accents; empty without one."""
    for other_answer in answers:
        if fold(other_answer) == fold(answer):
            return other_answer
    return ""


def _without(target: str, answers: Sequence[str]) -> tuple[str, ...]:
    return tuple(answer for answer in answers if fold(answer) != fold(target))


NamedAnswer = tuple[str, str]  # (answer, list)


@dataclass(frozen=True)
class Continuation:
    """A sampled continuation of the edit prompt, and the record's answers that it names."""

    text: str
    named: tuple[NamedAnswer, ...]  # in order of appearance


@dataclass(frozen=True)
class Outcome:
    """What an edit did to a record; ``before`` and ``after`` continue the edit prompt with the same
    random numbers."""

    record: PeakRecord
    method: str
    scores: pd.DataFrame  # as ``metrics_table`` takes them
    before: tuple[Continuation, ...]
    after: tuple[Continuation, ...]
    seconds: float
    edit: Edit

    def probabilities(self) -> pd.DataFrame:
        """The edit prompt's answers: answer, list, and their probability per token before and after.

        The column of those after the edit is called by the method. Random false answers are omitted
        where they are the hard ones.
        """
        asked_questions, _ = questions(self.record)
        edit_prompt_answers = asked_questions[0].answers  # of the edit prompt, which is the first
        prompt_scores = self.scores.iloc[: len(edit_prompt_answers)]
        mean_before = prompt_scores["sum_before"] / prompt_scores["tokens"]
        mean_after = prompt_scores["sum_after"] / prompt_scores["tokens"]
        probabilities_by_answer = pd.DataFrame(
            {
                "answer": edit_prompt_answers,
                "list": prompt_scores["list"].to_numpy(),
                "before": np.exp(mean_before.to_numpy()),
                self.method: np.exp(mean_after.to_numpy()),
            }
        )
        if self.record.random_false == self.record.hard_false:
            is_random = probabilities_by_answer["list"] == "random"
            return probabilities_by_answer[~is_random]
        return probabilities_by_answer

    def measures(self) -> pd.Series:
        """``MEASURES`` of the record, in percent; NaN where its lists leave nothing to measure."""
        return 100 * metrics_table(self.scores).iloc[0][list(MEASURES)]

    def naming(self) -> pd.DataFrame:
        """Known answers that are named: answer, list, and continuations naming each, before and after."""
        counts_before = _times_named(self.before)
        counts_after = _times_named(self.after)

        def most_named_after(answer: NamedAnswer) -> tuple[int, NamedAnswer]:
            return -counts_after[answer], answer

        named_answers = sorted({*counts_before, *counts_after}, key=most_named_after)
        rows_of_answers = [
            (*answer, counts_before[answer], counts_after[answer]) for answer in named_answers
        ]
        return pd.DataFrame(rows_of_answers, columns=["answer", "list", "before", "after"])


def _times_named(continuations: Iterable[Continuation]) -> Counter[NamedAnswer]:
    counts: Counter[NamedAnswer] = Counter()
    for continuation in continuations:
        counts.update(continuation.named)
    return counts


@dataclass(frozen=True)
class Explorer:
    """A model with everything needed to edit it, and to continue the edit prompt ``samples`` times."""

    lm: LanguageModel
    preset: str = "tuned"
    corpus: str = "self"
    seed: int = 0
    samples: int = 6
    sampling: Sampling = LISTING

    def editor(self, name: str, *, app: bool = False) -> Editor:
        """The editor called ``name``, with APP if wanted; an EditorError where it cannot be had."""
        return build_editor(
            name,
            self.lm,
            app=app or None,
            preset=self.preset,
            corpus=self.corpus,
            seed=self.seed,
        )

    def explore(self, record: PeakRecord, editor: Editor) -> Outcome:
        """Make a record's edit and look at it; a UserError where it cannot be made or scored."""
        started = time.perf_counter()
        (update,) = editor.edit([edit_request(record)])
        if failure := update.diagnostics.get("failure"):
            raise UserError(f"the edit was given up: {failure}")
        texts_before, texts_after = sample_responses(
            self.lm,
            [record.edit_prompt, record.edit_prompt],
            [update],
            [-1, 0],  # the unedited model, then the update
            n=self.samples,
            sampling=replace(self.sampling, seed=self.seed),
        )
        return Outcome(
            record=record,
            method=method_label(editor.method),
            scores=joined_scores(self.lm, record, update),
            before=_with_named_answers(record, texts_before),
            after=_with_named_answers(record, texts_after),
            seconds=time.perf_counter() - started,
            edit=update,
        )


def _with_named_answers(record: PeakRecord, texts: Iterable[str]) -> tuple[Continuation, ...]:
    """Texts with the record's answers that each of them names."""
    answer_lists = record.lists
    continuations = []
    for text in texts:
        answers_named = [
            (answer_lists[list_name][answer_index], list_name)
            for list_name, answer_index in named_answers(text, record)
        ]
        continuations.append(Continuation(text, tuple(answers_named)))
    return tuple(continuations)


@dataclass(frozen=True)
class ChainsOutcome:
    """What an edit did to the facts of its chains."""

    edit: EditedGraph
    model_name: str
    method: str
    facts: pd.DataFrame  # ``helpers.thinkedit.metrics.facts_table``

    def chain(self, number: int) -> pd.DataFrame:
        """One chain step by step: step, statement, object, its probability before and after, state."""
        facts_by_item = self.facts.set_index("item")
        item_of_fact = {fact.key: item for item, fact in enumerate(self.edit.facts)}
        rows_of_steps = []
        for step, fact in enumerate(self.edit.chains[number].facts, start=1):
            scores_of_fact = facts_by_item.loc[item_of_fact[fact.key]]
            known_before = bool(scores_of_fact["known_before"])
            known_after = bool(scores_of_fact["known_after"])
            state = case.state_words(known_before, known_after)
            probabilities = scores_of_fact["before"], scores_of_fact["after"]
            rows_of_steps.append((step, fact.cloze, fact.object, *probabilities, state))
        column_names = ["step", "statement", "object", "before", "after", "state"]
        return pd.DataFrame(rows_of_steps, columns=column_names)

    def summary(self) -> str:
        """IFR and CKP in one line."""
        all_chains = case.step_table(self.edit, self.facts).set_index("steps").loc["overall"]
        ckp, _ = case.ckp_of_edit(self.edit, self.facts)
        ifr_words = f"{all_chains['IFR']:.2f}" if all_chains["deducible before"] else "undefined"
        return (
            f"{all_chains['deducible before']:.0f} of {all_chains['chains']:.0f} chains deducible before, "
            f"{all_chains['active after']:.0f} after; IFR {ifr_words}, CKP {ckp:.2f}"
        )


@dataclass(frozen=True)
class ChainExplorer:
    """A model and a set of edits; scores are kept in the store, so that looking again is free."""

    lm: LanguageModel
    edits: Sequence[EditedGraph]
    store: ResultsStore
    layout: str = "mini"

    def explore(self, edit: EditedGraph, editor: Editor) -> ChainsOutcome:
        """Make an edit and score all facts of its chains before and after."""
        aliases = load_aliases(self.layout)
        run = ThinkEditRun(self.lm, [edit], self.edits, aliases, self.store, layout=self.layout)
        facts = facts_table(run.before(), run.after(editor, "independent"), rule=DEFAULT)
        return ChainsOutcome(edit, self.lm.name, method_label(editor.method), facts)


@figure("07_chains")
def graphs(outcome: ChainsOutcome, chains: Sequence[Chain]) -> Figure:
    """What an edit leaves of every link of some of its chains, in colour."""
    edit = outcome.edit
    graph = graph_of_facts([fact for chain in chains for fact in chain.facts])
    looks = case.looks_by_share(edit, outcome.facts)
    chain_figure = Figure(figsize=(6.8, 0.3 * len(graph) + 1.5))  # a panel draws in a thread
    of_chains = replace(edit, chains=tuple(chains))
    shown_facts = _facts_of_chains(outcome, of_chains)
    by_steps = case.step_table(of_chains, shown_facts).set_index("steps")
    all_lengths = by_steps.to_dict("index")["overall"]
    deducible = int(all_lengths["deducible before"])
    finding = f"Of {len(chains)} chains from {edit.subject} to {edit.original} none was known"
    if deducible:
        finding = (
            f"After {outcome.method} {100 * all_lengths['IFR']:.0f} % of the old fact's probability is left"
            " along"
            f" {deducible} known chain{'s' if deducible > 1 else ''} from {edit.subject} to {edit.original}"
        )
    wording = f"{edit.prompt.replace('{}', edit.subject)} {edit.original} → {edit.new}"
    with_caption(chain_figure, finding, f"{wording}; {outcome.model_name}")
    case.draw_graph(graph, edit.subject, edit.original, chain_figure.subplots(), looks)
    return chain_figure


def _facts_of_chains(outcome: ChainsOutcome, of_chains: EditedGraph) -> pd.DataFrame:
    """The facts of some of an edit's chains, numbered as these chains' own facts are."""
    item_of_fact = {fact.key: item for item, fact in enumerate(outcome.edit.facts)}
    by_item = outcome.facts.set_index("item")
    rows = by_item.loc[[item_of_fact[fact.key] for fact in of_chains.facts]]
    return rows.reset_index(drop=True).rename_axis("item").reset_index()
