"""Entities in responses, by whole names, any case, accents, signs or alias; the probability of naming one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.records import comparable
from helpers.scoring.answers import Question, exclusive, score_answers
from helpers.scoring.naming import fold, log_naming, mentions, names_of, starts, unaccented

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
Die STRASSE dort | Straße
İzmir'de | izmir
a Paris-based firm | Paris
the Obama-era rule | Obama
French-speaking Swiss | French
anti-French songs | French
Bashar al-Assad | Assad
the New York-born Baldwin | New York
a jazz-influenced album | jazz
Guinea - Bissau | Guinea
Guinea-\\nBissau | Guinea
- Guinea | Guinea
Guinea-, Mali- and Chad-based | Chad
Guinea- and Mali-based | Guinea
Peru--Chile | Peru
Peru—Chile | Peru
in 1914-1918 | 1914
a Boeing 747-400 | Boeing 747
東京-大阪 | 東京
the Paris's | Paris
born in 1999, 2000 or 3.5 | 2000
at 3. | 3
l'Afrique | Afrique
in Guinea-Bissau's north | Guinea-Bissau
guinea-bissau | Guinea-Bissau
"""
# USA inside a word; kana that are no accents; half a syllable; a letter and its vowel sign; …
NOT_NAMED = """\
a usable tool | USA
がくせい | かくせい
선생 | 서
Москвы | Москв
दिल्ली | दिल
ที่ | ท
Hawaiʻi | Hawai
Saʿdi | Sa
Guinea-Bissau | Guinea
Guinea-Bissau | Bissau
GUINEA-BISSAU | Guinea
guinea-bissau | Guinea
the Guinea–Bissau border | Guinea
Port-au-Prince | Port
Port-au-Prince | Prince
Covid-19 | Covid
Jean-Paul Sartre | Paul Sartre
New York-New Jersey | New York
Paris–Dakar | Paris
3.5 million | 3
1,000 people | 1
1,000 people | 000
Guinea - Bissau | Guinea-Bissau
Guinea | Guinea-Bissau
"""


@pytest.mark.parametrize("line", (NAMED + NOT_NAMED).splitlines())
def test_mentions(line):
    text, name = line.replace("\\n", "\n").split(" | ")
    assert mentions(text, [name]) == (line in NAMED.splitlines())


APOSTROPHES = "\u2018\u2019\u201b\u02bc\u2032\uff07`\u00b4"
HYPHENS = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"
INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u202a\u202c\u2060\u2066\u2069\ufeff"
BLANKS = "\u00a0\u2007\u2009\u202f\u3000\t"


@pytest.mark.parametrize(
    ("name", "plain", "signs"),
    [
        ("Côte d'Ivoire", "'", APOSTROPHES),
        ("N'Djamena", "'", APOSTROPHES),
        ("Port-au-Prince", "-", HYPHENS),
        ("Sri Lanka", " ", BLANKS),
    ],
)
def test_a_name_is_the_same_whatever_signs_it_is_written_with(name, plain, signs):
    for sign in signs:
        written = name.replace(plain, sign)
        assert comparable(written) == comparable(name)
        assert fold(written) == fold(name)
        assert mentions(f"It is near {written}.", [name])
        assert mentions(f"It is near {name}.", [written])
    for sign in INVISIBLE:
        written = f"{sign}{name[:3]}{sign}{name[3:]}{sign}"
        assert comparable(written) == comparable(name)
        assert mentions(f"It is near {written}.", [name])


@pytest.mark.parametrize("sign", HYPHENS)
def test_a_longer_name_is_told_from_its_beginning_whatever_its_hyphen(sign):
    text = f"It borders Guinea{sign}Bissau."
    assert not mentions(text, ["Guinea"])
    assert mentions(text + " And Guinea.", ["Guinea"])


def test_letters_that_look_like_signs_are_letters():
    assert comparable("Hawaiʻi") != comparable("Hawaii")
    assert comparable("Saʿdi") != comparable("Sadi")


def test_places_are_those_of_the_text_that_is_searched():
    text = unaccented("Straße in ẞ, Peru\u200b and Perú")
    assert [text[place : place + 4] for place in starts(text, "peru")] == ["Peru", "Peru"]
    assert len(text) == len(fold(text))


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
