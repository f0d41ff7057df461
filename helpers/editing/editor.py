"""What all editors share: the protocol, work in batches, and the diagnostics of every edit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tqdm.auto import tqdm

from helpers.editing.app import App
from helpers.editing.editors import EDITORS
from helpers.editing.presets import Hyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import Delta, Update, overlay_all
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches

if TYPE_CHECKING:
    from helpers.editing.vector import Vector

Made = TypeVar("Made")

EXPLODING = 1.0  # ||Delta W|| / ||W|| above which an update is flagged


class Editor(ABC):
    """Turns requests into updates; never writes the model's weights."""

    name: ClassVar[str]  # of its section in the params files
    version: ClassVar[int] = 1  # raise it when the same settings would give other updates
    grouped: ClassVar[bool] = False  # the bare prompt weighs as all contexts
    language_model: LanguageModel
    hyperparameters: Hyperparameters
    app: App | None
    targets: str = "new"  # see ``rows.TARGETS``

    @property
    def method(self) -> str:
        """The name that fits its hyperparameters best, with APP or targets, e.g. ``rome+app``."""
        values = self.hyperparameters.model_dump().items()
        rows = [row for row in EDITORS.values() if row.section == self.name]
        fitting = [row for row in rows if row.values.items() <= values]
        name = max(fitting, key=lambda row: len(row.values)).name if fitting else self.name
        return name + ("+app" if self.app else "" if self.targets == "new" else f"+{self.targets}")

    @abstractmethod
    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One update per request, each of the unedited model; of a failed edit an empty one."""

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """One update that makes all edits, in sequence where the editor cannot solve for all at once."""
        total, records = Update({}), []
        for total in self.edit_sequentially(requests):
            records.append(dict(total.diagnostics))
        return Update(total.deltas, joint_diagnostics(records))

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[Update]:
        """The cumulative update after each edit, with that edit's diagnostics."""
        total = Update({})
        for request in requests:
            total = total.plus(self.edit_after(total, [request]))
            yield total

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """What ``requests`` add, together, to a model already edited by ``earlier``."""
        with overlay_all(self.language_model, earlier):
            return self.edit(requests)[0] if len(requests) == 1 else self.edit_jointly(requests)

    def _parts(self) -> tuple[str, ...]:
        return ()  # of an edit, that its settings name: each counts as of the editor's ``version``

    def settings(self) -> dict[str, Any]:
        """All that its updates depend on, as plain JSON values: results are keyed by it."""
        parts = (self.name, *self._parts(), *(["app"] if self.app else []))
        return {
            "editor": self.name,
            "versions": dict.fromkeys(parts, self.version),
            "hyperparameters": self.hyperparameters.model_dump(mode="json"),
            "app": None if self.app is None else asdict(self.app),
        }


def made_in_batches(
    lengths: Sequence[int],
    budget: int,
    make: Callable[[Sequence[int]], list[Made]],
    *,
    most: int | None = None,
    activity: str = "",
) -> list[Made]:
    """What ``make`` gives for each item, made for items of like ``lengths`` (tokens) together.

    ``budget`` are the tokens of a batch, padding included, ``most`` its items. Where memory runs out,
    ``make`` gets half of them. ``activity`` are words next to a progress bar; empty: no bar.
    """
    made: dict[int, Made] = {}
    with tqdm(total=len(lengths), unit="edit", desc=activity, disable=not activity) as bar:
        for alike in token_batches(lengths, budget):
            size = most or len(alike)
            for start in range(0, len(alike), size):
                batch = alike[start : start + size]
                results = [one for part in run_halving(batch, make) for one in part]
                made.update(zip(batch, results, strict=True))
                bar.update(len(batch))
    return [made[place] for place in range(len(lengths))]


def diagnostics_of(
    language_model: LanguageModel,
    deltas: Mapping[str, Delta],
    vector: Vector | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What is recorded with an edit: ||Delta W||, ||Delta W|| / ||W||, ``extra`` and its vector."""
    norms = {name: delta.norm() for name, delta in deltas.items()}
    relative = {name: norm / language_model.weight_norm(name) for name, norm in norms.items()}
    record: dict[str, Any] = {
        "norm": norms,
        "relative_norm": relative,
        "exploding": any(value > EXPLODING for value in relative.values()),
        **(extra or {}),
    }
    if vector is not None:
        record |= {"steps": vector.steps, "losses": vector.losses}
    return record


def joint_diagnostics(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is recorded with a joint update: that of each edit, and a failure where all failed."""
    noted: dict[str, Any] = {"edits": list(records)}
    if records and all("failure" in record for record in records):
        noted["failure"] = "no edit of the batch succeeded"
    return noted


def failed(vector: Vector, reason: str | None = None) -> Update:
    """An empty update that states why its edit was given up; default: the vector's own failure."""
    reason = reason or vector.failure or "unknown"
    return Update({}, {"failure": reason, "steps": vector.steps, "losses": vector.losses})
