"""A batch of edits that runs again and again, and what its loss reads from each pass.

What no edit can change is computed once. Tokens left of the edited positions are constant: their keys
and values are cached (``past``). So is what enters the first edited block: a pass starts there. The
vocabulary head runs only where a token is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from helpers.editing.app import AnswerScores, App, app_terms
from helpers.editing.rows import EditRow, check_length
from helpers.models import LanguageModel
from helpers.models.forest import PackedRows
from helpers.models.forward import Mask, hidden_states, prefill, resumed, vocabulary_scores
from helpers.models.hooks import record


@dataclass(frozen=True)
class Reading:
    """What one pass gives: log-probabilities of the rows' predictions."""

    nll: Tensor  # negative log-likelihood of the targets [rows], averaged over templates and tokens
    kl: Tensor  # log-probabilities at the KL prompt's subject [rows, vocabulary]; no row without one
    correct: AnswerScores  # mean-token log-probabilities, padded [rows, m]
    false: AnswerScores  # [rows, n]

    def rows(self, index: Tensor | slice = slice(None)) -> Reading:
        """The same without gradients, of the rows in ``index``."""
        answers = (
            AnswerScores(a.values.detach()[index], a.real[index])
            for a in (self.correct, self.false)
        )
        kl = self.kl.detach()[index] if len(self.kl) else self.kl
        return Reading(self.nll.detach()[index], kl, *answers)


