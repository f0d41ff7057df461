"""The protocol of all editors, how they work in batches, and the diagnostics every edit carries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tqdm.auto import tqdm

from helpers.editing.app import App
from helpers.editing.editors import EDITORS
from helpers.editing.overlay import overlay_all
from helpers.editing.presets import Hyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import Delta, Update
from helpers.models.batching import run_halving, token_batches
from helpers.models.language_model import LanguageModel

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
        rows = [
            e for e in EDITORS.values() if e.section == self.name and e.values.items() <= values
        ]
        name = max(rows, key=lambda row: len(row.values)).name if rows else self.name
        return name + ("+app" if self.app else "" if self.targets == "new" else f"+{self.targets}")

    @abstractmethod
    def edit(self, requests: Sequence[EditRequest]) -> list[Update]:
        """One independent update per request, each computed from the unedited model.

        An edit that fails (non-finite loss) yields an empty update whose diagnostics say why; the
        others are not affected.
        """

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Update:
        """One update that makes all edits together; its diagnostics list each under ``edits``.

        An editor that cannot solve for all at once (as MEMIT and AlphaEdit do) makes them in sequence.
        """
        total, records = Update({}), []
        for total in self.edit_sequentially(requests):
            records.append(dict(total.diagnostics))
        return Update(total.deltas, joint_diagnostics(records))

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[Update]:
        """The cumulative update after each edit, made under the overlay of the ones before.

        Its diagnostics are those of the edit just made.
        """
        total = Update({})
        for request in requests:
            total = total.plus(self.edit_after(total, [request]))
            yield total

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """What ``requests`` add, together, to a model already edited by ``earlier``."""
        with overlay_all(self.language_model, earlier):
            return self.edit(requests)[0] if len(requests) == 1 else self.edit_jointly(requests)

    def parts(self) -> tuple[str, ...]:
        """Parts of an edit that its settings name; each counts as of the editor's ``version``."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Everything about this editor that its updates depend on, as plain JSON values.

        Results are keyed by it and tables print it; editors that read more (context templates,
        statistics, targets) add theirs.
        """
        parts = (self.name, *self.parts(), *(["app"] if self.app else []))
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
    """What ``make`` gives for each item, made for items of like length together.

    Args:
        lengths: tokens of each item.
        budget: tokens of a batch, padding included.
        make: one result for each of the chosen items; where memory runs out, it gets half of them.
        most: items of a batch; None: as many as their tokens allow.
        activity: words next to a progress bar; empty: no bar.
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
    """What is recorded with an edit: norms, ``relative_norm`` = ||Delta W|| / ||W||, and its vector.

    ``exploding`` flags a relative norm above ``EXPLODING``.
    """
    norms = {name: delta.norm() for name, delta in deltas.items()}
    relative = {name: norm / language_model.weight_norm(name) for name, norm in norms.items()}
    record: dict[str, Any] = {
        "norm": norms,
        "relative_norm": relative,
        "exploding": any(value > EXPLODING for value in relative.values()),
        **(extra or {}),
    }
    if vector is not None:
        record |= {
            "steps": vector.steps,
            "losses": vector.losses,
            "delta_norm": float(vector.delta.norm()),
            "initial_norm": float(vector.initial.norm()),
        }
    return record


def joint_diagnostics(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is recorded with a joint update: that of each edit, and a failure where all failed."""
    lost = bool(records) and all("failure" in record for record in records)
    return {"edits": list(records)} | (
        {"failure": "no edit of the batch succeeded"} if lost else {}
    )


def failed(vector: Vector, reason: str | None = None) -> Update:
    """An empty update that says why its edit was given up; default: the vector's own failure."""
    reason = reason or vector.failure or "unknown"
    return Update({}, {"failure": reason, "steps": vector.steps, "losses": vector.losses})
