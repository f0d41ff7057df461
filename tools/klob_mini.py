"""KLoB-mini, the packaged reconstruction: ``python -m tools.klob_mini``.

Facts are the packaged ones about countries and cities with a single answer, and those compiled by
hand in ``packaged/klob/facts.tsv``; a model's recall filter decides which stay. Made once with
smollm2-135m; the files carry the result. c is made of triples in the wordings of Table 3, r of two-hop
chains, u of random dictionary words.
"""

from __future__ import annotations

import json
import random
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
import typer

from helpers.klob.examples import SCHEMAS, ConsistencyExample, RelevanceExample
from helpers.klob.tables import SUBTASKS, TEMPLATES
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states
from helpers.models.language_model import LanguageModel
from helpers.models.load import load
from helpers.models.tokens import answer_ids, prompt_ids, separator_after
from helpers.paths import PACKAGED
from helpers.records import SLOT, load_yaml, without_slot
from helpers.triples.sources import packaged_triples, read_facts

Triple = tuple[str, str, str]
Chain = tuple[Triple, Triple]
Item = TypeVar("Item")
FOLDER = PACKAGED / "klob"
COMPILED = FOLDER / "facts.tsv"
COUNTRY_RELATIONS = ("P17", "P30", "P36", "P37", "P38", "P140")
# Second hops that lead back to the chain's subject, or follow from the first alone.
EXCLUDED = (("P36", "P1376"), ("P1376", "P36"), ("P36", "P17"), ("P17", "P1376"))
DEMONSTRATIONS = 8
_AT_ONCE = 32  # questions of a relation that share one packed row


@dataclass(frozen=True)
class RelationTemplates:
    """Three wordings of one relation (see ``packaged/klob/templates.yaml``)."""

    label: str
    templates: tuple[str, ...]
    description: str
    table_3: bool

    def clozes(self, subject: str) -> tuple[str, ...]:
        """The three sentences about ``subject``, each ending in its slot."""
        filled = (template.replace("[X]", subject) for template in self.templates)
        return tuple(text.removesuffix(" [Y]") + SLOT for text in filled)


def load_templates() -> dict[str, RelationTemplates]:
    """Templates by relation, corrected where Table 3 as printed has a slip."""
    entries: Mapping[str, Any] = load_yaml(TEMPLATES.read_text(encoding="utf-8"))
    return {
        relation: RelationTemplates(
            label=f"{entry['keyword']}_({relation})",
            templates=tuple(entry["templates"]),
            description=entry["description"],
            table_3=entry.get("table_3", True),
        )
        for relation, entry in entries.items()
    }


def mini_triples(*, cities: int = 400, seed: int = 0) -> list[Triple]:
    """Sorted triples to choose from, with at most so many facts "city lies in country"."""
    places = [fact for fact in packaged_triples() if fact.relation in COUNTRY_RELATIONS]
    current = [f for f in (*places, *read_facts(COMPILED)) if f.end is None]
    triples = single_valued((f.subject, f.relation, f.object) for f in current)
    triples |= single_valued((o, "P1376", s) for s, r, o in triples if r == "P36")
    located = sorted(triple for triple in triples if triple[1] == "P17")
    dropped = random.Random(seed).sample(located, max(0, len(located) - cities))
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
    language_model: LanguageModel,
    triples: Sequence[Triple],
    *,
    demonstrations: int = DEMONSTRATIONS,
    seed: int = 0,
) -> list[Triple]:
    """Facts whose first wording the model completes after solved ones of the relation (Section 3.3).

    A fact is recalled when greedy decoding gives exactly the answer's tokens: each is the most probable
    one after those before it. Relations with too few facts, or without templates, are left out.
    """
    templates = load_templates()
    head = language_model.model.get_output_embeddings()
    known: set[Triple] = set()
    for relation in sorted({relation for _, relation, _ in triples} & templates.keys()):
        facts = [triple for triple in triples if triple[1] == relation]
        if len(facts) <= demonstrations:
            continue
        asked = [without_slot(templates[relation].clozes(subject)[0]) for subject, _, _ in facts]
        order = random.Random(f"{seed} {relation}").sample(range(len(facts)), len(facts))
        for start in range(0, len(facts), _AT_ONCE):
            forest, nodes, answers = Forest(), [], []
            for index in range(start, min(start + _AT_ONCE, len(facts))):
                # The same demonstrations for all, but for the question itself: they run once.
                shown = [i for i in order[: demonstrations + 1] if i != index][:demonstrations]
                solved = "".join(f"{asked[i]} {facts[i][2]}\n" for i in shown)
                prompt, after = f"{solved}{asked[index]}", separator_after(asked[index])
                answers.append(answer_ids(language_model, facts[index][2], after))
                nodes.append(forest.add_answer(prompt_ids(language_model, prompt), answers[-1]))
            packed = pack([forest], language_model)
            hidden = hidden_states(language_model, packed.ids, packed.positions, packed.visible)
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
    """The first fact in three wordings, and the chain in one.

    The chain's sentence is the second relation's first template about the *described* first object:
    "The capital of the country where Soppressata was created is _".
    """
    (subject, first, bridge), (_, second, answer) = chain
    fact, hop = templates[first], templates[second]
    sentence = hop.clozes(fact.description.replace("[X]", subject))[0]
    return RelevanceExample(
        (subject, fact.label, bridge),
        (subject, fact.label, bridge, hop.label, answer),
        fact.clozes(subject),
        sentence[0].upper() + sentence[1:],  # a description may stand first
    )