class EditBatch:
    """Rows of edits, ready for passes from block ``layer`` on.

    ``active`` holds ids and positions [rows, active] and visible [rows, active, constant + active],
    ``entering`` the input of the block [rows, active, hidden], ``lengths`` each row's active and
    constant tokens, ``edited`` row and place in rows x active of every edited token, ``bare`` the
    subject's column in the bare prompt [rows]. ``reference`` is the first reading, of the unedited model.
    """

    def __init__(
        self,
        model: LanguageModel,
        rows: Sequence[EditRow],
        layer: int,
        *,
        entering: Tensor | None = None,
    ) -> None:
        """Run once what no edit can change; ``entering`` is what enters the block, where it is known."""
        self.model, self.layer, self.rows = model, layer, list(rows)
        self.reference: Reading | None = None
        self.lengths = [(int(row.active().sum()), int((~row.active()).sum())) for row in rows]
        # Of correct and false answers; the same for every reading, so that these can be compared.
        self._slots = max(len(r.correct) for r in rows), max(len(r.false) for r in rows)
        packed, constant, self._columns = _laid_out(model, rows)
        ids, positions, visible = packed.ids, packed.positions, packed.visible
        active = ids[:, constant:], positions[:, constant:], visible[:, constant:]
        self.active = PackedRows(*active)
        self.past, block = None, model.layout.block(layer)
        with torch.no_grad():
            if constant:
                left = slice(None), slice(constant)
                seen_left = visible[:, :constant, :constant]
                _, self.past = prefill(model, ids[left], positions[left], seen_left)
            if entering is None:
                with record(model, inputs=[block]) as seen:
                    hidden_states(model, *active, self.past)
                entering = seen[block]
        self.entering = entering
        self._share()

    def _share(self) -> None:
        """Make what every pass of these rows shares; again when rows have left."""
        model, active = self.model, self.active
        device, width = model.device, active.ids.shape[1]
        past = None if self.past is None else self.past.positions
        self.mask = Mask.of(model, active.positions, active.visible, past)

        def places(nodes: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
            columns = [int(self._columns[row, node]) for row, node in nodes]
            owners = torch.tensor([row for row, _ in nodes], dtype=torch.long, device=device)
            return owners, torch.tensor(columns, dtype=torch.long, device=device)

        rows = list(enumerate(self.rows))
        owners, columns = places(
            [(i, n) for i, r in rows for n, e in enumerate(r.forest.edited) if e]
        )
        self.edited = owners, owners * width + columns
        _, self.bare = places([(i, row.bare_node) for i, row in rows])
        _, kl = places([(i, row.kl_node) for i, row in rows if row.kl_node >= 0])
        self._read = _readout(self.rows, self._columns, width, kl, *self._slots)

    def hidden(self) -> Tensor:
        """Final hidden states [rows, active, hidden] under whatever hooks are set."""
        active = self.active
        with resumed(self.model, self.layer, self.entering):
            return hidden_states(self.model, active.ids, active.positions, self.mask, self.past)

    def read(self, hidden: Tensor) -> Reading:
        """Targets, answers and KL prompt; the first reading, of the unedited model, is the reference."""
        reading = self._read(self.model, hidden)
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

    def keep(self, chosen: Sequence[int]) -> None:
        """Drop all rows but the chosen and trim the columns nobody needs any more."""
        active = self.active
        index = torch.tensor(chosen, device=self.model.device)
        before = active.visible.shape[2] - active.ids.shape[1]
        self.rows = [self.rows[i] for i in chosen]
        self._columns = self._columns[list(chosen)]
        self.lengths = [self.lengths[i] for i in chosen]
        width, constant = (max(lengths) for lengths in zip(*self.lengths, strict=True))
        left = before - constant if self.past else 0
        self.past = self.past and self.past.rows(index, skip=left)
        self.active = PackedRows(
            active.ids[index, :width],
            active.positions[index, :width],
            active.visible[index, :width, left : before + width],
        )
        self.entering = self.entering[index, :width]
        self.reference = self.reference and self.reference.rows(index)
        self._share()


def _readout(
    rows: Sequence[EditRow], columns: np.ndarray, width: int, kl: Tensor, correct: int, false: int
) -> Callable[[LanguageModel, Tensor], Reading]:
    """From hidden states [rows, width, hidden] to a reading; places are found once."""
    # A predicted token adds to a slot of its row: the target's, a correct answer's, a false one's.
    sizes, slots, device = [1, correct, false], 1 + correct + false, kl.device
    flat = [
        (number * width + int(columns[number, p.node]), p.token, p.weight, number * slots + slot)
        for number, row in enumerate(rows)
        for first, answers in ((0, [row.target]), (1, row.correct), (1 + correct, row.false))
        for slot, predictions in enumerate(answers, start=first)
        for p in predictions
    ]
    where, token, weight, slot = (
        torch.tensor(part, device=device) for part in zip(*flat, strict=True)
    )
    kl = torch.arange(len(kl), device=device) * width + kl  # of places in rows x width, as `where`
    places, place = torch.cat([where, kl]).unique(return_inverse=True)
    place, whole = place.split([len(where), len(kl)])
    real = torch.zeros(len(rows) * slots, dtype=torch.bool, device=device)
    _, *masks = real.index_fill(0, slot, True).view(-1, slots).split(sizes, dim=1)
    weight = weight.float()

    def read(model: LanguageModel, hidden: Tensor) -> Reading:
        chosen = hidden.flatten(0, 1).index_select(0, places)
        scores, distributions = vocabulary_scores(model, chosen, place, token, whole)
        sums = scores.new_zeros(len(rows) * slots).index_add(0, slot, scores * weight)
        target, *answers = sums.view(-1, slots).split(sizes, dim=1)
        return Reading(-target[:, 0], distributions, *map(AnswerScores, answers, masks))

    return read


def _laid_out(model: LanguageModel, rows: Sequence[EditRow]) -> tuple[PackedRows, int, np.ndarray]:
    """The rows, constant columns right-aligned, then active ones left-aligned, so trimming moves nothing;
    the number of constant columns; the column of each active node [rows, nodes].
    """
    actives = [row.active() for row in rows]
    constant = max(int((~active).sum()) for active in actives)
    width = constant + max(int(active.sum()) for active in actives)
    ids, positions = np.zeros((2, len(rows), width), dtype=np.int64)
    visible = np.broadcast_to(np.eye(width, dtype=bool), (len(rows), width, width)).copy()
    columns = np.zeros((len(rows), max(len(row.forest) for row in rows)), dtype=np.int64)
    for number, (row, active) in enumerate(zip(rows, actives, strict=True)):
        fixed = np.flatnonzero(~active)
        moving = np.flatnonzero(active)
        nodes = np.concatenate([fixed, moving])
        places = np.arange(len(nodes)) + constant - len(fixed)
        ids[number, places] = np.array(row.forest.tokens)[nodes]
        positions[number, places] = np.array(row.forest.positions)[nodes]
        visible[number][np.ix_(places, places)] = row.forest.visible()[np.ix_(nodes, nodes)]
        columns[number, moving] = np.arange(len(moving))
    for row, last in zip(rows, positions.max(axis=1), strict=True):
        check_length(model, row.record, max(row.longest, int(last) + 1))
    tensors = (torch.from_numpy(a).to(model.device) for a in (ids, positions, visible))
    return PackedRows(*tensors), constant, columns
