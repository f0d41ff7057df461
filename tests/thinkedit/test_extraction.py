"""Questions, statements and triplets in free text, and the prompts that ask for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.thinkedit import extraction, prompts
from helpers.thinkedit.graph import Triplet


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (" Where is Etna?", "Where is Etna?"),
        ("Sure, here it is.\n1. Who is Ada? I hope it helps.", "Who is Ada?"),
        ("Question: Who is Ada?\nWho else?", "Who is Ada?"),
        ("no question here", ""),
        ("?", ""),
    ],
)
def test_the_first_question_is_taken(text, question):
    assert extraction.question_of(text) == question


def test_statements_are_split_at_lines_and_sentences_but_not_at_initials_and_titles():
    text = (
        "1. Ada lives in Red House. It belongs to North College!\n"
        "- J. K. Bo met Dr. Cy there.\n\nAda lives in Red House.\nThe answer is Oz.\nYes."
    )
    assert extraction.statements(text) == [
        "Ada lives in Red House.",
        "It belongs to North College!",
        "J. K. Bo met Dr. Cy there.",
    ]


def test_triplets_in_both_notations():
    text = (
        "Ada | lives in | Red House\n* (Red House, belongs to, North College).\n"
        "ADA | lives in | red house\nAda | is | Ada\na | b\n(a, b, c, d)\n"
        "Ada | said that | one two three four five six seven eight nine"
    )
    assert extraction.triplets_of(text) == [
        Triplet("Ada", "lives in", "Red House"),
        Triplet("Red House", "belongs to", "North College"),
    ]


def test_the_apostrophe_of_a_possessive_stays():
    (found,) = extraction.triplets_of("Ada | 's house is | 'Red House'.")
    assert found == Triplet("Ada", "'s house is", "Red House")
    assert found.prompt == "{}'s house is"


word = st.from_regex(r"[A-Za-z]{1,9}", fullmatch=True)


@given(st.lists(st.tuples(word, word, word), max_size=6))
def test_well_formed_lines_come_back_once(rows):
    expected = {Triplet(*r).key for r in rows if r[0].casefold() != r[2].casefold()}
    for line in ("{} | {} | {}", "({}, {}, {})"):
        found = extraction.triplets_of("\n".join(line.format(*row) for row in rows))
        assert {triplet.key for triplet in found} == expected
        assert len(found) == len(expected)


@given(st.text())
def test_any_text_is_survived(text):
    extraction.question_of(text)
    assert all(len(s.split()) >= 3 for s in extraction.statements(text))
    assert all(t.key[0] != t.key[2] for t in extraction.triplets_of(text))


def test_prompts_name_what_they_ask_about():
    triplet = Triplet("Ada", "lives in", "Red House")
    follow = Triplet("Red House", "belongs to", "North College")
    assert "Subject: Ada | Relation: lives in | Object: Red House" in prompts.question_prompt(
        [triplet]
    )
    chain = prompts.question_prompt([triplet, follow])
    assert "Chain: Ada -> lives in -> Red House -> belongs to -> North College\n" in chain
    with pytest.raises(ValueError, match="empty chain"):
        prompts.question_prompt([])
    assert extraction.fallback_question(triplet) == "Ada lives in what?"
    for template in prompts.TEMPLATES.values():
        assert template == template.rstrip(" ")


def test_prompts_end_without_a_blank():
    for prompt in (
        prompts.answer_prompt("Who?"),
        prompts.thought_prompt("Who?"),
        prompts.extraction_prompt("Ada lives."),
    ):
        assert prompt == prompt.rstrip()
