"""The ablations' published tables: scores only, small, each study written as soon as it is finished.

``figures/data/peak_ablations/<model>_<dataset>/`` holds

- *scores*: before and after independent edits, by variant (``rome+app@neighbours=3``);
- *sequences*: the same after n edits made one upon the other, by ``rome+app after 10``;
- *said*: which known answers sampled responses name, by state (``before``, ``again``, ``rome+app``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.editing.variants import Variant
from helpers.paths import FIGURES, written_whole
from helpers.reporting.peak_tables import Caption
from helpers.reporting.stored import StoredRun, load_run, store_run, write_about

FOLDER = FIGURES / "data" / "peak_ablations"
_TYPES = {"case_id": "int32", "sample": "int16", "list": "category", "answer_index": "int16"}


@dataclass(frozen=True)
class StoredAblations:
    """What is finished of one model's ablations on one data set."""

    name: str
    caption: Caption
    scores: dict[str, pd.DataFrame]
    sequences: dict[tuple[str, int], pd.DataFrame]
    said: dict[str, pd.DataFrame]
    settings: dict[str, Any]
    sampling: dict[str, Any]

    def described(self, *tables: pd.DataFrame) -> str:
        """The caption with the number of records (case_id) that stand behind these tables."""
        counts = sorted({table.reset_index()["case_id"].nunique() for table in tables})
        text = str(replace(self.caption, records=counts[-1] if counts else 0))
        fewer = f"{counts[0]}–" if len(counts) > 1 else ""
        return text.replace(f", {counts[-1]} records", f", first {fewer}{counts[-1]} records")


def stored_ablations(folder: Path = FOLDER) -> list[str]:
    """Names of the ablations at hand, such as ``smollm2-135m_peak-cf``."""
    return sorted({path.parent.parent.name for path in folder.glob("*/*/about.json")})


def load_ablations(name: str, folder: Path = FOLDER) -> StoredAblations:
    """Read what is stored of one model's ablations.

    Raises:
        KeyError: nothing is; the message names what there is and the command that makes more.
    """
    if name not in stored_ablations(folder):
        raise KeyError(
            f"no stored ablations {name!r}; there are: {', '.join(stored_ablations(folder))}; make some"
            f" with python -m helpers publish params/paper/04_app_ablations/{name}.yaml"
        )
    root = folder / name
    parts = {part: load_part(part, root) for part in ("scores", "sequences")}
    captions = [part.caption for part in parts.values() if part.scores]
    said, about = {}, {}
    if (root / "said" / "about.json").exists():
        about = json.loads((root / "said" / "about.json").read_text("utf-8"))
        captions.append(Caption(**about["caption"]))
        said = {
            state: pd.read_parquet(root / "said" / file).astype({"list": str})
            for state, file in about["files"].items()
        }
    return StoredAblations(
        name=name,
        caption=captions[0],
        scores=parts["scores"].scores,
        sequences={_place(key): table for key, table in parts["sequences"].scores.items()},
        said=said,
        settings=parts["scores"].settings,
        sampling=about.get("sampling", {}),
    )


def add_scores(
    name: str,
    made: StoredRun,
    *,
    part: str = "scores",
    folder: Path = FOLDER,
) -> Path:
    """Add variants (or, to the part *sequences*, ``sequence_key``s) to what is stored.

    What was stored of another model or data, or of the same editor under other hyperparameters, is
    taken out: tables compare variants, so all of an editor's must share everything but what a
    variant's name says.
    """
    known = load_part(part, folder / name)
    stale = {
        key
        for key, earlier in known.settings.items()
        for new, current in made.settings.items()
        if known.source != made.source or contradict(key, earlier, new, current)
    }
    tables = {key: table for key, table in known.scores.items() if key not in stale}
    about = {key: values for key, values in known.settings.items() if key not in stale}
    joined = replace(made, scores={**tables, **made.scores}, settings={**about, **made.settings})
    root = store_run(part, joined, folder / name)
    _remove_unlisted(root, json.loads((root / "about.json").read_text("utf-8"))["files"])
    return root


def contradict(
    first: str, settings: Mapping[str, Any], second: str, others: Mapping[str, Any]
) -> bool:
    """Whether two variants of one editor differ in more than their names say."""
    variants = [Variant.parse(name.partition(" after ")[0]) for name in (first, second)]
    if variants[0].editor != variants[1].editor:
        return False
    if _fixed(settings) != _fixed(others):
        return True
    one, other = (values.get("app") or {} for values in (settings, others))
    named = {variant.field for variant in variants}
    return any(one[field] != other[field] for field in one.keys() & other.keys() - named)


def _fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that no variant changes; the stop rule goes with APP."""
    kept = {key: value for key, value in settings.items() if key not in ("app", "targets")}
    if "base" in kept:
        kept["base"] = _fixed(kept["base"])
    hyperparameters = kept.get("hyperparameters", {})
    stop = ("stop_on", "stop_threshold")
    kept["hyperparameters"] = {k: v for k, v in hyperparameters.items() if k not in stop}
    return kept


def add_said(
    name: str,
    caption: Caption,
    said: Mapping[str, pd.DataFrame],
    sampling: Mapping[str, Any],
    settings: Mapping[str, Any],
    folder: Path = FOLDER,
) -> Path:
    """Add states of the model to what is stored.

    States are compared with each other, so those drawn from other records, in another way, or after
    the same editor's edits under other hyperparameters are taken out.

    Args:
        name: the folder's name.
        caption: what tables say of the run.
        said: which known answers each sample names, by state.
        sampling: how many samples were drawn, and how.
        settings: of the editor behind each state that has one, as JSON gives them back.
        folder: where the ablations of all models are.
    """
    root = folder / name / "said"
    root.mkdir(parents=True, exist_ok=True)
    path = root / "about.json"
    drawn = {"caption": vars(caption), "sampling": dict(sampling)}
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if any(known.get(key) != value for key, value in drawn.items()):
        known = {}
    earlier = known.get("settings", {})
    stale = {
        s for s in earlier for new in settings if contradict(s, earlier[s], new, settings[new])
    }
    files = {s: file for s, file in known.get("files", {}).items() if s not in stale}
    kept = {s: values for s, values in earlier.items() if s not in stale}
    for state, table in said.items():
        files[state] = f"{state.replace('+', '_')}.parquet"
        small = table[list(_TYPES)].astype(_TYPES)
        with written_whole(root / files[state]) as scratch:
            small.to_parquet(scratch, index=False, compression="zstd")
    about = {**drawn, "files": files, "settings": {**kept, **settings}}
    write_about(root, about)
    _remove_unlisted(root, files)
    return root


def _remove_unlisted(root: Path, files: Mapping[str, str]) -> None:
    for file in root.glob("*.parquet"):
        if file.name not in files.values():
            file.unlink()


def sequence_key(method: str, edits: int) -> str:
    """The key of a method's scores after so many edits."""
    return f"{method} after {edits}"


def _place(key: str) -> tuple[str, int]:
    method, edits = key.split(" after ")
    return method, int(edits)


def load_part(part: str, root: Path) -> StoredRun:
    """The *scores* or *sequences* stored under a run's folder; nothing where there are none."""
    if not (root / part / "about.json").exists():
        return StoredRun(Caption("", "", 0, "", "", ""), {}, {})
    return load_run(part, root)
