"""A batch of edits that runs again and again, and what its loss reads from each pass.

What no edit can change is computed once. Tokens left of the edited positions are constant: their keys
and values are cached (``past``). So is what enters the first edited block: a pass starts there. The
vocabulary head runs only where a token is predicted.

Each edit is a row of the batch, filled up to the longest one; or all edits share one row, *side by side*,
in which none sees another. Nothing is filled up then, and attention by tiles skips what no token sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from helpers.editing.app import AnswerScores, App, app_terms
from helpers.editing.icd import Icd, divergences
from helpers.editing.rows import EditRow, check_record_length
from helpers.editing.teacher import teacher_probabilities
from helpers.models import LanguageModel
from helpers.models.forest import PackedRows
from helpers.models.forward import (
    Mask,
    Past,
    hidden_states,
    prefill,
    resumed,
    vocabulary_scores,
)
from helpers.models.hooks import record
from helpers.models.tiles import takes_tiles


@dataclass(frozen=True)
class Reading:
    """What one pass gives: log-probabilities of the rows' predictions."""

    nll: Tensor  # negative log-likelihood of the targets [rows], averaged over templates and tokens
    kl_log_probabilities: (
        Tensor  # at the KL prompt's subject [rows, vocabulary]; no row without one
    )
    correct: AnswerScores  # mean-token log-probabilities, padded [rows, m]
    false: AnswerScores  # [rows, n]
    # At the tokens of the training probes' answers, of all rows [tokens, vocabulary].
    distilled_log_probabilities: Tensor

    def _kl_rows(self, index: Tensor | slice) -> Tensor:
        if not len(self.kl_log_probabilities):  # no row has a KL prompt
            return self.kl_log_probabilities
        return self.kl_log_probabilities.detach()[index]

    def rows(self, index: Tensor | slice = slice(None)) -> Reading:
        """The reading of the rows in ``index``, without gradients and without the training probes."""
        return Reading(
            nll=self.nll.detach()[index],
            kl_log_probabilities=self._kl_rows(index),
            correct=AnswerScores(self.correct.values.detach()[index], self.correct.real[index]),
            false=AnswerScores(self.false.values.detach()[index], self.false.real[index]),
            distilled_log_probabilities=self.distilled_log_probabilities.detach()[:0],
        )


class PredictedToken(NamedTuple):
    """One token whose log-probability is read, and the answer it belongs to."""

    position: int  # in the flattened hidden states, rows x width
    token: int
    weight: float  # in the answer's mean
    answer: int  # in the flattened answers, rows x answers per row


