"""An evaluation on a benchmark of one class: what is missing, checked, made, kept and left out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
import pytest

from helpers import UserError
from helpers.editing.in_context import InContext, InContextHyperparameters
from helpers.editing.interventions import LowRank
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import WeightEdit
from helpers.results import evaluation as module
from helpers.results.evaluation import Benchmark, Evaluation, Mode, joined, score_cases, small
from helpers.results.store import ResultsStore, settings_key
from helpers.scoring.answers import Question
from tests.scoring.random_edits import random_edits


@dataclass(frozen=True)
class Capital:
    """A case: the capital of a country is to be another city."""

    case_id: int
    country: str
    city: str


CAPITALS = (Capital(3, "Peru", "Oslo"), Capital(1, "Chad", "Rome"), Capital(2, "Laos", "Bonn"))


def questions(case):
    keys = pd.DataFrame({"case_id": [case.case_id], "role": ["edit"]})
    return [Question(f"The capital of {case.country} is", (case.city,))], keys


BENCHMARK = Benchmark(
    name="capitals",
    version=1,
    data={"dataset": "mine", "checksum": "0"},
    path="mine.json",
    cases=CAPITALS,
    request=lambda case: EditRequest(case.country, "The capital of {} is", case.city),
    questions=questions,
    relation=lambda case: "P36",
    content=asdict,
)


class Fixed(InContext):
    """Gives each request an edit by its subject, and counts how often it edits."""

    def __init__(self, lm, edits):
        super().__init__(lm, InContextHyperparameters())
        self.edit_of = dict(zip((case.country for case in CAPITALS), edits, strict=False))
        self.requests = []

    def edit(self, requests):
        self.requests.append([request.subject for request in requests])
        return [self.edit_of[request.subject] for request in requests]


@pytest.fixture
def lm(tiny):
    return tiny("llama")


@pytest.fixture
def editor(lm):
    return Fixed(lm, random_edits(lm)[:3])


@pytest.fixture
def evaluation(lm, editor, tmp_path):
    return Evaluation(lm, BENCHMARK, ResultsStore(tmp_path), editor)


def test_what_is_missing_is_made_once(evaluation, editor):
    assert evaluation.missing() == [3, 1, 2]
    two = replace(evaluation, benchmark=replace(BENCHMARK, cases=CAPITALS[:2]))
    assert set(two.complete()["case_id"]) == {1, 3}
    assert evaluation.missing() == [2]
    table = evaluation.complete()
    assert evaluation.missing() == []
    assert editor.requests == [["Peru"], ["Chad"], ["Laos"]]
    pd.testing.assert_frame_equal(evaluation.complete(), table)
    assert editor.requests == [["Peru"], ["Chad"], ["Laos"]]
    alone = [
        score_cases(evaluation.lm, [case], questions, editor.edit_of[case.country])
        for case in sorted(CAPITALS, key=lambda case: case.case_id)
    ]
    np.testing.assert_allclose(table["sum"], pd.concat(alone)["sum"], atol=1e-4)


def test_progress_says_of_what_it_is(evaluation, monkeypatch, tmp_path):
    monkeypatch.setattr("helpers.processes._EVERY", 0.0)
    lines: list[str] = []
    told = replace(evaluation, chunk=1, tell=lines.append)
    told.complete()
    expected = ["incontext: 1 of 3 records", "incontext: 2 of 3 records"]
    assert [line.partition(",")[0] for line in lines] == expected
    lines.clear()
    replace(told.unedited, store=ResultsStore(tmp_path / "other")).complete()
    assert lines[0].startswith("unedited: 1 of 3 records")


def test_a_file_does_not_count_but_its_cases_do(evaluation):
    evaluation.complete()
    corrected = (replace(CAPITALS[0], city="Bern"), *CAPITALS[1:])
    data = {"dataset": "copy", "checksum": "1"}
    other = replace(BENCHMARK, data=data, path="copy.json", cases=corrected)
    assert replace(evaluation, benchmark=other).missing() == [3]


def test_every_setting_has_a_key_of_its_own(evaluation, tiny, editor):
    """Whatever rows depend on; of a mode in which they depend on all cases, all of these."""
    mode = Mode("joint", settings={"seed": 0}, of_all=True)
    first = replace(BENCHMARK, cases=CAPITALS[:2])
    sequence = Mode("sequence", in_sequence=True)
    other_editor = InContext(evaluation.lm, InContextHyperparameters(template="{fact}\n"))
    changes = (
        {},
        {"lm": tiny("llama", 1)},
        {"editor": None},
        {"editor": other_editor},
        {"benchmark": replace(BENCHMARK, name="cities")},
        {"benchmark": replace(BENCHMARK, version=2)},
        {"benchmark": replace(BENCHMARK, settings={"wording": 2})},
        {"mode": Mode("joint")},
        {"mode": Mode("joint", settings={"seed": 0})},
        {"mode": mode},
        {"mode": replace(mode, settings={"seed": 1})},
        {"mode": mode, "benchmark": first},
        {"mode": mode, "benchmark": replace(BENCHMARK, whole={"dataset": "mine"})},
        {"mode": sequence},
        {"mode": sequence, "benchmark": replace(BENCHMARK, cases=CAPITALS[::-1])},
    )
    keys = [settings_key(replace(evaluation, **change).settings) for change in changes]
    assert len(set(keys)) == len(changes)


def test_a_mode_makes_the_edits_and_says_what_rows_depend_on(evaluation, editor):
    """Each case under the edit of the one before it."""

    def before(case):
        return CAPITALS[CAPITALS.index(case) - 1]

    def edits(any_editor, cases):
        return any_editor.edit([BENCHMARK.request(before(case)) for case in cases])

    def content(case):
        return asdict(case), asdict(before(case))

    shifted = replace(evaluation, mode=Mode("shifted", edits, content=content))
    table = shifted.complete().set_index("case_id")["sum"]
    for case in CAPITALS:
        edit = editor.edit_of[before(case).country]
        alone = score_cases(evaluation.lm, [case], questions, edit)
        assert table[case.case_id] == pytest.approx(alone["sum"][0], abs=1e-4)
    assert evaluation.missing() == [3, 1, 2]


def test_a_sequence_is_scored_under_its_last_edit(lm, tmp_path):
    class InOrder(Fixed):
        def edit_sequentially(self, requests):
            return iter(self.edit(requests))

    editor = InOrder(lm, random_edits(lm)[:3])
    mode = Mode("sequence", in_sequence=True)
    evaluation = Evaluation(lm, BENCHMARK, ResultsStore(tmp_path), editor, mode, chunk=1)
    table = evaluation.complete().set_index("case_id")["sum"]
    assert editor.requests == [["Peru", "Chad", "Laos"]]
    last = score_cases(lm, CAPITALS, questions, editor.edit_of["Laos"]).set_index("case_id")["sum"]
    pd.testing.assert_series_equal(table, last.sort_index(), atol=1e-4)


def not_finite(edit):
    return WeightEdit(
        {name: LowRank(delta.left * float("nan"), delta.right) for name, delta in edit.items()}
    )


def test_edits_that_cannot_be_used_are_left_out_but_refused_in_a_sequence(lm, tmp_path):
    edits = random_edits(lm)[:2]
    given_up = WeightEdit({}, {"failure": "non-finite loss"})
    editor = Fixed(lm, [not_finite(edits[0]), given_up, edits[1]])
    evaluation = Evaluation(lm, BENCHMARK, ResultsStore(tmp_path), editor)
    assert set(evaluation.before_and_after()["case_id"]) == {2}
    assert evaluation.failed() == {1, 3}
    failures = evaluation.edits().set_index("case_id")["failure"]
    assert failures[1] == "non-finite loss"
    assert "scores under the edited model are not finite" in failures[3]
    reverse = replace(BENCHMARK, cases=CAPITALS[::-1])
    editor.edit_sequentially = editor.edit
    sequence = replace(evaluation, benchmark=reverse, mode=Mode("sequence", in_sequence=True))
    with pytest.raises(UserError, match="in-context: a score is not finite; use a wider dtype"):
        sequence.complete()
    assert sequence.missing() == [2, 1, 3]


@pytest.mark.parametrize(
    ("path", "words"), [("mine.json", "^mine.json, case_id 1"), ("", "^case_id 1")]
)
def test_cases_are_refused_before_the_first_edit(evaluation, editor, path, words):
    wrong = (CAPITALS[0], replace(CAPITALS[1], country="x " * 3000))
    broken = replace(BENCHMARK, path=path, cases=wrong)
    with pytest.raises(UserError, match=f"{words}: .*nothing was edited yet"):
        replace(evaluation, benchmark=broken).complete()
    assert editor.requests == []


def test_what_is_stored_needs_no_model(evaluation, monkeypatch):
    assert evaluation.before_and_after(from_store_only=True).empty
    table = evaluation.before_and_after()
    monkeypatch.setattr(module, "score_answers", None)  # anything computed would fail
    pd.testing.assert_frame_equal(evaluation.before_and_after(from_store_only=True), table)


def test_tables_of_several_scores_are_joined():
    before = pd.DataFrame({"case_id": [1], "tokens": [2], "sum": [-1.0], "top": [0]})
    after = before.assign(sum=-2.0, top=1, entry=0)
    table = joined(before, after)
    assert table.iloc[0].to_dict() == {
        **{"case_id": 1, "tokens": 2, "sum_before": -1.0, "top_before": 0},
        **{"sum_after": -2.0, "top_after": 1, "entry": 0},
    }


def test_a_score_of_the_benchmarks_own_is_no_key(evaluation):
    """Rows before and after an edit belong together by the columns of the questions' keys."""

    def lengths(lm, cases, edits):
        table = pd.DataFrame({"case_id": [case.case_id for case in cases], "role": "edit"})
        return {"scores": table.assign(length=1.0 if edits is None else 2.0)}

    own = replace(BENCHMARK, score=lengths, finite="length")
    table = replace(evaluation, benchmark=own).before_and_after()
    assert table["case_id"].tolist() == [1, 2, 3]
    assert (table["length_before"] == 1).all()
    assert (table["length_after"] == 2).all()
    before = pd.DataFrame({"case_id": [1], "length": [1.0]})
    with pytest.raises(ValueError, match="name the key columns"):
        joined(before, before.assign(length=2.0))


def test_two_cases_of_one_number_are_refused(evaluation):
    twice = replace(BENCHMARK, cases=(*CAPITALS, replace(CAPITALS[0], city="Bern")))
    with pytest.raises(UserError, match=r"^mine.json: two cases have the case_id 3; give each"):
        replace(evaluation, benchmark=twice).complete()


def test_a_column_that_has_no_type_to_be_published_in_is_not_dropped():
    table = pd.DataFrame({"case_id": [1], "sum_after": [0.5]})
    assert small(table).dtypes.astype(str).tolist() == ["int32", "float32"]
    with pytest.raises(ValueError, match=r"columns \['words'\] have no type"):
        small(table.assign(words="text"))
