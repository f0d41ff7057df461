"""A batch of edits that runs again and again, and what its loss reads from each pass.

What no edit can change is computed once. Tokens left of the edited positions are constant: their keys
and values are cached (``past``). Blocks below the first edited one are, too: a pass starts with what
enters that block. The vocabulary head runs only where a token is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from helpers.editing.app import AnswerScores, App, app_terms
from helpers.editing.rows import EditRow, check_length
from helpers.models.forest import PackedRows
from helpers.models.forward import Mask, Past, hidden_states, prefill, resumed, vocabulary_scores
from helpers.models.hooks import record
from helpers.models.language_model import LanguageModel


@dataclass(frozen=True)
class Reading:
    """What one pass gives: log-probabilities of the rows' predictions.

    Attributes:
        nll: negative log-likelihood of the targets [rows], averaged over templates and tokens.
        kl: log-probabilities at the KL prompt's subject [rows, vocabulary]; no row without one.
        correct: mean-token log-probabilities of the correct answers, padded [rows, m].
        false: the same of the false answers, [rows, n].
    """

    nll: Tensor
    kl: Tensor
    correct: AnswerScores
    false: AnswerScores

    def rows(self, index: Tensor | slice = slice(None)) -> Reading:
        """The same without gradients, of the rows in ``index``."""
        answers = (
            AnswerScores(a.values.detach()[index], a.real[index])
            for a in (self.correct, self.false)
        )
        kl = self.kl.detach()[index] if len(self.kl) else self.kl
        return Reading(self.nll.detach()[index], kl, *answers)

    def kl_from(self, reference: Reading) -> Tensor:
        """KL(this || reference) at the KL prompt's subject [rows]."""
        return (self.kl.exp() * (self.kl - reference.kl)).sum(-1)


@dataclass(frozen=True)
class Readout:
    """Weighted sums of predicted tokens' log-probabilities, from one pass of the vocabulary head.

    Prediction i is of ``token[i]`` at (``row[i]``, ``column[i]``) and adds to ``slot[i]`` of its row:
    slot 0 is the target's, the next ``correct`` slots are the correct answers', the last ``false`` ones
    the false answers'.
    """

    row: Tensor
    column: Tensor
    token: Tensor
    weight: Tensor
    slot: Tensor
    correct: int
    false: int

    @classmethod
    def of(cls, rows: Sequence[EditRow], columns: np.ndarray, device: torch.device) -> Readout:
        """What the rows predict; ``columns[row, node]`` is a node's column."""
        correct, false = (max(len(getattr(r, a)) for r in rows) for a in ("correct", "false"))
        flat = [
            (number, int(columns[number, p.node]), p.token, p.weight, first + place)
            for first, kind in ((0, "target"), (1, "correct"), (1 + correct, "false"))
            for number, row in enumerate(rows)
            for place, predictions in enumerate(
                [row.target] if kind == "target" else getattr(row, kind)
            )
            for p in predictions
        ]
        row, column, token, weight, slot = (
            torch.tensor(part, device=device) for part in zip(*flat, strict=True)
        )
        return cls(row, column, token, weight.float(), slot, correct, false)

    def keep(self, new_row: Tensor) -> Readout:
        """Follow a selection of rows; ``new_row`` [rows] is -1 for those that left."""
        row = new_row[self.row]
        stays = row >= 0
        row, column, token, weight, slot = (
            part[stays] for part in (row, self.column, self.token, self.weight, self.slot)
        )
        return Readout(row, column, token, weight, slot, self.correct, self.false)

    def plan(
        self, shape: tuple[int, int], kl_column: Tensor | None
    ) -> Callable[[LanguageModel, Tensor], Reading]:
        """From hidden states [rows, columns, hidden] to a reading; places are found once.

        Args:
            shape: rows and columns of the hidden states.
            kl_column: of each row's KL prompt's subject [rows], if it has one.
        """
        rows, columns = shape
        slots, device = 1 + self.correct + self.false, self.row.device
        starts = torch.arange(rows, device=device) * columns
        kl = starts[:0] if kl_column is None else starts + kl_column
        asked = torch.cat([self.row * columns + self.column, kl])
        places, place = asked.unique(return_inverse=True)
        place, whole = place.split([len(self.row), len(kl)])
        flat = self.row * slots + self.slot
        real = torch.zeros(rows * slots, dtype=torch.bool, device=device)
        sizes = [1, self.correct, self.false]
        _, *masks = real.index_fill(0, flat, True).view(rows, slots).split(sizes, dim=1)

        def read(language_model: LanguageModel, hidden: Tensor) -> Reading:
            chosen = hidden.flatten(0, 1).index_select(0, places)
            scores, distributions = vocabulary_scores(
                language_model, chosen, place, self.token, whole
            )
            sums = scores.new_zeros(rows * slots).index_add(0, flat, scores * self.weight)
            target, *answers = sums.view(rows, slots).split(sizes, dim=1)
            correct, false = map(AnswerScores, answers, masks)
            return Reading(-target[:, 0], distributions, correct, false)

        return read


