"""Settings in the form they had before they named the version of everything that takes part.

Results made then are still what today's code makes, as long as no version was raised: their settings,
brought into today's form, have today's key.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SPREADING = ("memit", "alphaedit")
_LOSS = ("ft", "mend")
_ROME = ("rome", "vector", "contexts", "second_moments")


def with_versions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in today's form, with every version that took part at its first number.

    Args:
        settings: of an editor, of a run, or of both; those in today's form come back unchanged.
    """
    current = dict(settings)
    if "scoring_version" in settings and "scored_by" not in settings:
        drawn = settings.get("mode") == "said" or settings.get("estimator", "exact") != "exact"
        current["scored_by"] = {"responses" if drawn else "answers": 1}
    if "versions" in settings or "version" not in settings:
        return current
    if "facts" in settings:  # KLoB's edits at every layer, whose version is their own
        return {**current, "versions": dict.fromkeys(_ROME, 1), "scored_by": {"answers": 1}}
    if "editor" in settings:
        current["versions"] = dict.fromkeys(_parts(settings, current.pop("version")), 1)
    if "base" in settings:
        current["base"] = with_versions(settings["base"])
    return current


def carry_over(folder: Path, key: Callable[[Mapping[str, Any]], str]) -> None:
    """Fill a new folder of a store from the one whose settings, in today's form, have its key.

    Files are linked, so that a run of the earlier version that is still going is not disturbed.

    Args:
        folder: not there yet; its name is the key.
        key: from settings to their key.
    """
    for path in folder.parent.glob("*/settings.json"):
        try:
            earlier = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            continue  # whoever opens that folder is told
        current = with_versions(earlier)
        if current != earlier and key(current) == folder.name:
            carry_folder(path.parent, folder)


def carry_folder(earlier: Path, folder: Path) -> None:
    """Fill a new folder of a store with all of another but its settings."""
    scratch = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    scratch.mkdir()
    for file in earlier.glob("[!.]*"):  # not what is being written just now
        if file.name != "settings.json":
            _link(file, scratch / file.name)
    try:
        scratch.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(scratch)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # the file system knows no links
        shutil.copyfile(source, target)


def _parts(settings: Mapping[str, Any], version: int) -> list[str]:
    """What took part in an editor's updates. Its version was 2 with the averaged key and the norm."""
    editor = settings["editor"]
    parts = {
        editor: True,
        "app": settings["app"] is not None,
        "vector": "v_lr" in settings["hyperparameters"],
        "contexts": "contexts" in settings,
        "second_moments": bool(settings.get("second_moments")),
        "spreading": editor in _SPREADING,
        "normed": editor in _SPREADING and version == 2,
        "r-rome": editor == "rome" and version == 2,
        "loss": editor in _LOSS,
        "attributions": editor == "kn",
    }
    return [part for part, took_part in parts.items() if took_part]
