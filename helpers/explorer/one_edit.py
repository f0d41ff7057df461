"""One edit from all sides: probabilities, additivity, generated text; and the chains of facts that lead
back to the old answer. The edit is a record's, or a user's own in their words."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers import UserError
from helpers.behaviour.scorers import named_answers
from helpers.editing.build import build_editor
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
from helpers.thinkedit.knowgic import Chain, Edit, load_aliases
from helpers.thinkedit.metrics import BY_RANK, facts_table
from helpers.thinkedit.run import ThinkEditRun

MEASURES = ("ES", "GS", "LS", "AFF_hard", "ANF_hard", "AFF_random", "ANF_random")
LISTING = Sampling(max_new_tokens=24, stop="\n", chat=False)


def own_record(*, subject: str, prompt: str, target: str, correct: str, false: str) -> PeakRecord:
    """A record of a fact that is in no data set; its false answers count as both kinds.

    ``prompt`` ends where the answer begins, with ``{}`` or the subject once in it. ``correct`` and
    ``false`` are separated by semicolons and may be empty. A ``ValueError`` states what is wrong.
    """
    subject, prompt = subject.strip(), prompt.strip()
    if not subject:
        raise ValueError("name the subject: what is the fact about?")
    if "{}" not in prompt and prompt.count(subject) == 1:
        prompt = prompt.replace(subject, "{}")
    if prompt.count("{}") != 1:
        raise ValueError(
            f"the prompt must hold {{}} or {subject} once, and end where the answer begins"
        )
    right, wrong = _answers(correct), _answers(false)
    if both := [answer for answer in wrong if fold(answer) in map(fold, right)]:
        raise ValueError(f"{both[0]} cannot be correct and false; remove it from one list")
    record = PeakRecord(
        case_id=0,
        relation="",
        prompt=prompt,
        subject=subject,
        target_new="",
        target_true=(*right, "")[0],
        correct=right,
        hard_false=wrong,
        random_false=wrong,
        paraphrases=(),
        locality=(),
    )
    return with_target(record, target)


def with_target(record: PeakRecord, target: str) -> PeakRecord:
    """The record with another answer to append, which leaves the lists of false answers.

    Answers are the same whatever their case and accents; a known one keeps its own spelling. An empty
    one, or one that the fact already has, is a ``ValueError``.
    """
    target = target.strip()
    if not target:
        raise ValueError("name the answer to be appended")
    if known := _same(target, record.correct):
        raise ValueError(f"{known} is already a correct answer; choose another one")
    others = (record.target_new, *record.hard_false, *record.random_false)
    return replace(
        record,
        target_new=_same(target, others) or target,
        hard_false=tuple(a for a in record.hard_false if fold(a) != fold(target)),
        random_false=tuple(a for a in record.random_false if fold(a) != fold(target)),
    )


def _same(answer: str, known: Iterable[str]) -> str:
    return next((each for each in known if fold(each) == fold(answer)), "")


def _answers(text: str) -> tuple[str, ...]:
    once: dict[str, str] = {}  # whatever its case
    for answer in filter(None, map(str.strip, text.split(";"))):
        once.setdefault(fold(answer), answer)
    return tuple(once.values())


@dataclass(frozen=True)
class Said:
    """One sampled continuation of the edit prompt, and the lists its known answers are from."""

    text: str
    named: tuple[tuple[str, str], ...]  # (answer, list), in order of appearance


@dataclass(frozen=True)
class Outcome:
    """What an edit did to a record; ``before`` and ``after`` continue the edit prompt with the same
    random numbers."""

    record: PeakRecord
    method: str
    scores: pd.DataFrame  # as ``metrics_table`` takes them
    before: tuple[Said, ...]
    after: tuple[Said, ...]
    seconds: float

    def probabilities(self) -> pd.DataFrame:
        """The edit prompt's answers: answer, list, and their probability before and after."""
        answers = questions(self.record)[0][0].answers
        mine = self.scores.iloc[: len(answers)]
        table = pd.DataFrame({"answer": answers, "list": mine["list"].to_numpy()})
        for column, moment in (("sum_before", "before"), ("sum_after", self.method)):
            table[moment] = np.exp((mine[column] / mine["tokens"]).to_numpy())
        one_list = self.record.random_false == self.record.hard_false
        return table[table["list"] != "random"] if one_list else table

    def measures(self) -> pd.Series:
        """``MEASURES`` of the record, in percent; NaN where its lists leave nothing to measure."""
        return 100 * metrics_table(self.scores).iloc[0][list(MEASURES)]

    def naming(self) -> pd.DataFrame:
        """Known answers that are named: answer, list, and continuations naming each, before and after."""
        groups = (self.before, self.after)
        counts = [Counter(named for said in group for named in said.named) for group in groups]
        named = sorted(counts[0] | counts[1], key=lambda pair: (-counts[1][pair], pair))
        rows = [(*pair, counts[0][pair], counts[1][pair]) for pair in named]
        return pd.DataFrame(rows, columns=["answer", "list", "before", "after"])


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
        how: dict[str, Any] = {"preset": self.preset, "corpus": self.corpus, "seed": self.seed}
        return build_editor(name, self.lm, app=app or None, **how)

    def explore(self, record: PeakRecord, editor: Editor) -> Outcome:
        """Make a record's edit and look at it; a UserError where it cannot be made or scored."""
        started = time.perf_counter()
        (update,) = editor.edit([edit_request(record)])
        if failure := update.diagnostics.get("failure"):
            raise UserError(f"the edit was given up: {failure}")
        lm, both = self.lm, [record.edit_prompt] * 2
        sampling = replace(self.sampling, seed=self.seed)
        drawn = sample_responses(lm, both, [update], [-1, 0], n=self.samples, sampling=sampling)
        return Outcome(
            record=record,
            method=method_label(editor.method),
            scores=joined_scores(self.lm, record, update),
            before=_named_answers_of(record, drawn[0]),
            after=_named_answers_of(record, drawn[1]),
            seconds=time.perf_counter() - started,
        )