@dataclass(kw_only=True)
class EditBatch:
    """Rows of edits, ready for passes from block ``layer`` on.

    Shapes: ``active`` has ids, positions [rows, active] and visible [rows, active, constant + active];
    ``entering`` [rows, active, hidden] is the input of block ``layer``; ``lengths`` counts each row's
    active and constant tokens. ``edits`` holds row and column of every edited token, ``bare`` and
    ``kl`` [rows] the columns of the subject in the bare and in the KL prompt (none where no position is
    edited). ``reference`` is the first reading, of the unedited model.
    """

    language_model: LanguageModel
    layer: int
    past: Past | None
    entering: Tensor
    active: PackedRows
    lengths: tuple[Tensor, Tensor]
    edits: tuple[Tensor, Tensor]
    bare: Tensor | None
    kl: Tensor | None
    readout: Readout
    reference: Reading | None = None
    mask: Mask = field(init=False)
    edit_place: Tensor = field(init=False)  # of every edited token in rows x active
    _read: Callable[[LanguageModel, Tensor], Reading] = field(init=False)

    def __post_init__(self) -> None:
        """Make what every pass of these rows shares; again when rows have left."""
        active, past = self.active, None if self.past is None else self.past.positions
        self.mask = Mask.of(self.language_model, active.positions, active.visible, past)
        rows, columns = active.ids.shape
        self.edit_place = self.edits[0] * columns + self.edits[1]
        self._read = self.readout.plan((rows, columns), self.kl)

    @classmethod
    def build(
        cls,
        language_model: LanguageModel,
        rows: Sequence[EditRow],
        layer: int,
        *,
        entering: Tensor | None = None,
    ) -> EditBatch:
        """Pack the rows and run once what no edit from block ``layer`` on can change.

        Args:
            entering: what enters that block [rows, active, hidden], where it is known.

        Raises:
            RequestError: a row beyond the model's context; names the record.
        """
        device = language_model.device
        packed, constant, columns = _laid_out(language_model, rows)
        active = PackedRows(
            packed.ids[:, constant:], packed.positions[:, constant:], packed.visible[:, constant:]
        )
        past, block = None, language_model.layout.block(layer)
        with torch.no_grad():
            if constant:
                left = slice(None), slice(constant)
                visible = packed.visible[:, :constant, :constant]
                _, past = prefill(language_model, packed.ids[left], packed.positions[left], visible)
            if entering is None:
                with record(language_model, inputs=[block]) as seen:
                    hidden_states(
                        language_model, active.ids, active.positions, active.visible, past
                    )
                entering = seen[block]

        def column(node: str) -> Tensor | None:
            nodes = [getattr(row, node) for row in rows]
            chosen = columns[np.arange(len(rows)), nodes]
            return None if min(nodes) < 0 else torch.from_numpy(chosen).to(device)

        edited = [
            (number, int(columns[number, node]))
            for number, row in enumerate(rows)
            for node in np.flatnonzero(row.forest.edited)
        ]
        places = torch.tensor(edited, dtype=torch.long, device=device).view(-1, 2)
        lengths = [(int(row.active().sum()), len(row.forest)) for row in rows]
        moving, all_ = torch.tensor(lengths, device=device).T
        return cls(
            language_model=language_model,
            layer=layer,
            past=past,
            entering=entering,
            active=active,
            lengths=(moving, all_ - moving),
            edits=(places[:, 0], places[:, 1]),
            bare=column("bare_node"),
            kl=column("kl_node"),
            readout=Readout.of(rows, columns, device),
        )

    def hidden(self) -> Tensor:
        """Final hidden states [rows, active, hidden] under whatever hooks are set."""
        active = self.active
        with resumed(self.language_model, self.layer, self.entering):
            return hidden_states(
                self.language_model, active.ids, active.positions, self.mask, self.past
            )

    def read(self, hidden: Tensor) -> Reading:
        """Targets, answers and KL prompt; the first reading, of the unedited model, is the reference."""
        reading = self._read(self.language_model, hidden)
        if self.reference is None:
            self.reference = reading.rows()
        return reading

    def app_terms(self, reading: Reading, app: App | None) -> dict[str, Tensor]:
        """APP's weighted sum [rows] as the term ``app``, where it adds anything."""
        if app is None or app.inert:
            return {}
        assert self.reference is not None
        before = self.reference.correct.values, self.reference.false.values
        terms = app_terms(reading.correct, reading.false, *before, app.margin)
        return {"app": app.total(terms)}

    def loss_terms(self, hidden: Tensor, app: App | None = None) -> dict[str, Tensor]:
        """The targets' negative log-likelihood, and APP's term; each [rows]."""
        reading = self.read(hidden)
        return {"nll": reading.nll, **self.app_terms(reading, app)}

    def keep(self, index: Tensor) -> None:
        """Drop all rows but those in ``index`` and trim the columns nobody needs any more."""
        rows = self.active
        new_row = torch.full((len(rows.ids),), -1, device=index.device)
        new_row[index] = torch.arange(len(index), device=index.device)
        self.lengths = (self.lengths[0][index], self.lengths[1][index])
        keys = rows.visible.shape[2] - rows.ids.shape[1]
        width, constant = (int(length.max()) for length in self.lengths)
        left = keys - constant if self.past else 0
        self.past = self.past and self.past.rows(index, skip=left)
        self.active = PackedRows(
            rows.ids[index, :width],
            rows.positions[index, :width],
            rows.visible[index, :width, left : keys + width],
        )
        self.entering = self.entering[index, :width]
        row, column = new_row[self.edits[0]], self.edits[1]
        self.edits = (row[row >= 0], column[row >= 0])
        self.bare = None if self.bare is None else self.bare[index]
        self.kl = None if self.kl is None else self.kl[index]
        self.readout = self.readout.keep(new_row)
        self.reference = self.reference and self.reference.rows(index)
        self.__post_init__()


