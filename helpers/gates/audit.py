"""The audit of gates: facts stored together, and the stored fact that every prompt of theirs is nearest to.

No edit is made. All facts of a run are stored; each of their prompts, paraphrases and locality prompts is
compared with all of them. A row of a table is a prompt: the nearest fact (``entry``) and its ``nearness``,
in the key's own unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from helpers import models
from helpers.editing.demonstrations import BACKGROUND, digest
from helpers.editing.in_context import statements_of
from helpers.editing.masks import SHARE
from helpers.editing.request import EditRequest
from helpers.facts.fact import Fact
from helpers.facts.read import load_facts
from helpers.fetch import locate, official_files
from helpers.gates.keys import (
    LAYER_KEYS,
    WITHOUT_LAYER,
    WORD_KEYS,
    StoredFacts,
    layer_nearness,
    prompt_states,
    stored_facts,
    word_nearness,
)
from helpers.kept import file_digest
from helpers.models import LanguageModel
from helpers.params import check_range
from helpers.paths import REPOSITORY, run_name
from helpers.results.archive import About
from helpers.results.publish import Part, Publication
from helpers.results.store import Cases, Results, ResultsStore

DEPTHS = (0.4, 0.67, 0.9)  # of the layers, as shares of all blocks
GATES_VERSION = 1  # raise it when the same facts give other rows
_CHUNK = 32  # facts whose prompts are compared together: what an interruption can cost
NO_FACT = -1  # the entry of a prompt that nothing stored is near
_TYPES = {
    "case_id": "int32",
    "role": "category",
    "prompt_index": "int16",
    "layer": "int16",
    "entry": "int32",
    "nearness": "float32",
}


@dataclass(frozen=True)
class GateAudit:
    """Facts by number, stored together in gates of one model.

    Rows are kept in the ``results`` of the audit's settings, prompts of a few facts at a time.
    """

    lm: LanguageModel
    facts: Mapping[int, Fact]
    results: Results

    @property
    def layers(self) -> tuple[int, ...]:
        """Those whose keys are compared."""
        return layers_of(self.lm)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The rows of all prompts by all keys; those that are missing are made."""
        numbers = {number: number for number in self.facts}
        return Cases(numbers, _CHUNK).completed(self.results, self._made)

    def table(self, key: str) -> pd.DataFrame:
        """The rows of one key; ``layer`` is -1 where it has none."""
        of_key = self.rows[self.rows["key"] == key]
        return of_key[list(_TYPES)].astype(_TYPES).reset_index(drop=True)

    def prompts_of(self, numbers: Sequence[int]) -> pd.DataFrame:
        """All prompts of some facts that are compared: case_id, role, prompt_index and text, a row each."""
        rows = []
        for case_id in numbers:
            fact = self.facts[case_id]
            texts_by_role = {
                "edit": fact.prompts[:1],
                "paraphrase": fact.prompts[1 : 1 + len(fact.paraphrases)],
                "locality": fact.prompts[1 + len(fact.paraphrases) :],
            }
            for role, texts in texts_by_role.items():
                rows += [(case_id, role, index, text) for index, text in enumerate(texts)]
        return pd.DataFrame(rows, columns=["case_id", "role", "prompt_index", "text"])

    def nearness(self, prompts: Sequence[str]) -> dict[tuple[str, int], np.ndarray]:
        """How near prompts are to the facts [prompts, facts], by key and layer, from one pass of each."""
        by_key = {}
        states_by_layer = prompt_states(
            self.lm, prompts, self.layers, self._stored_facts.subject_keys
        )
        for layer, states in states_by_layer.items():
            for key, matrix in layer_nearness(self._stored_facts, layer, states).items():
                by_key[key, layer] = matrix
        statements = statements_of(self.lm, self._requests)
        subjects = [request.subject for request in self._requests]
        for key, matrix in word_nearness(statements, subjects, prompts).items():
            by_key[key, WITHOUT_LAYER] = matrix
        return by_key

    def _made(self, numbers: Sequence[int]) -> dict[str, pd.DataFrame]:
        """The rows of some facts' prompts."""
        prompts = self.prompts_of(numbers)
        fact_numbers = np.array([*self.facts])
        tables = []
        for (key, layer), matrix in self.nearness(prompts["text"].tolist()).items():
            nearest = matrix.argmax(1)  # the first of those that tie
            best_nearness = matrix.max(1)
            nothing = 0.0 if key in WORD_KEYS else -np.inf  # no word in common
            entries = np.where(best_nearness > nothing, fact_numbers[nearest], NO_FACT)
            rows = prompts.drop(columns="text").assign(
                key=key, layer=layer, entry=entries, nearness=best_nearness.astype(np.float32)
            )
            tables.append(rows)
        return {"scores": pd.concat(tables, ignore_index=True)}

    @property
    def _requests(self) -> list[EditRequest]:
        return [fact.request for fact in self.facts.values()]

    @cached_property
    def _stored_facts(self) -> StoredFacts:
        return stored_facts(self.lm, self._requests, self.layers)


def layers_of(lm: LanguageModel) -> tuple[int, ...]:
    """A model's layers at ``DEPTHS``."""
    return tuple(dict.fromkeys(int(depth * lm.layout.blocks) for depth in DEPTHS))


def drawn_facts(facts: Sequence[Fact], count: int, seed: int) -> dict[int, Fact]:
    """``count`` facts, or all where there are fewer, in random order by their place in the file."""
    check_range("facts", count, 1)
    numbers = np.random.default_rng(seed).permutation(len(facts))[:count]
    return {int(number): facts[number] for number in numbers}


def publication(params: Mapping[str, Any]) -> Publication:
    """A table for each key of a model's gates, on facts of the data set or file that the parameters name.

    Parameters: model, dtype, device, dataset, facts (how many), seed (of the draw) and results (the store).
    """
    dataset = params["dataset"]
    path = locate(official_files()[dataset]) if dataset in official_files() else Path(dataset)
    facts = drawn_facts(load_facts(path), params["facts"], params["seed"])
    lm = models.load(params["model"], dtype=params["dtype"], device=params["device"])
    data_name = dataset if dataset in official_files() else path.stem
    source = {
        "benchmark": "gates",
        "dataset": data_name,
        "checksum": f"sha256:{file_digest(path)}",
        **lm.identity,
        "gates_version": GATES_VERSION,
    }
    sample = {"facts": len(facts), "seed": params["seed"]}
    settings = {
        **sample,
        "layers": layers_of(lm),
        "blocks": lm.layout.blocks,
        "background": [digest(), BACKGROUND],
        "mask_share": SHARE,
    }
    store = ResultsStore(REPOSITORY / params["results"])
    audit = GateAudit(lm, facts, store.open({**source, **settings}))
    parts = []
    for key in (*LAYER_KEYS, *WORD_KEYS):
        settings_of_key = sample if key in WORD_KEYS else settings
        parts.append(Part(key, settings_of_key, partial(audit.table, key), cases=[*facts]))
    return Publication(run_name(lm.name, data_name), About(source, caption=sample), parts)
