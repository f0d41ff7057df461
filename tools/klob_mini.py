"""KLoB-mini, the packaged reconstruction: ``python -m tools.klob_mini``.

Facts are the packaged ones about countries and cities with a single answer, and those compiled by
hand in ``packaged/klob/facts.tsv``; those that smollm2-135m recalls stay. c is made of triples in the
wordings of Table 3, slips corrected, r of two-hop chains, u of random dictionary words.

``python -m tools.klob_mini --paper FOLDER`` writes the packaged examples with Table 3's wordings as
printed; ``source: FOLDER`` in a params file of notebook 05 evaluates them.
"""

from __future__ import annotations

import json
import random
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import typer
from pydantic import TypeAdapter

from helpers.klob.examples import SCHEMAS, ConsistencyExample, RelevanceExample, read_examples
from helpers.klob.tables import SUBTASKS
from helpers.klob.templates import RelationTemplates, load_templates
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.load import load
from helpers.models.tokens import answer_ids, prompt_ids, separator_after
from helpers.paths import PACKAGED
from helpers.records import SLOT, without_slot
from helpers.triples.sources import packaged_triples, read_facts

Triple = tuple[str, str, str]
Chain = tuple[Triple, Triple]
Item = TypeVar("Item")
FOLDER = PACKAGED / "klob"
COMPILED = FOLDER / "facts.tsv"
COUNTRY_RELATIONS = ("P17", "P30", "P36", "P37", "P38", "P140")
# Second hops that lead back to the chain's subject, or follow from the first alone.
EXCLUDED = (("P36", "P1376"), ("P1376", "P36"), ("P36", "P17"), ("P17", "P1376"))
_AT_ONCE = 32  # questions of a relation that share one packed row


def mini_triples(*, cities: int = 400) -> list[Triple]:
    """Sorted triples to choose from, with at most ``cities`` facts "city lies in country"."""
    places = [fact for fact in packaged_triples() if fact.relation in COUNTRY_RELATIONS]
    current = [f for f in (*places, *read_facts(COMPILED)) if f.end is None]
    triples = single_valued((f.subject, f.relation, f.object) for f in current)
    triples |= single_valued((o, "P1376", s) for s, r, o in triples if r == "P36")
    located = sorted(triple for triple in triples if triple[1] == "P17")
    dropped = random.Random(0).sample(located, max(0, len(located) - cities))
    # A name inside its answer (Mexico City, Mexico) would be copied, not recalled.
    return sorted(
        t for t in triples - set(dropped) if t[2].lower() not in t[0].lower() and t[0] not in t[2]
    )


def single_valued(triples: Iterable[Triple]) -> set[Triple]:
    """Triples whose subject has no other answer for the relation."""
    distinct = set(triples)
    answers = Counter((subject, relation) for subject, relation, _ in distinct)
    return {triple for triple in distinct if answers[triple[:2]] == 1}


@torch.inference_mode()
def recalled(
    lm: LanguageModel, triples: Sequence[Triple], *, demonstrations: int = 8
) -> list[Triple]:
    """Facts whose first wording the model completes after solved ones of the relation (Section 3.3): greedy
    decoding gives exactly the answer's tokens. Relations with too few facts are excluded.
    """
    templates = load_templates()
    head = lm.network.get_output_embeddings()
    known: set[Triple] = set()
    for relation in sorted({relation for _, relation, _ in triples} & templates.keys()):
        facts = [triple for triple in triples if triple[1] == relation]
        if len(facts) <= demonstrations:
            continue
        asked = [without_slot(templates[relation].clozes(subject)[0]) for subject, _, _ in facts]
        order = random.Random(f"0 {relation}").sample(range(len(facts)), len(facts))
        for start in range(0, len(facts), _AT_ONCE):
            forest, nodes, answers = Forest(), [], []
            for index in range(start, min(start + _AT_ONCE, len(facts))):
                # The same demonstrations for all, but for the question itself: they run once.
                shown = [i for i in order[: demonstrations + 1] if i != index][:demonstrations]
                solved = "".join(f"{asked[i]} {facts[i][2]}\n" for i in shown)
                prompt, after = f"{solved}{asked[index]}", separator_after(asked[index])
                answers.append(answer_ids(lm, facts[index][2], after))
                nodes.append(forest.add_answer(prompt_ids(lm, prompt), answers[-1]))
            packed = pack([forest], lm)
            hidden = hidden_states(lm, packed.ids, packed.positions, packed.visible)
            best = head(hidden[0]).argmax(-1)
            pairs = zip(facts[start:], nodes, answers, strict=False)
            known |= {fact for fact, at, ids in pairs if tuple(best[at].tolist()) == tuple(ids)}
    return [triple for triple in triples if triple in known]


def consistency_example(
    triple: Triple, templates: Mapping[str, RelationTemplates]
) -> ConsistencyExample:
    """The fact in the three wordings of its relation."""
    subject, relation, answer = triple
    wordings = templates[relation]
    return ConsistencyExample(wordings.clozes(subject), (subject, wordings.label, answer))


