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
from helpers.facts.fact import Fact
from helpers.facts.read import load_facts
from helpers.fetch import locate, official_files
from helpers.gates.keys import (
    LAYER_KEYS,
    WITHOUT_LAYER,
    WORD_KEYS,
    layer_nearness,
    prompt_states,
    stored_facts,
    word_nearness,
)
from helpers.kept import file_digest
from helpers.models import LanguageModel
from helpers.params import check_range
from helpers.paths import run_name
from helpers.results.archive import About
from helpers.results.publish import Part, Publication

DEPTHS = (0.4, 0.67, 0.9)  # of the layers, as shares of all blocks
GATES_VERSION = 1  # raise it when the same facts give other rows
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
    """Facts by number, stored together in gates of one model."""

    lm: LanguageModel
    facts: Mapping[int, Fact]

    @property
    def layers(self) -> tuple[int, ...]:
        """Those at ``DEPTHS``."""
        return tuple(dict.fromkeys(int(depth * self.lm.layout.blocks) for depth in DEPTHS))

    @cached_property
    def prompts(self) -> pd.DataFrame:
        """All prompts that are compared: case_id, role, prompt_index and text, a row each."""
        rows = []
        for case_id, fact in self.facts.items():
            texts_by_role = {
                "edit": fact.prompts[:1],
                "paraphrase": fact.prompts[1 : 1 + len(fact.paraphrases)],
                "locality": fact.prompts[1 + len(fact.paraphrases) :],
            }
            for role, texts in texts_by_role.items():
                rows += [(case_id, role, index, text) for index, text in enumerate(texts)]
        return pd.DataFrame(rows, columns=["case_id", "role", "prompt_index", "text"])

    def table(self, key: str) -> pd.DataFrame:
        """The rows of all prompts by one key; ``layer`` is -1 where it has none."""
        if key in WORD_KEYS:
            return self._rows(WITHOUT_LAYER, self._word_nearness[key], nothing=0.0)
        tables = [self._rows(layer, by_key[key]) for layer, by_key in self._layer_nearness.items()]
        return pd.concat(tables, ignore_index=True)

    def _rows(self, layer: int, nearness: np.ndarray, nothing: float = -np.inf) -> pd.DataFrame:
        """Rows of a matrix [prompts, facts], in which ``nothing`` means that a fact is not near at all."""
        nearest = nearness.argmax(1)  # the first of those that tie
        best_nearness = nearness.max(1)
        numbers = np.array([*self.facts])
        entries = np.where(best_nearness > nothing, numbers[nearest], NO_FACT)
        rows = self.prompts.drop(columns="text").assign(
            layer=layer, entry=entries, nearness=best_nearness
        )
        return rows.astype(_TYPES)

    @cached_property
    def _layer_nearness(self) -> dict[int, dict[str, np.ndarray]]:
        """By layer and key, from one pass over everything that is stored and every prompt."""
        requests = [fact.request for fact in self.facts.values()]
        stored = stored_facts(self.lm, requests, self.layers)
        states_by_layer = prompt_states(
            self.lm, self.prompts["text"].tolist(), self.layers, stored.subject_keys
        )
        return {
            layer: layer_nearness(stored, layer, states)
            for layer, states in states_by_layer.items()
        }

    @cached_property
    def _word_nearness(self) -> dict[str, np.ndarray]:
        facts = self.facts.values()
        statements = statements_of(self.lm, [fact.request for fact in facts])
        subjects = [fact.subject for fact in facts]
        return word_nearness(statements, subjects, self.prompts["text"].tolist())


def drawn_facts(facts: Sequence[Fact], count: int, seed: int) -> dict[int, Fact]:
    """``count`` facts, or all where there are fewer, in random order by their place in the file."""
    check_range("facts", count, 1)
    numbers = np.random.default_rng(seed).permutation(len(facts))[:count]
    return {int(number): facts[number] for number in numbers}


def publication(params: Mapping[str, Any]) -> Publication:
    """A table for each key of a model's gates, on facts of the data set or file that the parameters name.

    Parameters: model, dtype, device, dataset, facts (how many) and seed (of the draw).
    """
    dataset = params["dataset"]
    path = locate(official_files()[dataset]) if dataset in official_files() else Path(dataset)
    facts = drawn_facts(load_facts(path), params["facts"], params["seed"])
    lm = models.load(params["model"], dtype=params["dtype"], device=params["device"])
    audit = GateAudit(lm, facts)
    data_name = dataset if dataset in official_files() else path.stem
    source = {
        "benchmark": "gates",
        "dataset": data_name,
        "checksum": f"sha256:{file_digest(path)}",
        **lm.identity,
        "gates_version": GATES_VERSION,
    }
    drawn = {"facts": len(facts), "seed": params["seed"]}
    layer_settings = {
        "layers": audit.layers,
        "blocks": lm.layout.blocks,
        "background": [digest(), BACKGROUND],
        "mask_share": SHARE,
    }
    parts = []
    for key in (*LAYER_KEYS, *WORD_KEYS):
        settings = drawn if key in WORD_KEYS else {**drawn, **layer_settings}
        parts.append(Part(key, settings, partial(audit.table, key), cases=[*facts]))
    return Publication(run_name(lm.name, data_name), About(source, caption=drawn), parts)