def _laid_out(
    language_model: LanguageModel, rows: Sequence[EditRow]
) -> tuple[PackedRows, int, np.ndarray]:
    """The rows with their constant columns right-aligned, then the active ones left-aligned.

    So trimming moves nothing. Also the number of constant columns, and [rows, nodes] the column of
    each active node among the active ones.
    """
    actives = [row.active() for row in rows]
    constant = max(int((~active).sum()) for active in actives)
    width = constant + max(int(active.sum()) for active in actives)
    ids, positions = np.zeros((2, len(rows), width), dtype=np.int64)
    visible = np.broadcast_to(np.eye(width, dtype=bool), (len(rows), width, width)).copy()
    columns = np.zeros((len(rows), max(len(row.forest) for row in rows)), dtype=np.int64)
    for number, (row, active) in enumerate(zip(rows, actives, strict=True)):
        fixed, moving = np.flatnonzero(~active), np.flatnonzero(active)
        nodes = np.concatenate([fixed, moving])
        places = np.arange(len(nodes)) + constant - len(fixed)
        ids[number, places] = np.array(row.forest.tokens)[nodes]
        positions[number, places] = np.array(row.forest.positions)[nodes]
        visible[number][np.ix_(places, places)] = row.forest.visible()[np.ix_(nodes, nodes)]
        columns[number, moving] = np.arange(len(moving))
    longest = int(positions.max(axis=1).argmax())
    check_length(language_model, rows[longest].record, int(positions.max()) + 1)
    tensors = (torch.from_numpy(a).to(language_model.device) for a in (ids, positions, visible))
    return PackedRows(*tensors), constant, columns
