"""Questions, statements and triplets in free text, the prompts that ask for them, and who answers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.models.tokens import chat_text
from helpers.scoring.responses import Sampling
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow import language
from helpers.thinkedit.grow.wordings import Wordings, read_wordings


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (" Where is Etna?", "Where is Etna?"),
        ("Sure, here it is.\n1. Who is Ada? I hope it helps.", "Who is Ada?"),
        ("no question here", ""),
    ],
)
def test_the_first_question_is_taken(text, question):
    assert language.question_of(text) == question


def test_statements_are_split_at_lines_and_sentences_but_not_at_initials_and_titles():
    text = (
        "1. Ada lives in Red House. Red House belongs to North College!\n"
        "- J. K. Bo met Dr. Cy of Oz Inc. there.\nThe answer is Oz.\nYes.\nIt is old.\n"
        "Therefore Ada studied at North College."
    )
    assert language.statements([text], "Who is Ada?") == [
        "Ada lives in Red House.",
        "Red House belongs to North College!",
        "J. K. Bo met Dr. Cy of Oz Inc. there.",
    ]


def test_triplets_are_read():
    text = (
        "Ada | lives in | Red House\n* Red House | belongs to | North College.\n"
        "ADA | lives in | red house\nAda | is | Ada\na | b\n(a, b, c, d)\n"
        "Ada | said that | one two three four five six seven eight nine"
    )
    assert language.triplets_of(text, text, Wordings()) == [
        Triplet("Ada", "lives in", "Red House"),
        Triplet("Red House", "belongs to", "North College"),
    ]


@pytest.mark.parametrize(
    ("statement", "written", "triplet"),
    [  # as SmolLM2 135M wrote them
        ("German is the official language of Austria.", "German | is the Official Language of | Austria",
         ("German", "is the official language of", "Austria")),
        ("Poland is a sovereign state located in Central Europe.",
         "Poland | is a sovereign state located in Central Europe",
         ("Poland", "is a sovereign state located in", "Central Europe")),
        ("Harry Potter was studied at Hogwarts School of Witchcraft and Wizardry.",
         "Harry Potter | studied at Hogwarts School of Witchcraft and Wizardry",
         ("Harry Potter", "studied at", "Hogwarts School of Witchcraft and Wizardry")),
        ("The capital of the USA is Washington.", "The capital of the USA | is | Washington",
         ("United States", "has the capital", "Washington")),
        ("Poland is a European country.", "Poland | is a European country", None),
        ("Europe is also a part of North America.", "Europe | North America", None),
        ("Italy is also a European country.", "Marie Curie | discovered | polonium", None),
    ],
)  # fmt: skip
def test_lines_of_fewer_parts_are_split_and_what_the_statement_lacks_is_refused(
    statement, written, triplet
):
    found = language.triplets_of(written, statement, read_wordings())
    assert found == ([] if triplet is None else [Triplet(*triplet)])


def test_statements_that_repeat_the_solved_examples_are_no_thoughts():
    told = ["Marie Curie discovered polonium.\nItaly is in Europe."]
    assert language.statements(told, "Which continent is Italy on?") == ["Italy is in Europe."]
    born = ["Marie Curie was born in Warsaw."]
    assert language.statements(born, "Who was Marie Curie?") == born
    assert not language.statements(list(language.PROMPTS["solved_thoughts"].values()), "?")


@given(st.text())
def test_any_text_is_survived(text):
    language.question_of(text)
    assert all(len(s.split()) >= 3 for s in language.statements([text], "?"))
    assert all(t.key[0] != t.key[2] for t in language.triplets_of(text, text, read_wordings()))


def test_responses_and_the_fingerprint_depend_on_what_determines_them(tiny, monkeypatch):
    sampling = Sampling(max_new_tokens=6, temperature=1.0)
    model, prompts = tiny("llama"), ["Ada lives in", "x"]
    wide = language.ModelRespondent(model, sampling)
    assert wide.respond(prompts, n=2, seed=1) != wide.respond(prompts, n=2, seed=2)
    hot = language.ModelRespondent(model, replace(sampling, temperature=2.0))
    other = language.ModelRespondent(tiny("llama", seed=1), sampling)
    assert len({wide.fingerprint, hot.fingerprint, other.fingerprint}) == 3
    # Completions end at an empty line, chats do not.
    assert r"stop='\n\n'" in wide.fingerprint
    monkeypatch.setattr(model.tokenizer, "chat_template", "{{ messages }}")
    assert "stop=None" in wide.fingerprint


def test_every_prompt_can_be_a_chat_of_its_own(tiny, monkeypatch):
    """A stub's template writes roles and contents; Algorithm 1's examples become earlier turns."""
    model, asked = tiny("llama"), []

    def drawn(_, prompts, *, n, sampling):
        assert sampling.chat
        asked.extend(chat_text(model, prompt) for prompt in prompts)
        return [["Rome"] * n for _ in prompts]

    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    monkeypatch.setattr(model.tokenizer, "chat_template", template)
    monkeypatch.setattr(language, "sample_responses", drawn)
    chat = language.ModelRespondent(model, turns=True)
    question = language.question_prompt((Triplet("Ada", "lives in", "Rome"),))
    thought = language.solved_prompt("thought", "Where does Ada live?")
    prompts = [question, language.answer_prompt("Where does Ada live?"), thought]
    assert chat.respond(prompts, n=2, seed=0) == [["Rome", "Rome"]] * 3
    assert "Sicily\nQuestion:\nassistant: Where is Mount Etna located?\nuser: Subject" in asked[0]
    assert asked[0].endswith("Object: Rome\nQuestion:\nassistant:")
    assert "assistant: Pierre Curie\nuser: Question: Where does Ada live?\nAnswer:" in asked[1]
    assert [text.count("user: ") for text in asked] == [4, 3, 3]
    assert chat.fingerprint != language.ModelRespondent(model).fingerprint
