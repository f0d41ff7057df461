"""Facts from files: the suite's columns, the data sets' keys, and all that is wrong with a file at once."""

from __future__ import annotations

import json

import pytest

from helpers import UserError
from helpers.facts import Fact, load_facts
from helpers.paths import PACKAGED
from helpers.peak.records import load_peak
from helpers.peak.run import edit_request

SUDAN = Fact(
    "Sudan",
    "{} borders",
    "Mali",
    paraphrases=("A neighbour of {} is", "{} lies next to"),
    locality=("The sun is",),
    correct=("Egypt", "Chad"),
    false=("Peru",),
)
HEADER = "subject,prompt,target,paraphrases,locality,correct,false\n"
CELLS = "Sudan,{} borders,Mali,A neighbour of {} is|{} lies next to,The sun is,"


def test_cells_that_are_missing_at_the_end_are_empty(tmp_path):
    whole, short = "Peru,{} borders,Chile,,,,", "Sudan,{} borders"
    with pytest.raises(UserError, match=r"line 3: column target"):
        load_facts(file_of(tmp_path, "a.csv", f"{HEADER}{whole}\n{short}\n"))
    with pytest.raises(UserError, match=r"line 2: column target"):
        load_facts(file_of(tmp_path, "b.csv", f"{HEADER}{short}\n"))


def file_of(folder, name, content):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f"{HEADER}{CELLS}Egypt | Chad,Peru\n\n"),
        ("a.csv", f'\ufeff{HEADER}{CELLS}"[""Egypt"", ""Chad""]",Peru\n'),
        ("a.csv", (HEADER + CELLS + "Egypt|Chad,Peru\n").replace(",", ";")),
        ("a.tsv", (HEADER + CELLS + "Egypt|Chad,Peru\n").replace(",", "\t")),
        ("a.jsonl", f"{json.dumps(vars(SUDAN))}\n\n"),
        ("a.json", [vars(SUDAN)]),
        ("a.json", [{**vars(SUDAN), "prompt": "Sudan borders", "correct": "Egypt|Chad"}]),
    ],
)
def test_every_form_gives_the_same_fact(tmp_path, name, content):
    assert load_facts(file_of(tmp_path, name, content)) == [SUDAN]


PLAIN = Fact("Sudan", "{} borders", "Mali", ("A neighbour is",), ("The sun is", "The moon is"))


@pytest.mark.parametrize(
    "record",
    [
        {  # CounterFact
            "case_id": 3,
            "requested_rewrite": {
                "prompt": "{} borders",
                "relation_id": "P47",
                "target_new": {"str": "Mali", "id": "Q1"},
                "target_true": {"str": "Chad", "id": "Q2"},
                "subject": "Sudan",
            },
            "paraphrase_prompts": ["A neighbour is"],
            "neighborhood_prompts": ["The sun is", "The moon is"],
        },
        {  # zsRE
            **{"subject": "Sudan", "src": "Sudan borders", "alt": "Mali", "answers": ["Chad"]},
            **{"rephrase": "A neighbour is", "loc": "The sun is|The moon is", "loc_ans": "hot"},
        },
        {  # EasyEdit's arguments
            **{"prompts": ["Sudan borders"], "target_new": ["Mali"], "subject": ["Sudan"]},
            **{"ground_truth": ["Chad"], "rephrase_prompts": ["A neighbour is"]},
            "locality_inputs": {
                "near": {"prompt": ["The sun is"], "ground_truth": ["hot"]},
                "far": {"prompt": "The moon is", "ground_truth": "cold"},
            },
        },
        {  # EasyEdit's records
            **{"subject": "Sudan", "prompt": "Sudan borders", "target_new": "Mali"},
            "rephrase_prompt": "A neighbour is",
            "locality": {
                "Relation_Specificity": [
                    {"prompt": "The sun is", "ground_truth": [["hot"]]},
                    {"prompt": "The moon is", "ground_truth": [["cold"]]},
                ]
            },
            "portability": {},
        },
    ],
)
def test_records_of_the_data_sets_are_read_as_they_are(tmp_path, record, recwarn):
    assert load_facts(file_of(tmp_path, "a.json", [record])) == [PLAIN]
    assert not recwarn.list


def test_peaks_records_give_the_requests_that_its_run_edits():
    records = load_peak("peak-mini-cf").records
    facts = load_facts(PACKAGED / "peak" / "peak-mini-cf.json")
    assert len(facts) == len(records) > 100
    for fact, record in zip(facts, records, strict=True):
        request = edit_request(record)
        assert (fact.subject, fact.prompt, fact.target) == (
            request.subject,
            request.prompt,
            request.target,
        )
        assert set(fact.correct) == set(request.correct)
        assert fact.locality == tuple(prompt for prompt, _ in record.locality)


def test_the_packaged_facts_are_complete():
    facts = load_facts(PACKAGED / "example" / "facts.csv")
    assert len(facts) == 12
    assert all(f.paraphrases and f.locality and f.correct and f.false for f in facts)


def test_everything_wrong_in_a_file_is_told_at_once_by_row_and_column(tmp_path):
    lines = ["Sudan,,Mali,,,,", "Peru,{} and {} are,Mali,,,,", "Chad,{} is,,,,[1,", "A,{} is,B,,,,"]
    path = file_of(tmp_path, "a.csv", HEADER + "\n".join(lines))
    with pytest.raises(UserError) as caught:
        load_facts(path)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert f"{path}, line 2: column prompt: the prompt is empty" in message
    assert (
        f"{path}, line 3: fact about 'Peru': prompt '{{}} and {{}} are' must hold exactly"
        in message
    )
    assert f"{path}, line 4: column target: the target is empty" in message
    assert "column correct: '[1' is no JSON list" in message
    assert message.endswith("nothing was edited yet; correct the file")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "subject,prompt,targte\na,{} is,b\n",
            r"no column 'targte' \(did you mean 'target'",
        ),
        ("a.csv", "subject,prompt\na,{} is\n", "no column target; there are subject, prompt"),
        ("a.csv", "subject,subject\na,b\n", "line 1: column 'subject' is there twice"),
        ("a.csv", f"{HEADER}a,{{}} is,b,c,d,e,f,g\n", "line 2: 8 cells under 7 columns"),
        ("a.csv", f'{HEADER}a,"{{}} is\n', "line 2: not CSV"),
        ("a.csv", HEADER, "holds no facts"),
        ("a.json", {"subject": "a"}, "expected a JSON list"),
        ("a.json", "[1", "not JSON"),
        ("a.json", [["a"]], "fact 1: a list is no fact"),
        ("a.jsonl", '{"subject": "a"\n', "line 1: not JSON"),
        ("a.txt", "a", "is no table of facts: give a .csv"),
        ("b.csv", None, "no file .*b.csv with facts"),
    ],
)
def test_what_is_no_file_of_facts_is_told_in_one_line(tmp_path, name, content, message):
    path = file_of(tmp_path, name, content) if content is not None else tmp_path / name
    with pytest.raises(UserError, match=message) as caught:
        load_facts(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_column_that_nothing_is_done_with_is_told(tmp_path):
    path = file_of(tmp_path, "a.csv", "subject,prompt,target,note\na,{} is,b,c\n")
    with pytest.warns(UserWarning, match="not used: note"):
        assert load_facts(path) == [Fact("a", "{} is", "b")]
