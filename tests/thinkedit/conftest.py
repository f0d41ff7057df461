"""A deterministic model of a tiny world, so that the pipeline can be followed by hand."""

import re
from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as token_models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from helpers.models import LanguageModel
from helpers.models.load import _ready
from helpers.thinkedit.graph import Triplet
from helpers.thinkedit.grow.language import PROMPTS
from helpers.thinkedit.grow.pipeline import Settings
from helpers.thinkedit.knowgic import Chain, ChainFact, EditedGraph
from helpers.thinkedit.scores import EXACT_COLUMNS

SCHOOL = Triplet("Ada", "studied at", "North College")
HOUSE = Triplet("Ada", "lives in", "Red House")
PART = Triplet("Red House", "belongs to", "North College")
WORLD = (SCHOOL, HOUSE, PART)


class WorldModel:
    """Knows some triplets: asks about them, answers them, and reasons from subject to neighbours."""

    fingerprint = "world-1"

    def __init__(self, known: Sequence[Triplet] = WORLD) -> None:
        self.known = list(known)
        self.asked: list[str] = []

    def respond(self, prompts: Sequence, *, n: int, seed: int, **changes) -> list[list[str]]:
        self.asked += map(str, prompts)
        return [[self._one(p) if isinstance(p, str) else self._thought(p)] * n for p in prompts]

    def _one(self, prompt: str) -> str:
        last = prompt.rstrip().splitlines()[-1]
        if "Chain:" in prompt:
            return " Which school follows from the house of Ada?"
        if match := re.search(
            r"Subject: (.*) \| Relation: (.*) \| Object", prompt.splitlines()[-2]
        ):
            return f" {match[1]} {match[2]} what?"
        assert last == "Answer:"
        question = prompt.rsplit("Question: ", 1)[-1]
        known = [t for t in self.known if f"{t.subject} {t.relation} what?" in question]
        chain = "follows from the house" in question
        return known[0].object if known else "north COLLEGE" if chain else "I do not know."

    def _thought(self, turns: Sequence[dict[str, str]]) -> str:
        """Reasons about a question, or extracts the triplets of a statement."""
        question = turns[-1]["content"]
        if turns[0]["content"] == PROMPTS["extraction"]:
            return "".join(
                f"{t.subject} | {t.relation} | {t.object}\n"
                for t in self.known
                if f"{t.subject} {t.relation} {t.object}." in question
            )
        names = {t.subject for t in self.known if t.subject in question}
        near = names | {t.object for t in self.known if t.subject in names}
        facts = [t for t in self.known if t.subject in near]
        return "\n".join(f"{t.subject} {t.relation} {t.object}." for t in facts)


def header_of(world: WorldModel, fact: Triplet, question: str = "", **settings) -> dict:
    """What a journal of a run in the world begins with; asked as in the paper."""
    paper = {
        "max_attempts": 3,
        "target_chains": 100,
        "max_rounds": 8,
        "responses": 1,
        "thoughts": 1,
    }
    pipeline = asdict(Settings(**{**paper, "chain_questions": 20, **settings}))
    held = {"fact": [fact.subject, fact.relation, fact.object], "question": question}
    return {"model": world.fingerprint, "settings": {**held, "pipeline": pipeline}}


@pytest.fixture
def world() -> WorldModel:
    return WorldModel()


def _edit(case_id: int, subject: str, friend: str, home: str, new: str) -> EditedGraph:
    direct = ChainFact(subject, "{} lives in", home, f"In which town does {subject} live?")
    to_friend = ChainFact(subject, "{}'s friend is", friend, f"Who is {subject}'s friend?")
    friends_home = ChainFact(friend, "{} lives in", home, f"Where does {friend} live?")
    chains = (Chain((direct,)), Chain((to_friend, friends_home)))
    return EditedGraph(case_id, subject, "{} lives in", home, new, chains)


@pytest.fixture
def edits() -> tuple[EditedGraph, ...]:
    """Three edits of one-step and two-step chains."""
    return (
        _edit(1, "Ada", "Bo", "Rome", "Oslo"),
        _edit(2, "Cy", "Di", "Lima", "Bonn"),
        _edit(3, "Ed", "Flo", "Rome", "Lima"),
    )


def _exact_table(*rows: tuple) -> pd.DataFrame:
    """Exact scores of answers with one name each.

    A row: case_id, form, item, sum and tokens of the original and of the other answer, then the
    rivals' highest mean and (by default as many tokens as the original's) their highest sum.
    """
    full = []
    for case_id, form, item, original, tokens, other, others, *rivals in rows:
        rival, rival_sum = rivals if len(rivals) == 2 else (rivals[0], rivals[0] * tokens)
        answers = (original, tokens, original, other, others, other)
        full.append((case_id, form, item, *answers, rival, rival_sum))
    return pd.DataFrame(full, columns=list(EXACT_COLUMNS))


@pytest.fixture
def exact_table():
    return _exact_table


@pytest.fixture
def word_model() -> LanguageModel:
    """A random model whose tokens are words, so that a text is cut into tokens in one way only."""
    words = ["[UNK]", "[PAD]", "[EOS]", *(f"w{i}" for i in range(37))]
    numbered = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(token_models.WordLevel(numbered, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "[EOS]"}
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.5}
    ends = {"bos_token_id": None, "eos_token_id": 2, "pad_token_id": 1}
    config = LlamaConfig(vocab_size=len(words), **sizes, **heads, **ends)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    return _ready(LanguageModel("tiny-words", LlamaForCausalLM(config), fast))