def relevance_example(chain: Chain, templates: Mapping[str, RelationTemplates]) -> RelevanceExample:
    """The first fact in three wordings, and the chain in the second relation's first template about the
    *described* first object: "The capital of the country where Soppressata was created is _".
    """
    (subject, first, bridge), (_, second, answer) = chain
    fact, hop = templates[first], templates[second]
    sentence = hop.clozes(fact.description.replace("[X]", subject))[0]
    sentence = sentence[0].upper() + sentence[1:]  # a description may come first
    labels = (subject, fact.label, bridge)
    return RelevanceExample(labels, (*labels, hop.label, answer), fact.clozes(subject), sentence)


def two_hop_chains(
    triples: Sequence[Triple], relations: Iterable[str], *, excluded: Iterable[tuple[str, str]] = ()
) -> list[Chain]:
    """Sorted chains of two facts that meet in the bridge; the answer is neither it nor the subject."""
    usable, barred = set(relations), set(excluded)
    by_subject: dict[str, list[Triple]] = {}
    for triple in triples:
        if triple[1] in usable:
            by_subject.setdefault(triple[0], []).append(triple)
    return sorted(
        (first, second)
        for facts in by_subject.values()
        for first in facts
        for second in by_subject.get(first[2], ())
        if (first[1], second[1]) not in barred and second[2] not in (first[0], first[2])
    )


def nonfactual_sentences(clozes: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """One random sentence per sentence of c and r, of as many words or (rare) punctuation marks."""
    pool = [*words, *string.punctuation.replace(SLOT.strip(), "")]
    generator = random.Random(0)
    counts = [len(without_slot(cloze).split()) for cloze in clozes]
    return tuple(" ".join(generator.choices(pool, k=count)) + SLOT for count in counts)


def at_most(items: Sequence[Item], limit: int, key: Callable[[Item], Hashable]) -> list[Item]:
    """A random choice of at most ``limit`` items per key, in the given order."""
    order = list(range(len(items)))
    random.Random(0).shuffle(order)
    taken: Counter[Hashable] = Counter()
    kept = []
    for index in order:
        taken[key(items[index])] += 1
        if taken[key(items[index])] <= limit:
            kept.append(index)
    return [items[index] for index in sorted(kept)]


def paper_examples() -> tuple[Sequence[Any], ...]:
    """The packaged examples of c, r and u, a fact's three sentences in Table 3's wordings as printed.

    Facts, chain sentences and random words are the same, so that only the wordings differ.
    """
    printed = {templates.label: templates for templates in load_templates("paper").values()}

    def wordings(fact: Triple) -> tuple[str, ...]:
        subject, label, _ = fact
        return printed[label].clozes(subject)

    consistency, relevance, unbiasedness = (
        list(read_examples(subtask).values()) for subtask in SCHEMAS
    )
    facts = [ConsistencyExample(wordings(e.fact), e.fact) for e in consistency]
    chains = [
        RelevanceExample(e.fact, e.chain, wordings(e.fact), e.chain_prompt) for e in relevance
    ]
    return facts, chains, unbiasedness


def main(paper: Path | None = None) -> None:
    """Build klob-mini's three files; or write them in the paper's wordings to the folder ``paper``."""
    if paper:
        paper.mkdir(parents=True, exist_ok=True)
        for subtask, examples in zip(SUBTASKS, paper_examples(), strict=True):
            save_examples(examples, paper / f"KLoB-{subtask[0]}.jsonl")
        return
    from english_words import get_english_words_set  # Webster's Second, as NLTK's

    templates, triples = load_templates(), mini_triples()
    known = recalled(load("smollm2-135m"), triples)
    print(f"{len(known)} of {len(triples)} facts are recalled")
    in_table = [t for t in known if templates[t[1]].table_3]
    facts = at_most(in_table, 50, lambda triple: triple[1])
    chains = two_hop_chains(known, templates, excluded=EXCLUDED)
    chosen = at_most(chains, 25, lambda chain: (chain[0][1], chain[1][1]))
    consistency = [consistency_example(triple, templates) for triple in facts]
    relevance = [relevance_example(chain, templates) for chain in chosen]
    clozes = [*(e.prompts[0] for e in consistency), *(e.chain_prompt for e in relevance)]
    unbiasedness = nonfactual_sentences(clozes, sorted(get_english_words_set(["web2"])))
    built: tuple[Sequence[Any], ...] = (consistency, relevance, unbiasedness)
    for subtask, examples in zip(SUBTASKS, built, strict=True):
        save_examples(examples, FOLDER / f"klob-mini-{subtask[0]}.jsonl")
        print(f"klob-mini-{subtask[0]}: {len(examples)} examples")


def save_examples(examples: Iterable[Any], path: Path) -> None:
    """Write examples of one subtask in the published schema, one JSON value per line."""
    values = (TypeAdapter(type(e)).dump_python(e, mode="json", by_alias=True) for e in examples)
    lines = [json.dumps(value, ensure_ascii=False) + "\n" for value in values]
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
