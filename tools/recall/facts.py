"""Find the facts that a model recalls: propose, validate, propose about what was reached, …

Algorithms 1 and 2 for a whole frontier at a time. A fact's *probability* is the whole probability of
naming the object after the cloze. It is *validated* if the model's most probable answer after solved
examples contains the object or an alias.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from helpers.models.language_model import LanguageModel
from helpers.records import comparable
from helpers.results.store import Cases, ResultsStore
from helpers.scoring.answers import Question
from helpers.scoring.naming import mentions, names_of
from helpers.scoring.responses import Sampling, sample_responses
from helpers.thinkedit.grow.language import answer_prompt
from helpers.thinkedit.grow.wordings import Proposal, Wordings
from helpers.thinkedit.probes import Probe
from helpers.thinkedit.scores import exact_scores

COLUMNS = (
    "subject", "relation", "object", "source", "round", "cloze", "probability", "likely",
    "asked", "question", "validated",
)  # fmt: skip
EXAMPLES = 3  # solved examples before a question
GREEDY = Sampling(temperature=0, max_new_tokens=24, stop="\n", chat=False)
CHUNK = 256
PER_SUBJECT = 12  # proposals of one relation about one subject
TRIED = 60  # proposals of a relation on which its cloze is chosen
Store = Mapping[str, list[Proposal]]  # by case-folded subject


@dataclass(frozen=True)
class Validation:
    """One model asked about proposals; answers and probabilities are kept in the store."""

    lm: LanguageModel
    wordings: Wordings
    store: ResultsStore

    def probabilities(self, proposals: Sequence[Proposal], clozes: Sequence[str]) -> np.ndarray:
        """Whole probability of each proposal's object after its cloze, [proposals]."""
        aliases = self.wordings.aliases
        numbers = [
            _number(cloze, p.subject, *names_of(p.object, aliases))
            for p, cloze in zip(proposals, clozes, strict=True)
        ]
        probes = {
            number: Probe(number, "fact", 0, cloze.replace("{}", p.subject), p.object)
            for number, p, cloze in zip(numbers, proposals, clozes, strict=True)
        }

        def made(chunk: Sequence[Probe]) -> Mapping[str, pd.DataFrame]:
            return {"scores": exact_scores(self.lm, chunk, aliases)}

        settings = self._settings("clozes", scored_by={"answers": Question.version})
        table = Cases(probes, CHUNK).completed(self.store.open(settings), made)
        return np.exp(table.set_index("case_id")["original_named"].loc[numbers].to_numpy(float))

    def validated(self, proposals: Sequence[Proposal]) -> list[str]:
        """For each proposal the question whose answer names its object; empty where it does not."""
        relations = self.wordings.relations
        asked = [relations[p.relation].questions[0].replace("{}", p.subject) for p in proposals]
        examples = [list(pair) for pair in self.wordings.examples[:EXAMPLES]]
        solved = "".join(f"{answer_prompt(known)} {answer}\n\n" for known, answer in examples)

        def made(chunk: Sequence[tuple[int, str]]) -> Mapping[str, pd.DataFrame]:
            prompts = [solved + answer_prompt(question) for _, question in chunk]
            responses = sample_responses(self.lm, prompts, n=1, sampling=GREEDY)
            rows = [(n, text) for (n, _), (text,) in zip(chunk, responses, strict=True)]
            return {"scores": pd.DataFrame(rows, columns=["case_id", "response"])}

        drawn = {"sampling": asdict(GREEDY), "drawn_by": Sampling.version}
        settings = self._settings("questions", examples=examples, **drawn)
        cases = Cases({_number(each): (_number(each), each) for each in asked}, CHUNK)
        table = cases.completed(self.store.open(settings), made).set_index("case_id")["response"]
        found = []
        for proposal, question in zip(proposals, asked, strict=True):
            names = names_of(proposal.object, self.wordings.aliases)
            found.append(question if mentions(str(table[_number(question)]), names) else "")
        return found

    def _settings(self, asked: str, **own: Any) -> dict[str, Any]:
        identity = self.lm.identity
        return {"benchmark": "recalled", "version": 1, "asked": asked, **identity, **own}


