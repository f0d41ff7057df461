"""What all editors share: the protocol, work in batches or found once, the diagnostics of every edit."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from tqdm.auto import tqdm

from helpers.editing.app import App
from helpers.editing.edit import Edit
from helpers.editing.editors import EDITORS
from helpers.editing.icd import Icd
from helpers.editing.interventions import Delta
from helpers.editing.presets import Hyperparameters, WrapperHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.running import under_all
from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit, only_weights
from helpers.models import LanguageModel
from helpers.models.batching import run_halving, token_batches
from helpers.models.state import in_own_state

Item = TypeVar("Item", bound=Hashable)
Made = TypeVar("Made")
Memo = dict[tuple[str, Hashable], Any]


class Editor(ABC):
    """A method with its model and hyperparameters, which turns requests into edits.

    It never writes the model's weights. A subclass defines ``edit``; sequences, joint edits and edits on top
    of others follow from it, and are overridden where the method has its own.
    """

    name: str  # of its section in the params files
    version: ClassVar[int] = 1  # raise it when the same settings would give other edits
    grouped: ClassVar[bool] = False  # the bare prompt weighs as all contexts
    lm: LanguageModel
    hyperparameters: Hyperparameters
    app: App | None
    icd: Icd | None = None
    targets: str = "new"  # or "all" or "all-sum" (``rows.weighted_targets``)
    versioned_parts: tuple[
        str, ...
    ] = ()  # of an edit, in its settings: each counts as of ``version``

    def __init_subclass__(cls) -> None:
        """What makes edits runs in ``own_state``, in every editor."""
        super().__init_subclass__()
        for name in (
            "edit",
            "edit_jointly",
            "edit_sequentially",
            "edit_after",
            "edit_on",
            "after_turn",
        ):
            if name in vars(cls):
                setattr(cls, name, in_own_state(vars(cls)[name]))

    @classmethod  # noqa: B027 - most editors need nothing
    def check_request(cls, request: EditRequest) -> None:
        """Refuse a request that lacks what this editor needs; called before a model is loaded."""

    @property
    def method(self) -> str:
        """The name that fits its hyperparameters best, with APP, icd or targets, e.g. ``rome+app``."""
        values = self.hyperparameters.model_dump().items()
        rows = [row for row in EDITORS.values() if row.section == self.name]
        fitting = [row for row in rows if row.values.items() <= values]
        name = max(fitting, key=lambda row: len(row.values)).name if fitting else self.name
        if self.app:
            return f"{name}+app"
        if self.icd:
            return f"{name}+icd"
        return name if self.targets == "new" else f"{name}+{self.targets}"

    @property
    def sees_all(self) -> bool:
        """Whether a sequence's edit sees all requests at once (``EDITORS``): it has no turns."""
        rows = [row for row in EDITORS.values() if row.section == self.name]
        return any(row.information == "all" for row in rows)

    def as_trained(self, request: EditRequest) -> EditRequest:
        """The request as its objective reads it: an editor may omit training probes."""
        return request

    @abstractmethod
    def edit(self, requests: Sequence[EditRequest]) -> Sequence[Edit]:
        """One edit per request, each of the unedited model.

        An edit that was given up changes nothing, and its ``diagnostics`` have the ``failure``.

        Raises:
            RequestError: a request that cannot be tokenised, or is too long for the context.
        """

    @in_own_state
    def edit_jointly(self, requests: Sequence[EditRequest]) -> Edit:
        """One edit that makes all changes, in sequence where the editor cannot solve for all at once."""
        total: Edit = WeightEdit({})
        of_each_edit = []
        for so_far in self.edit_sequentially(requests):
            total = so_far
            of_each_edit.append(dict(so_far.diagnostics))
        return total.with_diagnostics(joint_diagnostics(of_each_edit))

    @in_own_state
    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[Edit]:
        """The cumulative edit after each request, with that request's diagnostics."""
        state = SequenceState()
        for request in requests:
            state = self.after_turn(state, [request])
            yield self.edit_of(state)

    @in_own_state
    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """The state of a sequence after one more turn, whose ``requests`` are edited together."""
        return SequenceState(self.edit_on(state.edit, requests))

    def edit_of(self, state: SequenceState) -> Edit:
        """All edits of a sequence so far as one."""
        return state.edit

    @in_own_state
    def edit_on(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """``earlier`` and what ``requests`` add to it, together; not always their chain (GRACE)."""
        return earlier.then(self.edit_after(earlier, requests))

    @in_own_state
    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """What ``requests`` add, together, to a model under ``earlier``, an edit of weights."""
        with under_all(self.lm, only_weights(earlier, f"{self.method} after another edit")):
            return self.edit(requests)[0] if len(requests) == 1 else self.edit_jointly(requests)

    def settings(self) -> dict[str, Any]:
        """All that its edits depend on, as plain JSON values: results are keyed by it."""
        versioned = [self.name, *self.versioned_parts]
        settings: dict[str, Any] = {
            "hyperparameters": self.hyperparameters.model_dump(mode="json"),
            "app": None,
        }
        if self.app is not None:
            versioned.append("app")
            settings["app"] = asdict(self.app)
        if self.icd is not None:
            versioned.append("icd")
            settings["icd"] = asdict(self.icd) | {"kinds": list(self.icd.kinds)}
        versions = dict.fromkeys(versioned, self.version)
        return {"editor": self.name, "versions": versions, **settings}


@dataclass
class Wrapper(Editor):
    """An editor that changes the edits of weights of ``base``: it shares its model, objective and targets."""

    base: Editor
    hyperparameters: WrapperHyperparameters

    def __post_init__(self) -> None:
        self.lm, self.app, self.icd = self.base.lm, self.base.app, self.base.icd
        self.targets = self.base.targets

    def as_trained(self, request: EditRequest) -> EditRequest:
        """The base editor's."""
        return self.base.as_trained(request)

    @abstractmethod
    def changed(self, edit: WeightEdit) -> WeightEdit:
        """The base editor's edit, made on the unedited model, as this editor leaves it."""

    def weights(self, edit: Edit) -> WeightEdit:
        """The base editor's edit, which must be one of weights."""
        return only_weights(edit, self.method)

    def edit(self, requests: Sequence[EditRequest]) -> list[WeightEdit]:
        """The base editor's independent edits, each changed."""
        return [self.changed(self.weights(edit)) for edit in self.base.edit(requests)]

    def edit_jointly(self, requests: Sequence[EditRequest]) -> WeightEdit:
        """The base editor's joint edit, changed."""
        return self.changed(self.weights(self.base.edit_jointly(requests)))

    def settings(self) -> dict[str, Any]:
        """Also the base editor's settings."""
        return super().settings() | {"base": self.base.settings()}


@dataclass
class Memoised(Editor):
    """Keeps an editor's edits of the unedited model in ``memo``, by the model and the editor's settings."""

    base: Editor
    memo: Memo = field(repr=False)

    def __post_init__(self) -> None:
        self.lm, self.app, self.icd = self.base.lm, self.base.app, self.base.icd
        self.targets = self.base.targets
        self.name, self.hyperparameters = self.base.name, self.base.hyperparameters

    def as_trained(self, request: EditRequest) -> EditRequest:
        """The base editor's."""
        return self.base.as_trained(request)

    def edit(self, requests: Sequence[EditRequest]) -> list[Edit]:
        """The base editor's independent edits, each made once, whatever it is asked for with."""
        return memoised(self.memo, self._key("edit"), requests, self.base.edit)

    def edit_jointly(self, requests: Sequence[EditRequest]) -> Edit:
        """The base editor's joint edit."""
        key = self._key("joint")
        return memoised(
            self.memo,
            key,
            [tuple(requests)],
            lambda groups: [self.base.edit_jointly(group) for group in groups],
        )[0]

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[Edit]:
        """The base editor's cumulative edits, kept off the device: they can be dense."""

        def make(groups: Sequence[tuple[EditRequest, ...]]) -> list[list[Edit]]:
            return [
                [edit.to("cpu") for edit in self.base.edit_sequentially(group)] for group in groups
            ]

        yield from memoised(self.memo, self._key("sequence"), [tuple(requests)], make)[0]

    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """The base editor's next turn; not kept."""
        return self.base.after_turn(state, requests)

    def edit_of(self, state: SequenceState) -> Edit:
        """The base editor's."""
        return self.base.edit_of(state)

    def edit_on(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """The base editor's edit on top of an earlier one; not kept."""
        return self.base.edit_on(earlier, requests)

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """What the base editor adds to an edited model; not kept."""
        return self.base.edit_after(earlier, requests)

    def settings(self) -> dict[str, Any]:
        """The base editor's, so that results are kept under its key."""
        return self.base.settings()

    def _key(self, mode: str) -> str:
        model = [self.lm.fingerprint, self.lm.dtype_name, str(self.lm.device)]
        return mode + json.dumps([model, self.settings()], sort_keys=True)


def with_memo(editor: Editor, memo: Memo) -> Editor:
    """The editor, or the base of RECT or PRUNE, with its edits in ``memo``: MEMIT edits once for all."""
    if isinstance(editor, Wrapper):
        return replace(editor, base=Memoised(editor.base, memo))
    return Memoised(editor, memo)


def memoised(
    memo: Memo | None,
    memo_key: str,
    items: Sequence[Item],
    make: Callable[[list[Item]], Iterable[Made]],
) -> list[Made]:
    """One value per item, by ``make`` where ``memo`` lacks it; ``memo_key`` is all else they depend on."""
    memo = {} if memo is None else memo
    missing = [item for item in dict.fromkeys(items) if (memo_key, item) not in memo]
    if missing:
        for item, value in zip(missing, make(missing), strict=True):
            memo[memo_key, item] = value
    return [memo[memo_key, item] for item in items]


def made_in_batches(
    lengths: Sequence[int],
    budget: int,
    make: Callable[[Sequence[int]], list[Made]],
    *,
    max_items: int | None = None,
    activity: str = "",
    padded: bool = True,
) -> list[Made]:
    """What ``make`` gives for each item, made for items of like ``lengths`` (tokens) together.

    ``budget`` are the tokens of a batch, padding included where items are ``padded``; ``max_items``
    are its items. Where memory runs out, ``make`` gets half of them.
    ``activity`` are words next to a progress bar; empty: no bar.
    """
    results: dict[int, Made] = {}
    with tqdm(total=len(lengths), unit="edit", desc=activity, disable=not activity) as bar:
        for similar_indices in token_batches(lengths, budget, padded=padded):
            batch_size = max_items or len(similar_indices)
            for first in range(0, len(similar_indices), batch_size):
                indices = similar_indices[first : first + batch_size]
                batch_results = [result for half in run_halving(indices, make) for result in half]
                results.update(zip(indices, batch_results, strict=True))
                bar.update(len(indices))
    return [results[index] for index in range(len(lengths))]


def diagnostics_of(
    lm: LanguageModel,
    deltas: Mapping[str, Delta],
    notes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What is recorded with an edit: ||Delta W||, ||Delta W|| / ||W|| and ``notes``."""
    norms = {name: delta.norm() for name, delta in deltas.items()}
    relative_norms = {name: norm / lm.weight_norm(name) for name, norm in norms.items()}
    return {
        "norm": norms,
        "relative_norm": relative_norms,
        "exploding": any(relative > 1 for relative in relative_norms.values()),
        **(notes or {}),
    }


def joint_diagnostics(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is recorded with a joint edit: that of each edit, and a failure where all failed."""
    diagnostics: dict[str, Any] = {"edits": list(records)}
    if records and all("failure" in record for record in records):
        diagnostics["failure"] = "no edit of the batch succeeded"
    return diagnostics
