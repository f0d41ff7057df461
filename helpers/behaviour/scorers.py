"""One edit under every scorer: what is asked of the edited model, and what it answers.

Papers judge the same edit by different questions. ``WORDINGS`` holds them all:

======================= ====================================================================
probability, tokens     the record's own prompts without locality ones; answers' tokens are given
choice                  o*, the first of O and the first of O_h as letters, in each cyclic order
yes, negated            whether the edit's statement is true, and whether it is false
free, asked, chat       responses: greedy (sample 0), then sampled, up to the sentence's end
======================= ====================================================================

Texts stay in the results store. Measures: ``helpers.behaviour.agreement``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from helpers.editing.editor import Editor
from helpers.models import LanguageModel
from helpers.models.tokens import chat_prompt
from helpers.peak.metrics import KEYS
from helpers.peak.records import PeakRecord
from helpers.peak.run import PeakRun, questions, score_records
from helpers.results.evaluation import CaseEdits, Evaluation, Mode, Tables, with_owners
from helpers.scoring.answers import Question
from helpers.scoring.naming import fold, mentions, starts, unaccented
from helpers.scoring.responses import Sampling, sample_responses, uses_chat

VERSION = 3  # raise it when what counts as naming an answer changes
NAMED = ["case_id", "form", "sample", "list", "answer_index"]
NOTHING = ("none", -1)  # list and answer_index of a response that names no known answer
RESPONSE_FORMS = ("free", "asked", "chat")
CHOICE = ("target", "correct", "hard")
WORDINGS = {
    "free": "{prompt}",
    "asked": "Complete the sentence with a correct answer.\nSentence: {prompt} ...\nAnswer:",
    "chat": "Complete the sentence with a correct answer. Reply with the answer only.\n{prompt} ...",
    "choice": "{prompt} ...\nWhich answer is correct?\nA. {0}\nB. {1}\nC. {2}\nAnswer:",
    "yes": "Statement: {prompt} {0}.\nIs the statement true, yes or no?\nAnswer:",
    "negated": "Statement: {prompt} {0}.\nIs the statement false, yes or no?\nAnswer:",
}
# A period after one letter (U.S.) or one of these is no sentence's end.
SENTENCE = r"\n|(?<!\b\w)(?<!\b[SM]t)(?<!\b[MDJS]r)(?<!\bNo)[.!?](?=\s)"
SAMPLED = Sampling(temperature=0.7, max_new_tokens=50, stop=SENTENCE, chat=False)
AnswerKey = tuple[int, str, int, str, int]  # the values of ``KEYS`` for one answer


def scorer_questions(record: PeakRecord) -> tuple[list[Question], pd.DataFrame]:
    """``questions`` about the edited fact and those of choice and yes or no, with the key of each answer.

    ``list`` is whose letter an answer is, or the answer itself; ``prompt_index`` counts the orders.
    """
    list_questions, list_table = questions(replace(record, locality=()))
    choice_questions, choice_keys = _choice_questions(record)
    truth_questions, truth_keys = _truth_questions(record)
    added_table = pd.DataFrame(choice_keys + truth_keys, columns=KEYS)
    all_questions = list_questions + choice_questions + truth_questions
    return all_questions, pd.concat([list_table, added_table], ignore_index=True)


def _choice_questions(record: PeakRecord) -> tuple[list[Question], list[AnswerKey]]:
    """Which of three answers is correct, by their letters, in each cyclic order of ``CHOICE``."""
    options = {list_name: record.lists[list_name][0] for list_name in CHOICE}
    choice_questions = []
    keys = []
    for order_index in range(len(CHOICE)):
        order = CHOICE[order_index:] + CHOICE[:order_index]
        prompt = _worded("choice", record, *(options[list_name] for list_name in order))
        choice_questions.append(Question(prompt, ("A", "B", "C")))
        keys += [(record.case_id, "choice", order_index, list_name, 0) for list_name in order]
    return choice_questions, keys


def _truth_questions(record: PeakRecord) -> tuple[list[Question], list[AnswerKey]]:
    """Whether the edit's statement is true, and whether it is false."""
    truth_questions = []
    keys = []
    for role in ("yes", "negated"):
        prompt = _worded(role, record, record.target_new)
        truth_questions.append(Question(prompt, ("Yes", "No")))
        keys += [(record.case_id, role, 0, answer, 0) for answer in ("yes", "no")]
    return truth_questions, keys


