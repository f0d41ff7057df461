"""Entities in responses, by whole words, any case, accents or alias; the probability of naming one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.scoring.answers import Question, score_answers
from helpers.scoring.naming import exclusive, log_naming, mentions, names_of

NAMED = """\
He went to PARIS. | Paris
Beyoncé sang | Beyonce
Rene Descartes | René
the  Red House | red house
Atari's console | Atari
Apple Inc. | Apple Inc.
C++ and C | C++
東京都は日本の首都です | 東京
서울은 한국의 수도 | 서울
อยู่ในกรุงเทพมหานคร | กรุงเทพ
iPhoneは東京で | iPhone
Ελλαδα | Ελλάδα
"""
# USA inside a word; kana that are no accents; half a syllable; …
NOT_NAMED = """\
a usable tool | USA
がくせい | かくせい
선생 | 서
Москвы | Москв
"""


@pytest.mark.parametrize("line", (NAMED + NOT_NAMED).splitlines())
def test_mentions(line):
    text, name = line.split(" | ")
    assert mentions(text, [name]) == (line in NAMED)


def test_names_include_aliases_whatever_the_case():
    assert names_of("India", {"india": ("Bharat",)}) == ("India", "Bharat")
    assert names_of("Oz", {}) == ("Oz",)


@given(st.from_regex(r"[A-Za-zéüñ]+( [A-Za-z]+)?", fullmatch=True))
def test_a_name_is_found_in_any_sentence_about_it(name):
    assert mentions(f"It was {name.upper()}, they said.", [name])
    assert not mentions(f"x{name}x", [name])


def test_a_name_that_another_begins_is_covered_by_it(tiny):
    model = tiny("llama")
    names = ("New York City", "New York", "Gotham", "New York", "New")
    assert exclusive(model, names) == [2, 4]
    assert exclusive(model, names[:4]) == [1, 2]


def test_naming_adds_up_what_excludes_each_other(tiny):
    model = tiny("llama")
    names = ("Oslo", "Kristiania", "Oslo town")
    sums = score_answers(model, [Question("It lies in", names)])["sum"].to_numpy()
    kept = exclusive(model, names)
    assert kept == [0, 1]
    assert log_naming(sums[kept]) == pytest.approx(np.log(np.exp(sums[:2]).sum()))
    assert log_naming([-0.1, -0.2]) == 0.0  # more than certain: rounding
    assert np.isnan(log_naming([np.nan, -1.0]))
