"""One PEAK record, and how it is read from and written to the published schema."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from helpers import UserError
from helpers.records import compared

STRICT = "names compared without case, Unicode form and outer blanks"


@dataclass(frozen=True)
class PeakRecord:
    """One answer to append to the answers of a fact, with what should not change by it.

    Attributes:
        case_id: number of the record in its file.
        relation: relation identifier, such as ``"P47"``; ``"re_"`` marks the inverse.
        prompt: edit prompt with one ``{}`` for the subject.
        subject: subject of the fact.
        target_new: the answer to append (o* in the paper).
        target_true: one of the original answers.
        correct: original correct answers (O).
        hard_false: false answers related to the appended one (O_h).
        random_false: false answers unrelated to it (O_r).
        paraphrases: other prompts for the same fact, subject filled in.
        locality: prompts of other facts with their original answers.
    """

    case_id: int
    relation: str
    prompt: str
    subject: str
    target_new: str
    target_true: str
    correct: tuple[str, ...]
    hard_false: tuple[str, ...]
    random_false: tuple[str, ...]
    paraphrases: tuple[str, ...]
    locality: tuple[tuple[str, str], ...]

    @property
    def lists(self) -> dict[str, tuple[str, ...]]:
        """The answers asked at the record's own prompts, by the list they are from."""
        return {
            "target": (self.target_new,),
            "correct": self.correct,
            "hard": self.hard_false,
            "random": self.random_false,
        }

    @property
    def edit_prompt(self) -> str:
        """The edit prompt with the subject filled in."""
        return self.prompt.replace("{}", self.subject)

    def with_strict_lists(self) -> "PeakRecord":
        """The record without o* among the other answers, or correct answers among the false ones.

        Names are ``compared``: "nile" is "Nile". A name that one list holds twice stays.
        """
        appended = {compared(self.target_new)}
        true = appended.union(map(compared, self.correct))
        correct, hard_false, random_false = (
            tuple(answer for answer in answers if compared(answer) not in taken)
            for answers, taken in (
                (self.correct, appended),
                (self.hard_false, true),
                (self.random_false, true),
            )
        )
        return replace(self, correct=correct, hard_false=hard_false, random_false=random_false)

    @classmethod
    def from_json(cls, item: object, *, where: str) -> "PeakRecord":
        """Read one JSON object; ``where`` names file and position in error messages.

        Raises:
            UserError: a key is missing, or its value is not what the schema asks for.
        """
        reader = _Reader(where)
        record = reader.mapping(item, "the record")
        case_id = reader.get(record, "case_id")
        if not isinstance(case_id, int) or isinstance(case_id, bool):
            reader.fail("case_id must be a whole number")
        reader = _Reader(f"{where}, case_id {case_id}")
        rewrite = reader.mapping(reader.get(record, "requested_rewrite"), "requested_rewrite")
        prompt = reader.text(rewrite, "prompt")
        if (blanks := prompt.count("{}")) != 1:
            reader.fail(f"prompt must hold one {{}} for the subject, not {blanks}: {prompt!r}")
        return cls(
            case_id=case_id,
            relation=reader.text(rewrite, "relation_id"),
            prompt=prompt,
            subject=reader.text(rewrite, "subject"),
            target_new=reader.target(rewrite, "target_new"),
            target_true=reader.target(rewrite, "target_true"),
            correct=reader.texts(record, "postive_list"),
            hard_false=reader.texts(record, "negtive_list"),
            random_false=reader.texts(record, "negtive_random_list"),
            paraphrases=reader.texts(record, "para_add_prompts", may_be_empty=True),
            locality=reader.pairs(record, "neighborhood_prompts"),
        )

    def to_json(self) -> dict[str, object]:
        """The record in the published schema."""
        return {
            "case_id": self.case_id,
            "requested_rewrite": {
                "prompt": self.prompt,
                "relation_id": self.relation,
                "target_new": {"str": self.target_new},
                "target_true": {"str": self.target_true},
                "subject": self.subject,
            },
            "postive_list": list(self.correct),
            "negtive_list": list(self.hard_false),
            "para_add_prompts": list(self.paraphrases),
            "neighborhood_prompts": [list(pair) for pair in self.locality],
            "negtive_random_list": list(self.random_false),
        }


class _Reader:
    """Typed access to a JSON object, with errors that say where it was found."""

    def __init__(self, where: str) -> None:
        self.where = where

    def fail(self, problem: str) -> NoReturn:
        raise UserError(f"{self.where}: {problem}; mend or remove this record")

    def get(self, node: Mapping[str, object], key: str) -> object:
        if key not in node:
            self.fail(f"key {key!r} is missing (found: {', '.join(map(str, node))})")
        return node[key]

    def mapping(self, value: object, name: str) -> Mapping[str, object]:
        if not isinstance(value, dict):
            self.fail(f"{name} must be a JSON object")
        return value

    def text(self, node: Mapping[str, object], key: str) -> str:
        return self._text(self.get(node, key), key)

    def target(self, node: Mapping[str, object], key: str) -> str:
        return self._text(self.get(self.mapping(self.get(node, key), key), "str"), f"{key}.str")

    def texts(
        self, node: Mapping[str, object], key: str, *, may_be_empty: bool = False
    ) -> tuple[str, ...]:
        return tuple(self._text(value, key) for value in self._list(node, key, may_be_empty))

    def pairs(self, node: Mapping[str, object], key: str) -> tuple[tuple[str, str], ...]:
        values = self._list(node, key, True)
        for value in values:
            if not isinstance(value, list) or len(value) != 2:
                self.fail(f"{key} must hold pairs of prompt and answer, not {value!r}")
        return tuple(
            (self._text(prompt, key), self._text(answer, key)) for prompt, answer in values
        )

    def _list(self, node: Mapping[str, object], key: str, may_be_empty: bool) -> list:
        values = self.get(node, key)
        if not isinstance(values, list):
            self.fail(f"{key} must be a list")
        if not values and not may_be_empty:
            self.fail(f"{key} is empty")
        return values

    def _text(self, value: object, key: str) -> str:
        if not isinstance(value, str) or not value.strip():
            self.fail(f"{key} must be text that is not blank, not {value!r}")
        return value