@dataclass(frozen=True)
class Scorers:
    """A run's records under every scorer, with ``samples`` responses in addition to the greedy one."""

    run: PeakRun
    samples: int = 5
    sampling: Sampling = SAMPLED

    @property
    def settings(self) -> dict[str, Any]:
        """What the answers depend on in addition to model, record and edit."""
        return {
            "wordings": WORDINGS,
            "samples": self.samples,
            "sampling": asdict(self.sampling),
            "responses": Sampling.version,
            "naming": VERSION,
        }

    def second_draw(self) -> Scorers:
        """A copy that draws other random numbers, which shows how much two draws of one model differ."""
        other = replace(self.sampling, seed=self.sampling.seed + 1)
        return replace(self, sampling=other)

    def evaluation(self, editor: Editor | None = None) -> Evaluation[PeakRecord]:
        """The records under every scorer, under an editor's edits or of the unedited model."""
        mode: Mode[PeakRecord] = Mode("scorers")
        of_records = self.run.evaluation(editor, mode)
        benchmark = replace(
            of_records.benchmark,
            questions=scorer_questions,
            # The unedited model, which has no mode, is kept apart from PEAK's as well.
            settings={**self.run.ask_settings, "mode": mode.name, **self.settings},
            score=self._tables,
        )
        return replace(of_records, benchmark=benchmark)

    def scores(self, editor: Editor, *, from_store_only: bool = False) -> pd.DataFrame:
        """Scores before and after each edit of an editor, a row an answer.

        Columns: ``KEYS``, the number of ``tokens``, and before and after the edit the sum of their
        log-probabilities (``sum_before``) and how many are the most probable ones (``top_before``).
        If ``from_store_only``, nothing is computed: the scores are those in the store.
        """
        return self.evaluation(editor).before_and_after(from_store_only=from_store_only)

    def named(self, editor: Editor | None = None, *, from_store_only: bool = False) -> pd.DataFrame:
        """Known answers (``NAMED``) that responses name, a row each, or ``NOTHING``'s."""
        return self.evaluation(editor).usable("named", from_store_only=from_store_only)

    def _tables(self, lm: LanguageModel, records: Sequence[PeakRecord], edits: CaseEdits) -> Tables:
        columns = ("tokens", "sum", "top")
        scores = score_records(lm, records, edits, ask=scorer_questions, columns=columns)
        texts = pd.DataFrame(
            self._texts(lm, records, edits), columns=["case_id", "form", "sample", "text"]
        )
        by_id = {record.case_id: record for record in records}
        rows = []
        for case_id, form, sample, text in texts.itertuples(index=False, name=None):
            for list_name, answer_index in named_answers(text, by_id[case_id]) or [NOTHING]:
                rows.append((case_id, form, sample, list_name, answer_index))
        return {"texts": texts, "named": pd.DataFrame(rows, columns=NAMED), "scores": scores}

    def _texts(
        self, lm: LanguageModel, records: Sequence[PeakRecord], edits: CaseEdits
    ) -> list[tuple[int, str, int, str]]:
        """Rows case_id, form, sample and text: of every record and form, all in one batch."""
        chat = uses_chat(lm, Sampling())
        forms = RESPONSE_FORMS if chat else RESPONSE_FORMS[:-1]
        prompts, record_indices, prompt_forms = [], [], []
        for index, record in enumerate(records):
            for form in forms:
                prompt = _worded(form, record)
                prompts.append(chat_prompt(lm, prompt) if form == "chat" else prompt)
                record_indices.append(index)
                prompt_forms.append(form)
        all_edits, owner_of_record = with_owners(edits, len(records))
        responses = sample_responses(
            lm,
            prompts,
            all_edits,
            [owner_of_record[index] for index in record_indices],
            n=1 + self.samples,
            greedy=True,
            sampling=self.sampling,
        )
        rows = []
        for index, form, texts in zip(record_indices, prompt_forms, responses, strict=True):
            for sample, text in enumerate(texts):
                rows.append((records[index].case_id, form, sample, text))
        return rows


def named_answers(text: str, record: PeakRecord) -> list[tuple[str, int]]:
    """The known answers of a record that occur in a text, each once, in order of appearance.

    As ``mentions`` finds them; where one answer is part of another ("Guinea", "Papua New Guinea") the
    longer one counts. An answer that is in several lists counts in the first of: target, correct,
    hard false, random false. One that is part of the subject's own name ("Cusco Region") never counts.
    """
    by_folded: dict[str, tuple[str, tuple[str, int]]] = {}  # as written, its list and index
    for name, answers in record.lists.items():
        for index, answer in enumerate(answers):
            by_folded.setdefault(fold(answer), (answer, (name, index)))
    bare = unaccented(text)
    hits = []
    for folded, (answer, list_and_index) in by_folded.items():
        if not mentions(record.subject, [answer]):
            for start in starts(bare, answer):
                hits.append((start, -len(folded), list_and_index))
    named: list[tuple[str, int]] = []
    end = 0
    for start, negative_length, list_and_index in sorted(hits):  # the longest first at each start
        if start >= end:
            named.append(list_and_index)
            end = start - negative_length
    return list(dict.fromkeys(named))


def _worded(name: str, record: PeakRecord, *answers: str) -> str:
    return WORDINGS[name].format(*answers, prompt=record.edit_prompt)
