"""Published result tables: scores only, small, from which figures are redrawn without a model.

``figures/data/peak/<model>_<dataset>/`` holds one parquet file per method and ``about.json``, which
says model, data set, number of records, preset, dtype and device, each method's settings, and the
fingerprint and checksum of the model and data behind the scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.paths import FIGURES, file_name, written_whole
from helpers.reporting.peak_tables import Caption

_FOLDER = FIGURES / "data" / "peak"
_TYPES = {
    "case_id": "int32",
    "role": "category",
    "prompt_index": "int8",
    "list": "category",
    "answer_index": "int16",
    "tokens": "int16",
    "sum_before": "float32",
    "sum_after": "float32",
}


@dataclass(frozen=True)
class StoredRun:
    """One model on one data set: scores before and after by method, and how they were made.

    ``settings`` are each method's; ``source`` names model and data by fingerprint and checksum.
    """

    caption: Caption
    scores: dict[str, pd.DataFrame]
    settings: dict[str, Any]
    source: dict[str, Any] = field(default_factory=dict)


def stored_runs(folder: Path = _FOLDER) -> list[str]:
    """Names of the runs at hand, such as ``smollm2-135m_peak-cf``."""
    return sorted(path.parent.name for path in folder.glob("*/about.json"))


def load_run(name: str, folder: Path = _FOLDER) -> StoredRun:
    """Read one stored run, methods in the order they were stored.

    Raises:
        KeyError: no such run; the message names those at hand.
    """
    path = folder / file_name(name) / "about.json"
    if not path.exists():
        raise KeyError(f"no stored run {name!r}; there are: {', '.join(stored_runs(folder))}")
    about = json.loads(path.read_text("utf-8"))
    scores = {}
    for label, file in about["files"].items():
        table = pd.read_parquet(path.parent / file)
        scores[label] = table.astype(
            {"role": str, "list": str, "sum_before": float, "sum_after": float}
        )
    caption = Caption(**about["caption"])
    return StoredRun(caption, scores, about["settings"], about.get("source", {}))


def store_run(name: str, run: StoredRun, folder: Path = _FOLDER) -> Path:
    """Write a run's score tables, log-probabilities in single precision."""
    root = folder / file_name(name)
    root.mkdir(parents=True, exist_ok=True)
    files = {label: f"{label.lower().replace('+', '_')}.parquet" for label in run.scores}
    for label, table in run.scores.items():
        small = table[list(_TYPES)].astype(_TYPES)
        with written_whole(root / files[label]) as scratch:
            small.to_parquet(scratch, index=False, compression="zstd")
    about = {
        "caption": asdict(run.caption),
        "files": files,
        "source": run.source,
        "settings": run.settings,
    }
    write_about(root, about)
    return root


def write_about(root: Path, about: Mapping[str, Any]) -> None:
    """Write what a folder of tables says about itself, whole."""
    text = json.dumps(about, indent=1, ensure_ascii=False)
    with written_whole(root / "about.json") as scratch:
        scratch.write_text(text + "\n", "utf-8")