@dataclass(frozen=True)
class AnswerLayout:
    """A row's answers side by side: the target, then the correct ones, then the false ones."""

    correct_count: int
    false_count: int

    @classmethod
    def of(cls, rows: Sequence[EditRow]) -> AnswerLayout:
        """The layout that has room for every row's answers."""
        return cls(
            correct_count=max(len(row.correct) for row in rows),
            false_count=max(len(row.false) for row in rows),
        )

    @property
    def per_row(self) -> int:
        """Answers of a row."""
        return 1 + self.correct_count + self.false_count

    def split(self, by_answer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[rows * per_row] as target [rows], correct [rows, m] and false [rows, n]."""
        by_row = by_answer.view(-1, self.per_row)
        target, correct, false = by_row.split([1, self.correct_count, self.false_count], dim=1)
        return target[:, 0], correct, false


class Readout:
    """Turns a batch's hidden states into a ``Reading``. What it reads is found once, for all passes.

    A loss reads the vocabulary head at few positions, often the same ones for several answers. The head,
    which costs most, runs once per distinct position; ``token_head_rows`` and ``distribution_head_rows`` hold
    which of its rows belongs to whom: of the latter first the KL prompts, then the training probes' tokens.
    """

    def __init__(
        self,
        rows: Sequence[EditRow],
        positions: np.ndarray,
        kl_positions: Tensor,
        distilled_positions: Tensor,
        layout: AnswerLayout,
    ) -> None:
        """Find all that is read. ``positions`` [rows, nodes] are nodes' in the flattened hidden states."""
        if len(kl_positions) not in (0, len(rows)):
            raise ValueError("either every row has a KL prompt or none has")
        device = kl_positions.device
        self.row_count = len(rows)
        self.layout = layout
        predicted = predicted_tokens(rows, positions, layout)
        token_positions = torch.tensor(
            [prediction.position for prediction in predicted], device=device
        )
        read_positions = torch.cat([token_positions, kl_positions, distilled_positions])
        self.positions, head_rows = read_positions.unique(return_inverse=True)
        self.token_head_rows = head_rows[: len(token_positions)]
        self.distribution_head_rows = head_rows[len(token_positions) :]
        self.kl_count = len(kl_positions)
        self.tokens = torch.tensor([prediction.token for prediction in predicted], device=device)
        self.weights = torch.tensor([prediction.weight for prediction in predicted], device=device)
        self.answer_indices = torch.tensor(
            [prediction.answer for prediction in predicted], device=device
        )

        is_real = torch.zeros(len(rows) * layout.per_row, dtype=torch.bool, device=device)
        is_real[self.answer_indices] = True
        _, self.correct_is_real, self.false_is_real = layout.split(is_real)

    def read(self, lm: LanguageModel, hidden: Tensor) -> Reading:
        """Log-probabilities of targets, answers and KL prompts from hidden states [..., width, hidden]."""
        states = hidden.flatten(0, 1).index_select(0, self.positions)
        log_probabilities, distributions = vocabulary_scores(
            lm,
            states,
            self.token_head_rows,
            self.tokens,
            distribution_rows=self.distribution_head_rows,
        )
        answer_count = self.row_count * self.layout.per_row
        zeros = log_probabilities.new_zeros(answer_count)
        by_answer = zeros.index_add(0, self.answer_indices, log_probabilities * self.weights)
        target, correct, false = self.layout.split(by_answer)
        return Reading(
            nll=-target,
            kl_log_probabilities=distributions[: self.kl_count],
            correct=AnswerScores(correct, self.correct_is_real),
            false=AnswerScores(false, self.false_is_real),
            distilled_log_probabilities=distributions[self.kl_count :],
        )

    @torch.no_grad()
    def targets_are_top(self, lm: LanguageModel, hidden: Tensor) -> Tensor:
        """Whether all tokens of a row's target are the most probable ones [rows]; the head runs once more."""
        states = hidden.flatten(0, 1).index_select(0, self.positions)
        top_tokens = lm.network.get_output_embeddings()(states).argmax(-1)  # [positions]
        is_missed = top_tokens[self.token_head_rows] != self.tokens
        zeros = torch.zeros(self.row_count * self.layout.per_row, device=states.device)
        misses_by_answer = zeros.index_add(0, self.answer_indices, is_missed.float())
        misses_of_targets, _, _ = self.layout.split(misses_by_answer)
        return misses_of_targets == 0


def predicted_tokens(
    rows: Sequence[EditRow], positions: np.ndarray, layout: AnswerLayout
) -> list[PredictedToken]:
    """Every token that the losses of the rows read, row by row."""
    predicted = []
    for row_index, row in enumerate(rows):
        first_answer = row_index * layout.per_row
        answers = {first_answer: row.target}
        for number, predictions in enumerate(row.correct):
            answers[first_answer + 1 + number] = predictions
        for number, predictions in enumerate(row.false):
            answers[first_answer + 1 + layout.correct_count + number] = predictions
        for answer_index, predictions in answers.items():
            for prediction in predictions:
                position = int(positions[row_index, prediction.node])
                predicted.append(
                    PredictedToken(position, prediction.token, prediction.weight, answer_index)
                )
    return predicted


class EditBatch:
    """Rows of edits, ready for passes from block ``layer`` on.

    What the passes share, by name:

    - ``active``: ids and positions [rows, active], visible [rows, active, constant + active]; one row
      where the edits are side by side;
    - ``past``: keys and values of the constant tokens, where there are any;
    - ``entering``: the input of the first edited block [rows, active, hidden];
    - ``lengths``: each edit's numbers of active and of constant tokens;
    - ``edited_rows`` and ``edited_positions``: of each edited token, its edit, and its position in the
      flattened hidden states (rows x active);
    - ``bare_positions``: that of the subject's last token in each edit's bare prompt [edits];
    - ``teachers``: of each edit the teacher's probabilities at its training probes' tokens
      [tokens, vocabulary], with icd;
    - ``reference``: the first reading, of the model before this edit.
    """

    def __init__(
        self,
        lm: LanguageModel,
        rows: Sequence[EditRow],
        layer: int,
        *,
        entering: Tensor | None = None,
        teachers: Sequence[Tensor] | None = None,
        side_by_side: bool = False,
    ) -> None:
        """Run once what no edit can change; ``entering`` is what enters the block, where it is known.

        ``teachers`` are known where they were made for an earlier batch of the same rows.
        ``side_by_side`` puts all edits into one row where attention goes by tiles. Without them the masks
        of a long row cost more than is saved.
        """
        self.lm = lm
        self.layer = layer
        self.rows = list(rows)
        self.reference: Reading | None = None
        self.past: Past | None = None
        self.lengths = [(int(row.active().sum()), int((~row.active()).sum())) for row in rows]
        # The same for every reading, so that a later one can be compared with the reference.
        self._answer_layout = AnswerLayout.of(rows)
        self.teachers = list(teacher_probabilities(lm, rows) if teachers is None else teachers)
        self.side_by_side = side_by_side and takes_tiles(lm)
        packed, constant_width, self._columns = _laid_out(lm, rows, self.lengths, self.side_by_side)
        self.active = PackedRows(
            packed.ids[:, constant_width:],
            packed.positions[:, constant_width:],
            packed.visible[:, constant_width:],
        )
        with torch.no_grad():
            if constant_width:
                ids = packed.ids[:, :constant_width]
                positions = packed.positions[:, :constant_width]
                visible = packed.visible[:, :constant_width, :constant_width]
                _, self.past = prefill(lm, ids, positions, visible)
            if entering is None:
                entering = self._input_of_first_block()
        self.entering = entering
        self._prepare_passes()

    def _input_of_first_block(self) -> Tensor:
        block = self.lm.layout.block(self.layer)
        active = self.active
        with record(self.lm, inputs=[block]) as recorded:
            hidden_states(self.lm, active.ids, active.positions, active.visible, self.past)
        return recorded[block]  # [rows, active, hidden]

    def _prepare_passes(self) -> None:
        """Make what every pass of these rows shares; again when rows have left."""
        active = self.active
        width = active.ids.shape[1]
        past_positions = None if self.past is None else self.past.positions
        self.mask = Mask.of(self.lm, active.positions, active.visible, past_positions)

        edited_nodes = [
            (row_index, node)
            for row_index, row in enumerate(self.rows)
            for node, is_edited in enumerate(row.forest.edited)
            if is_edited
        ]
        first_positions = np.arange(len(self.rows)) * (0 if self.side_by_side else width)
        positions = first_positions[:, None] + self._columns  # [edits, nodes]
        self.edited_rows = self._tensor([row_index for row_index, _ in edited_nodes])
        self.edited_positions = self._tensor([int(positions[node]) for node in edited_nodes])
        self.bare_positions = self._tensor(
            [int(positions[row_index, row.bare_node]) for row_index, row in enumerate(self.rows)]
        )
        kl_positions = self._tensor(
            [
                int(positions[row_index, row.kl_node])
                for row_index, row in enumerate(self.rows)
                if row.kl_node >= 0
            ]
        )
        distilled = [
            (row_index, token) for row_index, row in enumerate(self.rows) for token in row.distilled
        ]
        distilled_positions = self._tensor(
            [int(positions[row_index, token.node]) for row_index, token in distilled]
        )
        self._distilled_rows = self._tensor([row_index for row_index, _ in distilled])
        self._distilled_weights = torch.tensor(
            [token.weight for _, token in distilled], device=self.lm.device
        )
        self._excluded_tokens = self._tensor([token.excluded_token for _, token in distilled])
        self._teacher = torch.cat(self.teachers)  # [distilled tokens of all rows, vocabulary]
        self.teachers = list(self._teacher.split([len(teacher) for teacher in self.teachers]))
        self._readout = Readout(
            self.rows, positions, kl_positions, distilled_positions, self._answer_layout
        )

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self.lm.device)

    def hidden(self) -> Tensor:
        """Final hidden states [rows, active, hidden] under whatever hooks are set."""
        active = self.active
        with resumed(self.lm, self.layer, self.entering):
            return hidden_states(self.lm, active.ids, active.positions, self.mask, self.past)

    def read(self, hidden: Tensor) -> Reading:
        """Targets, answers and KL prompt; the first reading, before this edit, is the reference."""
        reading = self._readout.read(self.lm, hidden)
        if self.reference is None:
            self.reference = reading.rows()
        return reading

    def targets_are_top(self, hidden: Tensor) -> Tensor:
        """Whether every token of a row's target is the most probable one, in all contexts [rows]."""
        return self._readout.targets_are_top(self.lm, hidden)

    def app_terms(self, reading: Reading, app: App | None) -> dict[str, Tensor]:
        """APP's weighted sum [rows] as the term ``app``, where it adds anything."""
        if app is None or app.inert:
            return {}
        assert self.reference is not None
        terms = app_terms(
            reading.correct,
            reading.false,
            self.reference.correct.values,
            self.reference.false.values,
            app.margin,
        )
        return {"app": app.total(terms)}

    def icd_terms(self, reading: Reading, icd: Icd | None) -> dict[str, Tensor]:
        """icd's weighted sum [rows] as the term ``icd``, where it adds anything."""
        if icd is None or icd.inert:
            return {}
        assert self.reference is not None
        mean_divergence = torch.zeros_like(reading.nll)
        if len(self._distilled_rows):
            of_tokens = divergences(
                self._teacher,
                reading.distilled_log_probabilities,
                self._excluded_tokens,
            )
            mean_divergence = mean_divergence.index_add(
                0, self._distilled_rows, of_tokens * self._distilled_weights
            )
        terms = app_terms(
            reading.correct,
            reading.false,
            self.reference.correct.values,
            self.reference.false.values,
            margin=0.0,
        )
        return {"icd": icd.total(mean_divergence, kept_down=terms[:, 2])}

    def loss_terms(
        self, hidden: Tensor, app: App | None = None, icd: Icd | None = None
    ) -> dict[str, Tensor]:
        """The targets' negative log-likelihood, and the term of APP or of icd; each [rows]."""
        reading = self.read(hidden)
        return {
            "nll": reading.nll,
            **self.app_terms(reading, app),
            **self.icd_terms(reading, icd),
        }

    def keep(self, row_indices: Sequence[int]) -> None:
        """Drop all edits but these, and the columns that nobody needs any more."""
        if self.side_by_side:
            self._keep_columns(row_indices)
        else:
            self._keep_rows(row_indices)
        self.teachers = [self.teachers[i] for i in row_indices]
        if self.reference is not None:
            self.reference = self.reference.rows(self._tensor(row_indices))
        self._prepare_passes()

    def _keep_columns(self, row_indices: Sequence[int]) -> None:
        active = self.active
        constant_width_before = active.visible.shape[2] - active.ids.shape[1]
        constant_ranges = _consecutive([constant_tokens for _, constant_tokens in self.lengths])
        active_ranges = _consecutive([active_tokens for active_tokens, _ in self.lengths])
        constant_columns = self._tensor([c for i in row_indices for c in constant_ranges[i]])
        columns = self._tensor([c for i in row_indices for c in active_ranges[i]])
        self.rows = [self.rows[i] for i in row_indices]
        self.lengths = [self.lengths[i] for i in row_indices]
        new_ranges = _consecutive([active_tokens for active_tokens, _ in self.lengths])
        column_shifts = [
            new_ranges[new].start - active_ranges[old].start for new, old in enumerate(row_indices)
        ]
        self._columns = self._columns[list(row_indices)] + np.array(column_shifts)[:, None]
        if self.past is not None:
            self.past = self.past.columns(constant_columns)
        keys = torch.cat([constant_columns, constant_width_before + columns])
        self.active = PackedRows(
            active.ids[:, columns],
            active.positions[:, columns],
            active.visible[:, columns][:, :, keys],
        )
        self.entering = self.entering[:, columns]

    def _keep_rows(self, row_indices: Sequence[int]) -> None:
        active = self.active
        index = self._tensor(row_indices)
        constant_width_before = active.visible.shape[2] - active.ids.shape[1]
        self.rows = [self.rows[i] for i in row_indices]
        self._columns = self._columns[list(row_indices)]
        self.lengths = [self.lengths[i] for i in row_indices]
        width = max(active_tokens for active_tokens, _ in self.lengths)
        constant_width = max(constant_tokens for _, constant_tokens in self.lengths)
        # Constant columns are right-aligned, active ones left-aligned: trim at both ends.
        first_column = 0
        if self.past is not None:
            first_column = constant_width_before - constant_width
            self.past = self.past.rows(index, skip=first_column)
        self.active = PackedRows(
            active.ids[index, :width],
            active.positions[index, :width],
            active.visible[index, :width, first_column : constant_width_before + width],
        )
        self.entering = self.entering[index, :width]