def _named_answers_of(record: PeakRecord, texts: Sequence[str]) -> tuple[Said, ...]:
    lists = record.lists
    return tuple(
        Said(text, tuple((lists[name][i], name) for name, i in named_answers(text, record)))
        for text in texts
    )


@dataclass(frozen=True)
class ChainsOutcome:
    """What an edit did to the facts of its chains."""

    edit: Edit
    model: str
    method: str
    facts: pd.DataFrame  # ``helpers.thinkedit.metrics.facts_table``

    def chain(self, number: int) -> pd.DataFrame:
        """One chain step by step: step, statement, object, its probability before and after, state."""
        known = self.facts.set_index("item")
        items = {fact.key: item for item, fact in enumerate(self.edit.facts)}
        rows = []
        for step, fact in enumerate(self.edit.chains[number].facts, start=1):
            row = known.loc[items[fact.key]]
            state = case.state_words(bool(row["known_before"]), bool(row["known_after"]))
            rows.append((step, fact.cloze, fact.object, row["before"], row["after"], state))
        columns = ["step", "statement", "object", "before", "after", "state"]
        return pd.DataFrame(rows, columns=columns)

    def summary(self) -> str:
        """IFR and CKP in one line."""
        overall = case.step_table(self.edit, self.facts).set_index("steps").loc["overall"]
        kept, _ = case.ckp_of_edit(self.edit, self.facts)
        recovery = f"{overall['IFR']:.2f}" if overall["deducible before"] else "undefined"
        return (
            f"{overall['deducible before']:.0f} of {overall['chains']:.0f} chains deducible before, "
            f"{overall['active after']:.0f} after; IFR {recovery}, CKP {kept:.2f}"
        )


@dataclass(frozen=True)
class ChainExplorer:
    """A model and a set of edits; scores are kept in the store, so that looking again is free."""

    lm: LanguageModel
    edits: Sequence[Edit]
    store: ResultsStore
    layout: str = "mini"

    def explore(self, edit: Edit, editor: Editor) -> ChainsOutcome:
        """Make an edit and score all facts of its chains before and after."""
        names = load_aliases(self.layout)
        run = ThinkEditRun(self.lm, [edit], self.edits, names, self.store, layout=self.layout)
        facts = facts_table(run.before(), run.after(editor, "independent"), rule=BY_RANK)
        return ChainsOutcome(edit, self.lm.name, method_label(editor.method), facts)


@figure("07_chains")
def graphs(outcome: ChainsOutcome, chains: Sequence[Chain]) -> Figure:
    """The known ways along some of an edit's chains, before and after the edit."""
    part = replace(outcome.edit, chains=tuple(chains))
    wording = f"{part.prompt.replace('{}', part.subject)} {part.original} → {part.new}"
    caption = f"ours: {outcome.model}, {outcome.method}: {wording}"
    states = case.edge_states(outcome.edit, outcome.facts)
    steps = [set(outcome.chain(outcome.edit.chains.index(chain))["state"]) for chain in chains]
    known, left = sum("unknown" not in s for s in steps), sum(s == {"kept"} for s in steps)
    finding = f"{left} of {known} known chains still lead to {part.original} after the edit"
    return with_caption(case.graph_pair(part, caption="", **states), finding, caption)
