"""Facts of your own: make their edits, look at what they did in one table, write them for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from helpers.editing import presets
from helpers.editing.app import App
from helpers.editing.build import build_editor, check_method
from helpers.editing.corpus import corpus_named
from helpers.editing.edit import Edit
from helpers.editing.editors import split_method
from helpers.editing.request import EditRequest, RequestError, errors_about, read_texts
from helpers.editing.weight_edit import write
from helpers.models import LanguageModel
from helpers.models.tokens import Ids, answer_ids, separator_after, subject_prompt
from helpers.params import check_whole_number
from helpers.peak.metrics import additivity, keep_answers
from helpers.records import comparable
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.naming import mentions, starts
from helpers.scoring.responses import Sampling, response_text, sample_responses, sample_tokens

GREEDY = Sampling(temperature=0, max_new_tokens=12, stop="\n", chat=False)
LONGEST_LETTER = 4  # tokens, of bytes; their number shows whether a word goes on after the target
END = -1  # no token's id: where a continuation stops by itself
TEXTS = ("subject", "prompt", "target")
LISTS = ("paraphrases", "locality", "correct", "false")


@dataclass(frozen=True)
class Fact:
    """One fact to write: the model should answer ``prompt`` with ``target``.

    Attributes:
        prompt: a text that breaks off where the answer follows, with ``{}`` for the subject.
        paraphrases: other wordings, with or without ``{}``, which the edit should reach.
        locality: prompts about other things, whose answers should stay.
        correct: answers of the fact that should remain in addition to the new one (PEAK's O).
        false: answers that should stay wrong (PEAK's O_h).

    Fields are read as those of ``EditRequest`` are: a whole number is its text, an empty cell of a table
    no texts. A ``RequestError`` names the fact and the field that cannot be read.
    """

    subject: str
    prompt: str
    target: str
    paraphrases: tuple[str, ...] = ()
    locality: tuple[str, ...] = ()
    correct: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        with errors_about(self.subject):
            read_texts(self, texts=TEXTS, lists=LISTS)
        text = self.request.text
        counts = Counter(map(comparable, (self.target, *self.correct, *self.false)))
        for answer, count in counts.items():
            if count > 1:
                raise RequestError(f"{text!r}: {answer!r} is given twice in target, correct, false")

    @property
    def request(self) -> EditRequest:
        """What an editor is asked."""
        return EditRequest(self.subject, self.prompt, self.target, self.correct, self.false)

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompt, its paraphrases and the locality prompts, subjects filled in."""
        texts = (self.prompt, *self.paraphrases, *self.locality)
        return tuple(text.replace("{}", self.subject) for text in texts)


@dataclass
class EditedFacts:
    """Facts, their edits (one each, or one for all) and what these did (``edit_facts``: the table)."""

    lm: LanguageModel
    facts: tuple[Fact, ...]
    edits: tuple[Edit, ...]
    table: pd.DataFrame
    written: bool = False

    def generate(self, prompts: Sequence[str], *, fact: int = 0) -> list[str]:
        """Greedy continuations under one fact's edit; once written, under all."""
        if self.written:
            owner = -1
        elif len(self.edits) == 1:
            owner = 0
        else:
            owner = fact
        owners = [owner] * len(prompts)
        texts = sample_responses(self.lm, prompts, self.edits, owners, n=1, sampling=GREEDY)
        return [text for (text,) in texts]

    def write(self) -> LanguageModel:
        """Add all edits to the weights for good, once; many facts are better edited ``together``."""
        if not self.written:
            for edit in self.edits:
                write(self.lm, edit)
        self.written = True
        return self.lm


def edit_facts(  # noqa: PLR0913 - what a user chooses, each by its name
    lm: LanguageModel,
    facts: Sequence[Fact],
    *,
    editor: str = "rome",
    app: App | bool | None = None,
    preset: presets.Preset | None = None,
    together: bool = False,
    corpus: str = "self",
    seed: int = 0,
) -> EditedFacts:
    """Edit each fact from the unedited model, all in one pass, and look at what became of it.

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

    ``together`` makes one edit of all edits, instead of one each; ``preset`` None takes what the
    model's file recommends. The other options are those of ``build_editor``.
    """
    facts = listed(facts)
    split_method(editor)  # before a preset is looked for
    check_whole_number("seed", seed)
    corpus_named(corpus, seed=seed)
    if preset is None:
        preset = presets.default_preset(editor, lm.name)
    check_method(editor, lm.name, preset)
    if app or editor.endswith("+app"):
        for fact in facts:
            if not (fact.correct or fact.false):
                raise RequestError(
                    f"{fact.request.text!r}: APP protects answers; give some, or omit APP"
                )
    # Before an edit is made: it refuses whatever cannot be scored.
    before = _answered(lm, facts, (), [-1] * len(facts))
    built_editor = build_editor(
        editor, lm, preset=preset, app=app, corpus=corpus, seed=seed, progress=True
    )
    requests = [fact.request for fact in facts]
    if together:
        edits: Sequence[Edit] = [built_editor.edit_jointly(requests)]
        owners = [0] * len(facts)
    else:
        edits = built_editor.edit(requests)
        owners = list(range(len(facts)))
    after = _answered(lm, facts, edits, owners)
    hyperparameters = presets.base_hyperparameters(editor, lm.name, preset)
    edits_subject_token = isinstance(hyperparameters, presets.VectorHyperparameters)
    rows = []
    for index, fact in enumerate(facts):
        edit = edits[owners[index]]
        row = fact_row(lm, fact, before[index], after[index], edit)
        warnings = fact_warnings(fact, facts, together=together)
        warnings += edit_warnings(lm, fact, edit, edits_subject_token=edits_subject_token)
        if warnings:
            row["warning"] = "; ".join(warnings)
        rows.append(row)
    return EditedFacts(lm, facts, tuple(edits), pd.DataFrame(rows))


def listed(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts, or a ``RequestError`` for what is no list of them, such as a table or its rows."""
    if isinstance(facts, pd.DataFrame):
        raise RequestError(
            "facts are a table; make each row one: [Fact(**row) for row in table.to_dict('records')]"
        )
    is_list = isinstance(facts, Iterable) and not isinstance(facts, str | bytes)
    fact_list = tuple(facts) if is_list else ()
    if not fact_list:
        raise RequestError("give a list of facts: edit_facts(model, [Fact(subject, …)])")
    for number, fact in enumerate(fact_list, start=1):
        if not isinstance(fact, Fact):
            raise RequestError(
                f"fact {number} is a {type(fact).__name__}; give a list of facts:"
                " edit_facts(model, [Fact(subject, …)])"
            )
    return fact_list


@dataclass(frozen=True)
class Answers:
    """What one model gives for a fact.

    ``tokens`` are its greedy continuations of ``fact.prompts``, fewer where the text ends; ``scores`` has
    the columns sum and mean, a row for each of target, correct and false.
    """

    tokens: list[Ids]
    scores: pd.DataFrame


def _answered(
    lm: LanguageModel, facts: Sequence[Fact], edits: Sequence[Edit], owners: Sequence[int]
) -> list[Answers]:
    """What the model gives for each fact, under the edit that ``owners`` name for it."""
    questions = [
        Question(fact.prompts[0], (fact.target, *fact.correct, *fact.false)) for fact in facts
    ]
    scores = score_answers(lm, questions, edits, owners)
    prompts: list[str] = []
    prompt_owners: list[int] = []
    longest_target = 0
    for fact, owner in zip(facts, owners, strict=True):
        prompts += fact.prompts
        prompt_owners += [owner] * len(fact.prompts)
        longest_target = max(longest_target, *map(len, _target_ids(lm, fact)))
    token_count = max(GREEDY.max_new_tokens, longest_target + LONGEST_LETTER)
    sampling = replace(GREEDY, max_new_tokens=token_count, stop=None)
    continuations = iter(sample_tokens(lm, prompts, edits, prompt_owners, sampling))
    answers = []
    for fact, (_, fact_scores) in zip(facts, scores.groupby("question", sort=True), strict=True):
        tokens = [next(continuations)[0] for _ in fact.prompts]
        answers.append(Answers(tokens, fact_scores))
    return answers


def _target_ids(lm: LanguageModel, fact: Fact) -> list[Ids]:
    """The target's tokens after each of the fact's prompts."""
    return [answer_ids(lm, fact.target, separator_after(prompt)) for prompt in fact.prompts]


def fact_row(
    lm: LanguageModel, fact: Fact, before: Answers, after: Answers, edit: Edit
) -> dict[str, object]:
    """A fact's row of the table that ``edit_facts`` describes, without columns it does not ask for."""
    targets = _target_ids(lm, fact)
    known_before = gives(lm, before.tokens[0], targets[0])
    given_after = [gives(lm, *pair) for pair in zip(after.tokens, targets, strict=True)]
    row: dict[str, object] = {
        "fact": fact.request.text,
        "target": fact.target,
        "outcome": outcome(edit, known_before=known_before, given_after=given_after[0]),
        "generated before": shown_text(lm, before),
        "generated after": shown_text(lm, after),
        "P before": float(np.exp(before.scores["sum"].iloc[0])),
        "P after": float(np.exp(after.scores["sum"].iloc[0])),
        "efficacy": float("nan") if known_before else float(given_after[0]),
    }
    first_locality = 1 + len(fact.paraphrases)
    if fact.paraphrases:
        row["generality"] = np.mean(given_after[1:first_locality])
    if fact.locality:
        continuations = zip(
            before.tokens[first_locality:], after.tokens[first_locality:], strict=True
        )
        row["locality"] = np.mean([shared_beginning(*pair) for pair in continuations])
    if fact.correct and fact.false:
        row |= damage(fact, before, after)
    return row


def gives(lm: LanguageModel, tokens: Ids, target: Ids) -> bool:
    """Whether a continuation begins with the target's tokens, and the name that they are ends there."""
    if not begins_with(tokens, target):
        return False
    text, name = (lm.tokenizer.decode(ids, skip_special_tokens=True) for ids in (tokens, target))
    return 0 in starts(text, name)


def begins_with(tokens: Ids, target: Ids) -> bool:
    """Whether the target's tokens are the first ones."""
    return tokens[: len(target)] == target


def outcome(edit: Edit, *, known_before: bool, given_after: bool) -> str:
    """What became of an edit, in the table's words."""
    if failure := edit.diagnostics.get("failure"):
        return f"given up: {failure}"
    if known_before:
        return "known before"
    return "written" if given_after else "not written"


def shown_text(lm: LanguageModel, answers: Answers) -> str:
    """The beginning of the continuation of the fact's prompt, up to the line's end."""
    return response_text(lm, answers.tokens[0][: GREEDY.max_new_tokens], GREEDY)


def shared_beginning(before: Ids, after: Ids) -> float:
    """Share of the first continuation that the second repeats before it departs; an end is a token."""
    first = (*before, END)[: GREEDY.max_new_tokens]
    second = (*after, END)[: GREEDY.max_new_tokens]
    same = 0
    for token_before, token_after in zip(first, second, strict=False):
        if token_before != token_after:
            break
        same += 1
    return same / len(first)


def damage(fact: Fact, before: Answers, after: Answers) -> dict[str, float]:
    """CPC, AFF and ANF at the edit prompt, over the answers that the unedited model ranks as it should."""
    correct_before, false_before = answer_lists(fact, before)
    correct_after, false_after = answer_lists(fact, after)
    counted = keep_answers(correct_before, false_before, false_before)
    correct = np.array([correct_before, correct_after])[:, counted.correct]
    false = np.array([false_before, false_after])[:, counted.hard]
    measures = additivity(correct, false)
    return {name: measures[name] for name in ("CPC", "AFF", "ANF")}


def answer_lists(fact: Fact, answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """Mean log-probabilities of the correct and of the false answers; the target's comes before them."""
    _, correct, false = np.split(answers.scores["mean"].to_numpy(), [1, 1 + len(fact.correct)])
    return correct, false


def fact_warnings(fact: Fact, facts: Sequence[Fact], *, together: bool) -> list[str]:
    """What is odd about a fact, by itself or next to the other ``facts``, whatever the model."""
    messages = []
    if comparable(fact.target) == comparable(fact.subject):
        messages.append("the target is the subject")
    for text in fact.paraphrases:
        if comparable(text.replace("{}", fact.subject)) == comparable(fact.request.text):
            messages.append(f"the paraphrase {text!r} is the prompt")
        elif not mentions(text.replace("{}", fact.subject), [fact.subject]):
            messages.append(f"the paraphrase {text!r} does not name the subject")
    targets = [comparable(other.target) for other in facts if _asks(other) == _asks(fact)]
    if targets.count(comparable(fact.target)) > 1:
        messages.append(
            "the fact is given more than once, and its edits add up where all are written"
        )
    if together and len(set(targets)) > 1:
        messages.append(
            "facts with this prompt have other targets, and one update is to write them all"
        )
    return messages


def _asks(fact: Fact) -> str:
    return comparable(fact.request.text)


def edit_warnings(
    lm: LanguageModel, fact: Fact, edit: Edit, *, edits_subject_token: bool
) -> list[str]:
    """What is odd about an edit that was made."""
    messages = []
    if edits_subject_token and not subject_prompt(lm, fact.prompt, fact.subject).subject_last:
        messages.append("the subject is the first token, which holds no fact: put a word before it")
    if edit.diagnostics.get("exploding"):
        messages.append("the update is as large as the weights")
    layers = edit.diagnostics.get("layers", {}).values()
    return messages + [layer["warning"] for layer in layers if "warning" in layer]
