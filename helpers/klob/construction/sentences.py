"""KLoB rebuilt: c from triples, r from two-hop chains, u from random dictionary words.

A *reconstruction*: the paper's triples and words are not published with its code. Triples come from
anywhere as (subject, relation, object) with Wikidata properties for relations; which of them a model
recalls is decided in ``helpers.klob.construction.known_facts``.
"""

from __future__ import annotations

import random
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from helpers.klob.construction.sentence_templates import RelationTemplates, TemplateError
from helpers.klob.examples import ConsistencyExample, RelevanceExample
from helpers.records import SLOT, without_slot

Triple = tuple[str, str, str]
Chain = tuple[Triple, Triple]


def consistency_example(
    triple: Triple, templates: Mapping[str, RelationTemplates]
) -> ConsistencyExample:
    """The fact in the three wordings of its relation.

    Raises:
        TemplateError: a relation without templates.
    """
    subject, relation, answer = triple
    wordings = _of(templates, relation)
    return ConsistencyExample(wordings.clozes(subject), (subject, wordings.label, answer))


def relevance_example(chain: Chain, templates: Mapping[str, RelationTemplates]) -> RelevanceExample:
    """The first fact in three wordings, and the chain in one.

    The chain's sentence is the second relation's first template about the *described* first object:
    "The capital of the country where Soppressata was created is _".

    Raises:
        TemplateError: a relation without templates, or a second fact about another subject.
    """
    (subject, first, bridge), (second_subject, second, answer) = chain
    if second_subject != bridge:
        raise TemplateError(
            f"no chain: the second fact is about {second_subject!r}, not {bridge!r}"
        )
    fact, hop = _of(templates, first), _of(templates, second)
    sentence = hop.clozes(fact.describe(subject))[0]
    return RelevanceExample(
        fact=(subject, fact.label, bridge),
        chain=(subject, fact.label, bridge, hop.label, answer),
        fact_prompts=fact.clozes(subject),
        chain_prompt=sentence[0].upper() + sentence[1:],  # a description may stand first
    )


def two_hop_chains(
    triples: Sequence[Triple], relations: Iterable[str], *, excluded: Iterable[tuple[str, str]] = ()
) -> list[Chain]:
    """All chains of two facts in which the first's object is the second's subject.

    Args:
        excluded: pairs of relations that lead back or say nothing (capital, then capital of).

    Returns:
        Sorted chains whose answer is neither the subject nor the bridge.
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
    """One random sentence per sentence of c and r, of as many words, in their order.

    Words and punctuation marks are drawn uniformly, so that a mark is rare: in the published file
    about one word in 5,000 is one.

    Raises:
        ValueError: no words.
    """
    if not words:
        raise ValueError("the word list is empty; see dictionary_words()")
    pool = [*words, *string.punctuation.replace(SLOT.strip(), "")]
    generator = random.Random(seed)
    return tuple(
        " ".join(generator.choices(pool, k=len(without_slot(cloze).split()))) + SLOT
        for cloze in clozes
    )


def dictionary_words() -> list[str]:
    """Webster's Second word list (``web2`` of the package english-words), sorted.

    The list the published KLoB-u was drawn from, through NLTK.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        from english_words import get_english_words_set
    except ImportError as error:
        raise ImportError("the word list of KLoB-u needs `pip install english-words`") from error
    return sorted(get_english_words_set(["web2"]))


def statistics(
    consistency: Sequence[ConsistencyExample],
    relevance: Sequence[RelevanceExample],
    unbiasedness: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Relations, mean length and examples per subtask, as in Table 1.

    Length counts words and the slot, which reproduces the paper's 10.1 on the published u; for r it
    is the chain sentence's (the paper does not say).
    """

    def mean_words(clozes: Sequence[str]) -> float:
        return sum(len(cloze.split()) for cloze in clozes) / max(1, len(clozes))

    relations_r = {label for example in relevance for label in example.chain[1::2]}
    return {
        "c": {
            "relations": len({example.knowledge[1] for example in consistency}),
            "average length": mean_words([p for e in consistency for p in e.prompts]),
            "examples": len(consistency),
        },
        "r": {
            "relations": len(relations_r),
            "average length": mean_words([e.chain_prompt for e in relevance]),
            "examples": len(relevance),
        },
        "u": {"average length": mean_words(unbiasedness), "examples": len(unbiasedness)},
    }


def relation_counts(consistency: Sequence[ConsistencyExample]) -> dict[str, int]:
    """Examples per relation label (Table 2), most frequent first."""
    return dict(Counter(example.knowledge[1] for example in consistency).most_common())


def _of(templates: Mapping[str, RelationTemplates], relation: str) -> RelationTemplates:
    if relation not in templates:
        raise TemplateError(
            f"relation {relation!r} has no templates; known: {', '.join(templates)}"
        )
    return templates[relation]