def together(stores: Sequence[Store], entities: Iterable[str]) -> list[Proposal]:
    """The proposals of several stores; of the same fact, the first one's counts."""
    found: dict[tuple[str, str, str], Proposal] = {}
    for store, entity in product(stores, entities):
        for proposal in store.get(comparable(entity), ()):
            found.setdefault(proposal.key, proposal)
    return list(found.values())


def recalled_facts(
    validation: Validation,
    stores: Sequence[Store],
    subjects: Sequence[str],
    *,
    least: float = 0.05,
    rounds: int = 2,
) -> pd.DataFrame:
    """All proposals reached from some subjects, and what became of them, one row each: ``COLUMNS``.

    ``least`` is the whole probability from which a fact can be known (*likely*); *asked* are the likely
    ones that could be on a chain of several facts; ``question`` is the one that validated it, or empty.
    """
    clozes: dict[str, str] = {}
    tables: list[pd.DataFrame] = []
    known: set[str] = set()
    frontier = {comparable(name): name for name in subjects}
    for number in range(1, rounds + 1):
        proposals = _drawn(together(stores, frontier.values()))
        known |= set(frontier)
        if not proposals:
            break
        for relation in sorted({p.relation for p in proposals} - set(clozes)):
            some = [p for p in proposals if p.relation == relation][:TRIED]
            clozes[relation] = _best_cloze(validation, relation, some, least)
        texts = [clozes[p.relation] for p in proposals]
        table = pd.DataFrame([asdict(p) for p in proposals]).assign(round=number, cloze=texts)
        table["probability"] = validation.probabilities(proposals, texts)
        table["likely"] = table["probability"] >= least
        tables.append(table)
        reached = table.loc[table["likely"], "object"]
        frontier = {comparable(name): name for name in reached if comparable(name) not in known}
    table = pd.concat(tables, ignore_index=True)
    table["asked"] = table["likely"] & _around(table)
    asked = table.loc[table["asked"], ["subject", "relation", "object"]].to_numpy(str)
    table["question"] = ""
    table.loc[table["asked"], "question"] = validation.validated(
        [Proposal(*map(str, link)) for link in asked]
    )
    return table.assign(validated=table["question"] != "")[list(COLUMNS)]


def _drawn(proposals: Sequence[Proposal]) -> list[Proposal]:
    """At most ``PER_SUBJECT`` of each subject and relation, in a random order."""
    counts = Counter[tuple[str, str]]()
    kept = []
    for place in np.random.default_rng(0).permutation(len(proposals)):
        key = proposals[place].key[:2]
        counts[key] += 1
        if counts[key] <= PER_SUBJECT:
            kept.append(proposals[place])
    return kept


def _best_cloze(
    validation: Validation, relation: str, tried: Sequence[Proposal], least: float
) -> str:
    """The cloze after which the model completes most of some facts as known."""
    return max(
        validation.wordings.relations[relation].clozes,
        key=lambda cloze: (validation.probabilities(tried, [cloze] * len(tried)) >= least).mean(),
    )


def _around(table: pd.DataFrame) -> pd.Series:
    """Whether each fact is one of several ways, of up to three steps, between two linked entities; others
    can be on no chain but their own.
    """
    ends = [
        (comparable(s), comparable(o))
        for s, o in zip(table["subject"], table["object"], strict=True)
    ]
    likely = zip(ends, table["likely"], strict=True)
    graph = nx.DiGraph(end for end, probable in likely if probable and end[0] != end[1])
    useful = set()
    for edge in graph.edges:
        ways = list(nx.all_simple_edge_paths(graph, *edge, cutoff=3))
        if len(ways) > 1:
            useful |= {step for way in ways for step in way}
    return pd.Series([end in useful for end in ends], index=table.index)


def _number(*texts: str) -> int:
    """A number for the store that depends on the texts alone."""
    digest = hashlib.sha256("\x1f".join(texts).encode()).digest()
    return int.from_bytes(digest[:7], "big")
