"""A batch of edit rows ready to run again and again: cached prefixes, suffix tokens, loss readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from helpers.editing.app import AnswerScores
from helpers.editing.readers import AnswerReaders, Reading, Readout
from helpers.editing.request import RequestError
from helpers.editing.rows import EditRow
from helpers.models.forest import PackedRows
from helpers.models.forward import Mask, hidden_states, prefill, resumed
from helpers.models.hooks import output_hooks
from helpers.models.language_model import LanguageModel
from helpers.models.past import Past
from helpers.models.trace import record_inputs


@dataclass(frozen=True, kw_only=True)
class Places:
    """Columns that are edited or read: of each edit its row and column, and one of every row [rows]."""

    edit_row: Tensor
    edit_column: Tensor
    bare: Tensor  # the bare prompt's subject
    kl: Tensor  # the KL prompt's

    def keep(self, index: Tensor, new_row: Tensor) -> Places:
        """Follow a selection of rows; ``new_row`` [rows] is -1 for those that left."""
        stays = new_row[self.edit_row] >= 0
        return Places(
            edit_row=new_row[self.edit_row[stays]],
            edit_column=self.edit_column[stays],
            bare=self.bare[index],
            kl=self.kl[index],
        )


@dataclass(kw_only=True)
class EditedBatch:
    """Rows of edits split into constant tokens (cached as ``past``) and active ones (run each step).

    Shapes: ``active`` has ids, positions [rows, active] and visible [rows, active, constant + active];
    ``entering`` [rows, active, hidden] is the input of block ``layer``, below which nothing changes;
    ``lengths`` counts each row's active and constant tokens; ``initial`` [rows, hidden] is the hooked
    module's output at the bare prompt's subject in the first forward pass, ``reference`` that pass's
    reading. ``mask``, ``edit_place`` (in rows x active) and ``readout`` are what every pass shares,
    made anew when rows leave.
    """

    language_model: LanguageModel
    module: str
    layer: int
    past: Past
    entering: Tensor
    active: PackedRows
    places: Places
    readers: AnswerReaders
    lengths: tuple[Tensor, Tensor]
    initial: Tensor = field(default_factory=lambda: torch.empty(0))
    reference: Reading | None = None
    mask: Mask = field(init=False)
    edit_place: Tensor = field(init=False)
    readout: Readout = field(init=False)

    def __post_init__(self) -> None:
        """Make what every pass of these rows shares."""
        active, places = self.active, self.places
        rows, columns = active.ids.shape
        self.mask = Mask.of(
            self.language_model, active.positions, active.visible, self.past.positions
        )
        self.edit_place = places.edit_row * columns + places.edit_column
        self.readout = Readout.of(self.readers, rows, columns, places.kl)

    @classmethod
    def build(
        cls, language_model: LanguageModel, rows: Sequence[EditRow], module: str
    ) -> EditedBatch:
        """Pack the rows, run once what no edit of ``module`` changes, prepare the readers."""
        device = language_model.device
        layout = _lay_out(language_model, rows)
        ids, positions, visible = (
            torch.from_numpy(array).to(device)
            for array in (layout.ids, layout.positions, layout.visible)
        )
        width, columns = layout.constant, layout.columns
        with torch.no_grad():
            _, past = prefill(
                language_model, ids[:, :width], positions[:, :width], visible[:, :width, :width]
            )
            layer = language_model.layout.layer_of(module)
            block = language_model.layout.block(layer)
            with record_inputs(language_model, [block]) as seen:
                hidden_states(
                    language_model, ids[:, width:], positions[:, width:], visible[:, width:], past
                )
            entering = seen[block]
        edits = [(r, int(columns[r, n])) for r, row in enumerate(rows) for n in _edited_nodes(row)]
        edit_row, edit_column = torch.tensor(edits, device=device).unbind(1)
        rows_index = np.arange(len(rows))
        bare = columns[rows_index, [row.bare_node for row in rows]]
        kl = columns[rows_index, [row.kl_node for row in rows]]
        lengths = [_active_and_constant(row) for row in rows]
        return cls(
            language_model=language_model,
            module=module,
            layer=layer,
            past=past,
            entering=entering,
            active=PackedRows(ids[:, width:], positions[:, width:], visible[:, width:]),
            places=Places(
                edit_row=edit_row,
                edit_column=edit_column,
                bare=torch.from_numpy(bare).to(device),
                kl=torch.from_numpy(kl).to(device),
            ),
            readers=AnswerReaders.build(rows, columns, device),
            lengths=tuple(torch.tensor(lengths, device=device).unbind(1)),  # type: ignore[arg-type]
        )

    def forward(self, delta: Tensor) -> Tensor:
        """Final hidden states [rows, active, hidden] with ``delta`` [rows, hidden] added."""

        def adding(_: Tensor, output: Tensor) -> Tensor:
            if not self.initial.numel():
                rows = torch.arange(len(delta), device=delta.device)
                self.initial = output[rows, self.places.bare].detach().float()
            added = delta.index_select(0, self.places.edit_row).to(output.dtype)
            return output.flatten(0, 1).index_add(0, self.edit_place, added).view_as(output)

        with (
            output_hooks(self.language_model, {self.module: adding}),
            resumed(self.language_model, self.layer, self.entering),
        ):
            active = self.active
            return hidden_states(
                self.language_model, active.ids, active.positions, self.mask, self.past
            )

    def read(self, hidden: Tensor) -> Reading:
        """Targets, answers and KL prompt; the first reading, of the unedited model, is the reference."""
        (target, correct, false), kl = self.readout.read(self.language_model, hidden)
        _, real_correct, real_false = self.readout.real
        answers = AnswerScores(correct, real_correct), AnswerScores(false, real_false)
        reading = Reading(-target[:, 0], kl, *answers)
        if self.reference is None:
            self.reference = reading.detached()
        return reading

    def keep(self, index: Tensor) -> None:
        """Drop all rows but those in ``index`` and trim the columns nobody needs any more."""
        rows = self.active
        new_row = torch.full((len(rows.ids),), -1, device=index.device)
        new_row[index] = torch.arange(len(index), device=index.device)
        active, constant = (length[index] for length in self.lengths)
        self.lengths = (active, constant)
        keys = rows.visible.shape[2] - rows.ids.shape[1]
        width, left = int(active.max()), keys - int(constant.max())
        self.past = self.past.rows(index, skip=left)
        self.active = PackedRows(
            rows.ids[index, :width],
            rows.positions[index, :width],
            rows.visible[index, :width, left : keys + width],
        )
        self.entering = self.entering[index, :width]
        self.places = self.places.keep(index, new_row)
        self.initial = self.initial[index]
        self.readers = self.readers.keep(new_row)
        if self.reference is not None:
            self.reference = self.reference.detached(index)
        self.__post_init__()


def _active_and_constant(row: EditRow) -> tuple[int, int]:
    active = int(row.forest.active().sum())
    return active, len(row.forest) - active


def _edited_nodes(row: EditRow) -> list[int]:
    return [node for node, edited in enumerate(row.forest.edited) if edited]


@dataclass(frozen=True)
class _Layout:
    """Constant columns (right-aligned), then active ones (left-aligned): trimming moves nothing.

    ids, positions [rows, width], visible [rows, width, width]; ``constant`` is the number of constant
    columns, ``columns`` [rows, nodes] the column of each active node among the active columns.
    """

    ids: np.ndarray
    positions: np.ndarray
    visible: np.ndarray
    constant: int
    columns: np.ndarray


def _lay_out(language_model: LanguageModel, rows: Sequence[EditRow]) -> _Layout:
    actives = [row.forest.active() for row in rows]
    constant = max(1, max(int((~active).sum()) for active in actives))
    width = constant + max(int(active.sum()) for active in actives)
    ids, positions = np.zeros((2, len(rows), width), dtype=np.int64)
    visible = np.broadcast_to(np.eye(width, dtype=bool), (len(rows), width, width)).copy()
    columns = np.zeros((len(rows), max(len(row.forest) for row in rows)), dtype=np.int64)
    for r, (row, active) in enumerate(zip(rows, actives, strict=True)):
        fixed, moving = np.flatnonzero(~active), np.flatnonzero(active)
        nodes = np.concatenate([fixed, moving])
        places = np.arange(len(nodes)) + constant - len(fixed)
        ids[r, places] = np.array(row.forest.tokens)[nodes]
        positions[r, places] = np.array(row.forest.positions)[nodes]
        visible[r][np.ix_(places, places)] = row.forest.visible()[np.ix_(nodes, nodes)]
        columns[r, moving] = np.arange(len(moving))
    if positions.max() >= language_model.context_length:
        longest = rows[int(positions.max(axis=1).argmax())]
        raise RequestError(
            f"record {longest.record!r}: prompt and target of {positions.max() + 1} tokens exceed the"
            f" context of {language_model.context_length}; shorten them"
        )
    return _Layout(ids, positions, visible, constant, columns)