def two_hop_chains(
    triples: Sequence[Triple], relations: Iterable[str], *, excluded: Iterable[tuple[str, str]] = ()
) -> list[Chain]:
    """Sorted chains of two facts in which the first's object is the second's subject, whose answer is
    neither the subject nor the bridge, but for ``excluded`` pairs of relations.
    """
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


def nonfactual_sentences(
    clozes: Sequence[str], words: Sequence[str], *, seed: int = 0
) -> tuple[str, ...]:
    """One random sentence per sentence of c and r, of as many words or (rare) punctuation marks."""
    pool = [*words, *string.punctuation.replace(SLOT.strip(), "")]
    generator = random.Random(seed)
    return tuple(
        " ".join(generator.choices(pool, k=len(without_slot(cloze).split()))) + SLOT
        for cloze in clozes
    )


def at_most(
    items: Sequence[Item], limit: int, key: Callable[[Item], Hashable], *, seed: int = 0
) -> list[Item]:
    """A random choice of at most ``limit`` items per key, in the given order."""
    order = list(range(len(items)))
    random.Random(seed).shuffle(order)
    taken: Counter[Hashable] = Counter()
    kept = []
    for index in order:
        if taken[key(items[index])] < limit:
            taken[key(items[index])] += 1
            kept.append(index)
    return [items[index] for index in sorted(kept)]


def main(
    model: Annotated[str, typer.Option(help="model whose recall filters")] = "smollm2-135m",
    per_relation: Annotated[int, typer.Option(help="most c examples of a relation")] = 50,
    per_pair: Annotated[int, typer.Option(help="most r examples of a pair of relations")] = 25,
    seed: Annotated[int, typer.Option(help="of every choice")] = 0,
    folder: Annotated[Path, typer.Option(help="where the files go")] = FOLDER,
) -> None:
    """Build klob-mini's three files."""
    from english_words import get_english_words_set  # Webster's Second, as NLTK's

    templates = load_templates()
    triples = mini_triples(seed=seed)
    known = recalled(load(model), triples, seed=seed)
    typer.echo(f"{model} recalls {len(known)} of {len(triples)} facts")
    in_table = [t for t in known if templates[t[1]].table_3]
    facts = at_most(in_table, per_relation, lambda triple: triple[1], seed=seed)
    chains = two_hop_chains(known, templates, excluded=EXCLUDED)
    chosen = at_most(chains, per_pair, lambda chain: (chain[0][1], chain[1][1]), seed=seed)
    consistency = [consistency_example(triple, templates) for triple in facts]
    relevance = [relevance_example(chain, templates) for chain in chosen]
    clozes = [*(e.prompts[0] for e in consistency), *(e.chain_prompt for e in relevance)]
    words = sorted(get_english_words_set(["web2"]))
    unbiasedness = nonfactual_sentences(clozes, words, seed=seed)
    built: tuple[Sequence[Any], ...] = (consistency, relevance, unbiasedness)
    for subtask, examples in zip(SUBTASKS, built, strict=True):
        save_examples(examples, folder / f"klob-mini-{subtask[0]}.jsonl")
        typer.echo(f"klob-mini-{subtask[0]}: {len(examples)} examples")


def save_examples(examples: Iterable[Any], path: Path) -> None:
    """Write examples of one subtask in the published schema, one JSON value per line."""
    kinds: dict[type, Any] = {
        ConsistencyExample: SCHEMAS["consistency"],
        RelevanceExample: SCHEMAS["relevance"],
        str: SCHEMAS["unbiasedness"],
    }
    values = [kinds[type(e)].dump_python(e, mode="json", by_alias=True) for e in examples]
    lines = [json.dumps(value, ensure_ascii=False) + "\n" for value in values]
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
