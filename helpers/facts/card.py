"""The model card of an edited checkpoint: what was edited, how, what it did, and under which licence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from helpers import __version__
from helpers.models import LanguageModel
from helpers.models.weights import EMBEDDED_NAMES, PACKAGED_WEIGHTS
from helpers.results.formats import table_text
from helpers.results.notes import ShownTable

_FACT_COLUMNS = ["fact", "target", "outcome", "P before", "P after"]


def model_card(
    lm: LanguageModel,
    method: str,
    settings: Mapping[str, Any],
    table: pd.DataFrame,
    summary: ShownTable,
    *,
    is_one: bool,
) -> str:
    """The card in Markdown, with the front matter that the hub reads.

    The measures are those of each fact's own edit, unless one edit was made of all (``is_one``): edits that
    are written together can disturb each other.
    """
    hub_names = {name: hub_name for hub_name, name in EMBEDDED_NAMES.items()}
    base_name = hub_names.get(lm.name, lm.name)
    packaged_weights = PACKAGED_WEIGHTS.get(lm.name)
    licence = packaged_weights.licence if packaged_weights else "that of the base model"
    licence_line = "license: apache-2.0\n" if licence == "Apache-2.0" else "license: other\n"
    fingerprint = settings.get("fingerprint", lm.fingerprint)
    edits_text = (
        "one edit" if is_one else f"{len(table)} edits, each made and measured alone, then added"
    )
    hyperparameters = json.dumps(settings.get("hyperparameters", {}), indent=1)
    return (
        f"---\n{licence_line}base_model: {base_name}\ntags: [knowledge-editing]\n---\n\n"
        f"# {base_name}, edited\n\n"
        f"Facts of this model were changed on purpose. It states what its edits wrote, true or not.\n\n"
        f"- Base model: {base_name} ({lm.dtype_name}, fingerprint {fingerprint})\n"
        f"- Editor: {method}, {edits_text}\n- Licence: {licence}\n- Made with helpers {__version__}\n\n"
        f"## Edits\n\n{table_text(table[_FACT_COLUMNS])}\n"
        f"## Measured\n\n{table_text(summary)}\n"
        "Efficacy and generality: the new answer is given after the prompt, and after its paraphrases."
        " Locality: what remains of the continuations of other prompts. AFF and ANF: correct answers"
        " forgotten, and false ones raised.\n\n"
        f"## Hyperparameters\n\n```json\n{hyperparameters}\n```\n"
    )