def _consecutive(lengths: Sequence[int]) -> list[range]:
    """Ranges of these lengths, one after the other."""
    ends = np.cumsum([0, *lengths]).tolist()
    return [range(start, end) for start, end in pairwise(ends)]


def _laid_out(
    lm: LanguageModel,
    rows: Sequence[EditRow],
    lengths: Sequence[tuple[int, int]],
    side_by_side: bool,
) -> tuple[PackedRows, int, np.ndarray]:
    """The edits' nodes as one batch, constant columns right-aligned, then active ones left-aligned.

    So trimming moves nothing. Side by side, all constant columns come before all active ones. Returned
    with it: the number of constant columns, and the column of each active node among the active ones
    [rows, nodes].
    """
    active_counts = [active_tokens for active_tokens, _ in lengths]
    constant_counts = [constant_tokens for _, constant_tokens in lengths]
    if side_by_side:
        constant_width = sum(constant_counts)
        width = constant_width + sum(active_counts)
        first_constant = [columns.start for columns in _consecutive(constant_counts)]
        first_active = [columns.start for columns in _consecutive(active_counts)]
        batch_rows = [0] * len(rows)
    else:
        constant_width = max(constant_counts)
        width = constant_width + max(active_counts)
        first_constant = [constant_width - count for count in constant_counts]
        first_active = [0] * len(rows)
        batch_rows = list(range(len(rows)))
    row_count = batch_rows[-1] + 1
    ids = np.zeros((row_count, width), dtype=np.int64)
    positions = np.zeros((row_count, width), dtype=np.int64)
    # A padding token sees only itself, so that no softmax is empty.
    visible = np.broadcast_to(np.eye(width, dtype=bool), (row_count, width, width)).copy()
    columns = np.zeros((len(rows), max(len(row.forest) for row in rows)), dtype=np.int64)
    for index, row in enumerate(rows):
        active_mask = row.active()
        constant_nodes = np.flatnonzero(~active_mask)
        active_nodes = np.flatnonzero(active_mask)
        nodes = np.concatenate([constant_nodes, active_nodes])
        columns[index, active_nodes] = first_active[index] + np.arange(len(active_nodes))
        constant_columns = first_constant[index] + np.arange(len(constant_nodes))
        node_columns = np.concatenate(
            [constant_columns, constant_width + columns[index, active_nodes]]
        )
        batch_row = batch_rows[index]
        ids[batch_row, node_columns] = np.array(row.forest.tokens)[nodes]
        positions[batch_row, node_columns] = np.array(row.forest.positions)[nodes]
        visible_among = row.forest.visible()[np.ix_(nodes, nodes)]
        visible[batch_row][np.ix_(node_columns, node_columns)] = visible_among
        longest_length = max(row.longest_length, max(row.forest.positions) + 1)
        check_record_length(lm, row.record, longest_length)
    device = lm.device
    packed = PackedRows(
        torch.from_numpy(ids).to(device),
        torch.from_numpy(positions).to(device),
        torch.from_numpy(visible).to(device),
    )
    return packed, constant_width, columns
