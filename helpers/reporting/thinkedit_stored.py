"""ThinkEdit's published result tables, and what they say about themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from helpers.data.knowgic import LAYOUTS
from helpers.paths import FIGURES, file_name

DRAWN = ("samples", "temperature", "seed", "max_new_tokens", "first_line")  # columns of samples
_MADE = ["layout", "preset", "dtype", "device"]


class MissingScoresError(FileNotFoundError):
    """Result tables that have not been computed yet; the message says how."""


def stored(kind: str, models: Sequence[str], folder: Path = FIGURES / "data") -> pd.DataFrame:
    """Published result tables of several models.

    Args:
        kind: "exact", "sampled", "along" or "texts".
        models: model names.
        folder: where the tables are.

    Raises:
        MissingScoresError: a table is not there.
    """
    paths = [folder / f"06_thinkedit_{kind}_{file_name(model)}.parquet" for model in models]
    for path, model in zip(paths, models, strict=True):
        if not path.exists():
            raise MissingScoresError(
                f"{path} is missing: make it with python -m helpers.publishing.thinkedit"
                f" --model {model} --method … --publish"
            )
    return pd.concat([pd.read_parquet(path) for path in paths], ignore_index=True)


def caption(scores: pd.DataFrame, about: str = "") -> str:
    """What stored scores are of: models, edits, preset, dtype and device, and how samples were drawn.

    Args:
        scores: stored scores.
        about: what else there is to say, e.g. estimator and mode.
    """
    drawn = [name for name in DRAWN if name in scores]
    edits = scores.groupby("model")["case_id"].transform("nunique")
    made = scores.assign(edits=edits).drop_duplicates(["model", *_MADE, "edits", *drawn])
    lines = []
    for (layout, preset, dtype, device, count, *how), part in made.groupby(
        [*_MADE, "edits", *drawn], sort=False
    ):
        source = f"KnowGIC {layout}" if layout in LAYOUTS else f"edits of {layout}"
        said = [
            f"ours: {', '.join(part['model'].unique())}",
            source,
            f"{count} edits",
            f"preset {preset}",
            f"{dtype} on {device}",
            *(f"{name} {value}" for name, value in zip(drawn, how, strict=True)),
            *([about] if about else []),
        ]
        lines.append(", ".join(said))
    return "\n".join(lines)


def stored_chains(folder: Path = FIGURES / "data") -> pd.DataFrame:
    """Which facts make up which chains, published beside the scores."""
    path = folder / "06_thinkedit_chains.parquet"
    if not path.exists():
        raise MissingScoresError(f"{path} is missing: evaluate a model with --publish first")
    return pd.read_parquet(path)
