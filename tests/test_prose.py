"""The report of hard places: it lists what is hard to read, and leaves out what no one reads aloud."""

from __future__ import annotations

from tools.prose import hard_places

LONG = "This sentence " + "goes on " * 20 + "to its end."


def problems(text):
    return [problem for problem, _ in hard_places(text)]


def test_a_paragraph_with_more_than_four_numbers_is_listed():
    assert problems("From 1 to 2, 3.5 and -4 %.") == []
    assert problems("From 1 to 2, 3.5 and -4 %, then 1,000.") == ["5 numbers"]
    assert problems("One has 1, 2 and 3.\n\nThe next has 4, 5 and 6.") == []
    assert problems("- One has 1, 2, 3.\n- The next has 4, 5, 6.") == []


def test_a_sentence_of_more_than_35_words_is_listed():
    assert problems(LONG) == ["45 words"]
    assert problems("Short one. " * 20) == []


def test_code_formulas_tables_and_names_do_not_count():
    text = f"```\n{LONG}\n```\n\n| 1 | 2 | 3 | 4 | 5 |\n\n`1 2 3 4 5` and $1+2+3+4+5$ in GPT2 and Table 3."
    assert problems(text) == []
