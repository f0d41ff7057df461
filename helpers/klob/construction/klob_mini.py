"""KLoB-mini: the packaged reconstruction, ``python -m helpers.klob.construction.klob_mini``.

Facts are the packaged ones about countries and cities with a single answer, and those compiled by
hand in ``packaged/klob/facts.tsv``; a model's recall filter decides which stay. Made once with
smollm2-135m; the files carry the result.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from helpers.klob.construction.known_facts import DEMONSTRATIONS, RecallQuestion, recalled
from helpers.klob.construction.sentence_templates import RelationTemplates, load_templates
from helpers.klob.construction.sentences import (
    Chain,
    Triple,
    consistency_example,
    dictionary_words,
    nonfactual_sentences,
    relevance_example,
    two_hop_chains,
)
from helpers.klob.examples import ConsistencyExample, RelevanceExample, save_examples
from helpers.models.language_model import LanguageModel
from helpers.models.load import load
from helpers.paths import PACKAGED
from helpers.records import without_slot
from helpers.triples.sources import packaged_triples, read_facts

FOLDER = PACKAGED / "klob"
COMPILED = FOLDER / "facts.tsv"
COUNTRY_RELATIONS = ("P17", "P30", "P36", "P37", "P38", "P140")
# Second hops that lead back to the chain's subject, or follow from the first alone.
EXCLUDED = (("P36", "P1376"), ("P1376", "P36"), ("P36", "P17"), ("P17", "P1376"))

Item = TypeVar("Item")


def mini_triples(*, cities: int = 400, seed: int = 0) -> list[Triple]:
    """Sorted triples to choose from.

    Args:
        cities: at most this many facts "city lies in country".
    """
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


def recalled_triples(
    language_model: LanguageModel,
    triples: Sequence[Triple],
    templates: Mapping[str, RelationTemplates],
    *,
    seed: int = 0,
) -> list[Triple]:
    """Triples whose first wording the model completes after eight demonstrations."""
    counts = Counter(relation for _, relation, _ in triples)
    usable = [t for t in triples if t[1] in templates and counts[t[1]] > DEMONSTRATIONS]
    questions = [
        RecallQuestion(without_slot(templates[relation].clozes(subject)[0]), answer, relation)
        for subject, relation, answer in usable
    ]
    found = recalled(language_model, questions, seed=seed)
    return [triple for triple, known in zip(usable, found, strict=True) if known]


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


def _relations(chain: Chain) -> tuple[str, str]:
    return chain[0][1], chain[1][1]


def main(
    model: Annotated[str, typer.Option(help="model whose recall filters")] = "smollm2-135m",
    per_relation: Annotated[int, typer.Option(help="most c examples of a relation")] = 50,
    per_pair: Annotated[int, typer.Option(help="most r examples of a pair of relations")] = 25,
    seed: Annotated[int, typer.Option(help="of every choice")] = 0,
    folder: Annotated[Path, typer.Option(help="where the files go")] = FOLDER,
) -> None:
    """Build klob-mini's three files."""
    templates = load_templates()
    triples = mini_triples(seed=seed)
    known = recalled_triples(load(model), triples, templates, seed=seed)
    typer.echo(f"{model} recalls {len(known)} of {len(triples)} facts")
    in_table = [t for t in known if templates[t[1]].table_3]
    facts = at_most(in_table, per_relation, lambda triple: triple[1], seed=seed)
    chains = two_hop_chains(known, templates, excluded=EXCLUDED)
    chosen = at_most(chains, per_pair, _relations, seed=seed)
    consistency = [consistency_example(triple, templates) for triple in facts]
    relevance = [relevance_example(chain, templates) for chain in chosen]
    clozes = [*(e.prompts[0] for e in consistency), *(e.chain_prompt for e in relevance)]
    unbiasedness = nonfactual_sentences(clozes, dictionary_words(), seed=seed)
    files: dict[str, Sequence[ConsistencyExample | RelevanceExample | str]] = {
        "c": consistency,
        "r": relevance,
        "u": unbiasedness,
    }
    for subtask, examples in files.items():
        save_examples(examples, folder / f"klob-mini-{subtask}.jsonl")
        typer.echo(f"klob-mini-{subtask}: {len(examples)} examples")


if __name__ == "__main__":
    typer.run(main)
