"""Edit prompts, paraphrases and locality prompts of a record."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from helpers.triples.graph import Graph
from helpers.triples.templates import SLOT, PromptTemplates, templates_of

Key = tuple[str, str]  # (subject, relation), the relation perhaps inverse
_TRIED = 12  # facts looked at for one locality prompt


def choose_prompts(
    templates: PromptTemplates, *, paraphrases: int, rng: random.Random
) -> tuple[str, tuple[str, ...]]:
    """A cloze to edit with, and other wordings (clozes or questions) to paraphrase it."""
    prompt = rng.choice(templates.clozes)
    others = [template for template in templates.all if template != prompt]
    return prompt, tuple(rng.sample(others, min(paraphrases, len(others))))


def mentions(text: str, label: str) -> bool:
    """Whether a label stands in a text as whole words, whatever the case."""
    label, text = label.casefold(), text.casefold()
    return label in text and re.search(rf"(?<!\w){re.escape(label)}(?!\w)", text) is not None


def facts_by_answer(graph: Graph, relations: Mapping[str, PromptTemplates]) -> dict[str, list[Key]]:
    """For every entity the facts it answers, of relations that have templates."""
    facts: dict[str, list[Key]] = defaultdict(list)
    for key in sorted(graph.answers):
        if key[1] in relations:
            for answer in graph.answers[key]:
                facts[answer].append(key)
    return dict(facts)


def locality_prompts(
    graph: Graph,
    templates: Mapping[str, PromptTemplates],
    by_answer: Mapping[str, Sequence[Key]],
    *,
    fact: Key,
    correct: Sequence[str],
    target_label: str,
    number: int,
    rng: random.Random,
) -> tuple[tuple[str, str], ...]:
    """Prompts about other subjects whose answer is one of O (PEAK, Section 5.1).

    Facts that o* answers too are left out. Among a few drawn at random the one with the fewest
    answers is used, so that the prompt asks for its answer and not for a dozen others.

    Args:
        by_answer: from ``facts_by_answer``.
        fact: subject and relation of the record, which are avoided.
        correct: identifiers of O.
        target_label: label of o*.
        number: the most prompts.
    """
    prompts: list[tuple[str, str]] = []
    subject = graph.label(fact[0]).casefold()
    for answer in rng.sample(list(correct), len(correct)):
        if len(prompts) == number:
            break
        label = graph.label(answer)
        known = by_answer.get(answer, ())
        drawn = sorted(
            rng.sample(known, min(_TRIED, len(known))), key=lambda key: len(graph.answers[key])
        )
        for other in drawn:
            prompt = _locality_prompt(graph, templates, other, rng)
            answers = {graph.label(a).casefold() for a in graph.answers[other]}
            outside = (
                graph.label(other[0]).casefold() != subject
                and target_label.casefold() not in answers
            )
            if outside and not mentions(prompt, label) and not mentions(prompt, target_label):
                prompts.append((prompt, label))
                break
    return tuple(prompts)


def _locality_prompt(
    graph: Graph, templates: Mapping[str, PromptTemplates], key: Key, rng: random.Random
) -> str:
    template = rng.choice(templates_of(templates, key[1]).clozes)
    return template.replace(SLOT, graph.label(key[0]))
