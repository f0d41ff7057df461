"""Grow knowledge graphs from a model: the packaged ones again, or one about any fact.

    python -m tools.grow smollm2-135m
    python -m tools.grow smollm2-135m --subject "Harry Potter" --relation "studied at" \
        --answer Hogwarts --question "Where did Harry Potter study?" --into runs/grown --new Ilvermorny

The graphs of ``grow_decisions.yaml`` are reviewed by its decisions. A model's own facts, which it lists with
a table of what was dropped and why, and any other fact are reviewed by the rules of ``Ruled``: no person
decides (notebook 06 has a panel for one). With ``--new`` the graph becomes an edit in KnowGIC's form,
for ``layout`` and ``benchmark``. With ``--chat`` every prompt is a chat in the model's template, with a
system instruction and solved examples as earlier turns.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from helpers.models import load
from helpers.paths import RUNS
from helpers.records import comparable
from helpers.thinkedit.graph import Triplet, as_edit
from helpers.thinkedit.grow.language import ModelRespondent
from helpers.thinkedit.grow.pipeline import (
    FOLDER,
    Decision,
    Growth,
    Review,
    counts,
    reasoned,
    session,
)
from helpers.thinkedit.grow.wordings import read_wordings, store_neighbours
from helpers.thinkedit.knowgic import write_edits

DECISIONS = Path(__file__).with_name("grow_decisions.yaml")
_NOUN = re.compile(r"is (?:an?|the)\b.*?(\w+)(?: (?:in|of|on|at|from))?$")
_KINDS = {"country": "P30", "nation": "P30", "city": "P17", "town": "P17", "capital": "re_P36"}


class Curator:
    """Keeps what the store holds and what was judged true, adds and rewords what the decisions list."""

    def __init__(self, graph: Mapping[str, Any], decisions: Mapping[str, Any]) -> None:
        self.fact = Triplet(*graph["fact"])
        self._added = tuple(Triplet(*added) for added in graph["add"])
        self._reword = decisions["reword"]
        self._true = {Triplet(*parts).key for parts in decisions["reasoned"]}
        wordings = read_wordings()
        for proposal in chain.from_iterable(store_neighbours("packaged").values()):
            reads = wordings.relations[proposal.relation].reads
            self._true.add(Triplet(proposal.subject, reads, proposal.object).key)

    def __call__(self, review: Review) -> Decision:
        """Decide one review."""
        if review.occasion == "refine":
            if question := self._reword.get(review.question):
                return Decision(question=question, path=review.path)
            return Decision(discard=True)
        kept = [each for each in review.candidates if each.key in self._true]
        if review.path == (self.fact,):
            kept = [each for each in kept if each.relation != "shares a border with"]
            kept += self._added
        return Decision(triplets=tuple(kept))


class Ruled:
    """Decides by rules, from what the packaged facts hold."""

    def __init__(self) -> None:
        wordings = read_wordings()
        self._facts, self._kinds, self._pairs = set(), defaultdict(set), set()
        self._first: dict[tuple[str, str], str] = {}
        for proposal in chain.from_iterable(store_neighbours("packaged").values()):
            reads = wordings.relations[proposal.relation].reads
            own, other = comparable(proposal.subject), comparable(proposal.object)
            self._facts.add((own, reads, other))
            self._kinds[own].add(proposal.relation)
            self._pairs |= {(own, other), (other, own)}
        self._known = {entity for pair in self._pairs for entity in pair}

    def dropped(self, triplet: Triplet) -> str:
        """Why a candidate is dropped; empty where it is kept."""
        own, _, other = triplet.key
        if triplet.key in self._facts:
            return ""
        if not re.search(r"[A-Z0-9]", triplet.object):
            return "the object is no name"
        if {own, other} <= self._known and (own, other) not in self._pairs:
            return "the store knows both and does not relate them"
        noun = _NOUN.match(triplet.relation)
        if noun and own in self._known and _KINDS.get(noun[1]) not in self._kinds[own]:
            return f"the store does not hold {triplet.subject} as {noun[1]}"
        place = own.removeprefix("the "), triplet.relation
        if re.search(r"\d", other) and self._first.setdefault(place, other) != other:
            return "another number was kept before"
        return ""

    def __call__(self, review: Review) -> Decision:
        """Keep what no rule drops; a question that failed is given up."""
        kept = tuple(t for t in review.candidates if not self.dropped(t))
        return Decision(discard=review.occasion == "refine", triplets=kept)

    def reviewed(self, path: Path) -> pd.DataFrame:
        """Each candidate of a journal, whether the store holds it, and why it was dropped."""
        rows = []
        for record in map(json.loads, path.read_text("utf-8").splitlines()):
            if record["kind"] == "decision" and record["request"]["occasion"] == "prune":
                for parts in record["request"]["candidates"]:
                    triplet = Triplet(**parts)
                    known = triplet.key in self._facts, self.dropped(triplet)
                    rows.append((path.stem, *parts.values(), *known))
        columns = ["graph", *Triplet.__annotations__, "in store", "dropped"]
        return pd.DataFrame(rows, columns=columns)


def own_graph(respondent: ModelRespondent, given: argparse.Namespace, into: Path) -> Growth:
    """A graph about the fact that the command line gives, and its edit where ``--new`` is given."""
    fact = Triplet(given.subject, given.relation, given.answer)
    name = "-".join(re.findall(r"\w+", given.subject.casefold()))
    path = into / f"grown-{respondent.lm.name}-{name}.jsonl"
    growth = session(fact, respondent, path, question=given.question).run(Ruled())
    if not growth.chains:
        raise ValueError(
            f"{fact}: {growth.stopped}; read the responses in {path}, and give another --question"
        )
    if given.new:
        edit = as_edit(growth.graph, growth.fact, new=given.new)
        write_edits([edit], path.with_suffix(".json"))
        print(f"{path.with_suffix('.json')}: {len(edit.chains)} chains", file=sys.stderr)
    return growth


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--dtype", default="float32", help="of the weights, such as bfloat16")
    parser.add_argument("--chat", action="store_true", help="ask in the model's chat template")
    parser.add_argument("--into", type=Path, help="folder of the journals")
    for name in ("subject", "relation", "answer", "question", "new"):
        parser.add_argument(f"--{name}", default="")
    given = parser.parse_args(arguments)
    parts = given.subject, given.relation, given.answer
    if any((*parts, given.question, given.new)) and not all(parts):
        parser.error("a fact of your own needs --subject, --relation and --answer")
    respondent = ModelRespondent(load(given.model, dtype=given.dtype), turns=given.chat)
    if given.subject:
        try:
            grown = [own_graph(respondent, given, given.into or RUNS / "grown")]
        except ValueError as error:
            raise SystemExit(str(error)) from error
    else:
        decisions = yaml.safe_load(DECISIONS.read_text(encoding="utf-8"))
        name = str(given.into or FOLDER) + f"/grown-{given.model}-"
        own, grown, reviews = decisions["own"].get(given.model, {}), [], []
        for about, (*fact, question) in own.items():
            ruled, path = Ruled(), Path(f"{name}{about}.jsonl")
            run = session(Triplet(*fact), respondent, path, question=question)
            grown.append(run.run(ruled))
            reviews.append(ruled.reviewed(path))
        if reviews:
            pd.concat(reviews).to_csv(f"{name}reviews.csv", index=False)
        for about, graph in decisions["graphs"].items() if not own else ():
            curator, path = Curator(graph, decisions), Path(f"{name}{about.lower()}.jsonl")
            grown.append(session(curator.fact, respondent, path).run(curator))
    print(counts(grown).to_string(index=False), reasoned(grown).to_string(), sep="\n")


if __name__ == "__main__":
    main()
