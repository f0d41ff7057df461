"""UltraEdit: one gradient becomes one linear solve, with no optimisation and no matrix of the model's size.

Of each edited matrix, over the positions that predict a token of the target, H [n, in] are its inputs and
G [n, out] the gradients of the loss at its output. With the running mean and deviation of z = [h; g],

    z^ = (z - mean) / (deviation + 1.2e-7) = [h^; g^],      v = -lr ||h^||^2 g^,
    Delta W^T = (H^T H + I)^-1 H^T V = H^T (H H^T + I)^-1 V.

(Gu et al. 2025, "UltraEdit: Training-, Subject-, and Memory-Free Lifelong Editing"). The right-hand form is
solved here: n by n numbers, not in by in, so that an edit has rank n. H is not normalised in it. Matrices of
one shape share mean and deviation, as in the authors' code.

Deviations:

- The authors edit in turns of 100 requests, whose tokens first enter the statistics. Here the statistics
  begin with ``held_out`` packaged requests. Edits that are made alone are normalised by these, which never
  change, so no edit depends on another. In a sequence every request is a turn, a joint edit is one, and
  statistics grow.
- The loss is the mean over each request's own tokens, not over those of a forward pass.
- ``statistics: authors`` repeats the code's sum of squares, which adds n var for (n - 1) var: of ten tokens
  the deviation is 5 % too large.
- The published rate is 1e-6. ||h^||^2 is about the input's size, so the same rate changes a smaller model
  less: with 1,536 inputs 1e-6 changes nothing.
- APP takes the gradient of its first term at the same positions; the other two have none before the edit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor

from helpers.editing.batch import EditBatch
from helpers.editing.edit import Edit
from helpers.editing.editor import diagnostics_of, joint_diagnostics, made_in_batches
from helpers.editing.ft import LossEditor
from helpers.editing.held_out import check_held_out, first_held_out, held_out_digest
from helpers.editing.interventions import LowRank
from helpers.editing.mend import token_gradients
from helpers.editing.presets import LossHyperparameters
from helpers.editing.request import EditRequest, RequestError
from helpers.editing.rows import EditRow, edit_row
from helpers.editing.running import under_all
from helpers.editing.sequence import SequenceState
from helpers.editing.weight_edit import WeightEdit, only_weights
from helpers.kept import load_or_make
from helpers.models.architectures import Matrix
from helpers.paths import cache_folder, digest_of

_LEAST_DEVIATION = 1.2e-7
_COUNT = " count"  # ends the name of a shape's number of tokens
HELD_OUT = 480  # of the packaged requests


class UltraEditHyperparameters(LossHyperparameters):
    """UltraEdit of ``matrices`` at ``layers``; ``up_layers`` are those of the up matrices, where they differ.

    ``held_out`` requests are measured before the first edit; 0: statistics begin with what is edited.
    """

    matrices: tuple[Matrix, ...] = ("gate", "up")
    up_layers: tuple[int, ...] | None = None
    lr: float = Field(ge=0)
    statistics: Literal["exact", "authors"] = "exact"
    held_out: int = Field(default=HELD_OUT, ge=0)

    @property
    def measured_requests(self) -> int:
        """All that are held out."""
        return self.held_out


@dataclass(frozen=True)
class TokenStatistics:
    """Mean [size] and sum of squared deviations [size] of ``count`` tokens' numbers, in fp64."""

    count: int
    mean: Tensor
    squares: Tensor

    @classmethod
    def of_none(cls, like: Tensor) -> TokenStatistics:
        """Statistics of no token, for numbers of the size of ``like`` [n, size]."""
        zeros = like.new_zeros(like.shape[1], dtype=torch.float64)
        return cls(0, zeros, zeros)

    def with_tokens(self, numbers: Tensor, *, exact: bool) -> TokenStatistics:
        """The statistics of all tokens so far and of these, whose ``numbers`` are [n, size].

        If not ``exact``, n times the new tokens' variance is added to the sum of squared deviations, as the
        published code does, and not n - 1 times.
        """
        if not len(numbers):
            return self
        added_count = len(numbers)
        total_count = self.count + added_count
        mean = numbers.double().mean(0)
        squares = (numbers.double() - mean).square().sum(0)
        if not exact and added_count > 1:
            squares = squares * added_count / (added_count - 1)
        difference = mean - self.mean
        return TokenStatistics(
            count=total_count,
            mean=self.mean + difference * added_count / total_count,
            squares=self.squares
            + squares
            + difference.square() * self.count * added_count / total_count,
        )

    def normalised(self, numbers: Tensor) -> Tensor:
        """Numbers z [n, size] with mean 0 and deviation 1: (z - mean) / (deviation + 1.2e-7), in fp64."""
        deviation = (self.squares / (self.count - 1)).sqrt()
        return (numbers.double() - self.mean) / (deviation + _LEAST_DEVIATION)


Statistics = Mapping[str, TokenStatistics]  # by the matrices' shape


def tensors_of(statistics: Statistics) -> dict[str, Tensor]:
    """The statistics as tensors by name, as a sequence's memory and files keep them."""
    tensors = {}
    for shape, shape_statistics in statistics.items():
        tensors[shape] = torch.stack([shape_statistics.mean, shape_statistics.squares])
        tensors[f"{shape}{_COUNT}"] = torch.tensor(shape_statistics.count)
    return tensors


def statistics_of(tensors: Mapping[str, Tensor]) -> dict[str, TokenStatistics]:
    """The statistics from the tensors that ``tensors_of`` makes of them."""
    statistics = {}
    for name, count in tensors.items():
        if name.endswith(_COUNT):
            shape = name.removesuffix(_COUNT)
            mean, squares = tensors[shape]
            statistics[shape] = TokenStatistics(int(count), mean, squares)
    return statistics


@dataclass(frozen=True)
class TokensOfEdit:
    """What a request's target tokens give: by matrix H [n, in] and G [n, out], and the loss's terms."""

    inputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
    losses: Mapping[str, float]

    @property
    def failure(self) -> str | None:
        """Why no edit can be solved for; None where one can."""
        tensors = [torch.tensor(list(self.losses.values())), *self.gradients.values()]
        if all(bool(tensor.isfinite().all()) for tensor in tensors):
            return None
        return f"non-finite loss or gradient: {dict(self.losses)}"


def change_of_tokens(inputs: Tensor, values: Tensor) -> LowRank:
    """Delta W = V^T (H H^T + I)^-1 H for H [n, in] and V [n, out]."""
    gram = inputs @ inputs.T + torch.eye(len(inputs)).to(inputs)
    return LowRank(left=torch.linalg.solve(gram, values).T, right=inputs.T)


@dataclass
class UltraEdit(LossEditor):
    """UltraEdit on one model."""

    hyperparameters: UltraEditHyperparameters
    name = "ultraedit"
    token_budget = 1024

    def __post_init__(self) -> None:
        settings = self.hyperparameters
        names = [
            name
            for kind in settings.matrices
            for layer in (settings.up_layers if kind == "up" else None) or settings.layers
            for name in self.lm.layout.matrices([kind], layer)
        ]
        self.modules = tuple(dict.fromkeys(names))

    def settings(self) -> dict[str, Any]:
        """Also which requests the statistics are measured on."""
        return super().settings() | {
            "held_out": held_out_digest() if self.hyperparameters.held_out else ""
        }

    def _shape(self, module_name: str) -> str:
        return "x".join(map(str, self.lm.weight(module_name).shape))

    @cached_property
    def _first_statistics(self) -> Statistics:
        """Those of the held-out requests, on the unedited model; made once, then kept in the cache."""
        if not self.hyperparameters.held_out:
            return {}
        settings = self.hyperparameters
        measured_with = [
            self.modules,
            self.hyperparameters.held_out,
            held_out_digest(),
            settings.statistics,
            settings.eos,
        ]
        file_name = (
            f"{digest_of(json.dumps(measured_with).encode())[:16]}-{self.lm.dtype_name}.safetensors"
        )

        def make(path: Path) -> None:
            requests = first_held_out(self.hyperparameters.held_out)
            rows = [edit_row(self.lm, request, eos=settings.eos) for request in requests]
            tokens = self._tokens(rows, "held-out requests, once")
            tensors = tensors_of(self._including({}, tokens))
            save_file({name: tensor.cpu() for name, tensor in tensors.items()}, path)

        tensors = load_or_make(
            cache_folder("ultraedit", self.lm.fingerprint) / file_name, load_file, make
        )
        return statistics_of({name: tensor.to(self.lm.device) for name, tensor in tensors.items()})

    def _including(self, statistics: Statistics, tokens: Sequence[TokensOfEdit]) -> Statistics:
        """The statistics with these tokens."""
        exact = self.hyperparameters.statistics == "exact"
        numbers: dict[str, list[Tensor]] = {}
        for edit_tokens in tokens:
            for name in self.modules if edit_tokens.failure is None else ():
                inputs_and_gradients = torch.cat(
                    [edit_tokens.inputs[name], edit_tokens.gradients[name]], dim=1
                )
                numbers.setdefault(self._shape(name), []).append(inputs_and_gradients)
        grown_statistics = dict(statistics)
        for shape, shape_numbers in numbers.items():
            all_numbers = torch.cat(shape_numbers)
            statistics_before = grown_statistics.get(shape) or TokenStatistics.of_none(all_numbers)
            grown_statistics[shape] = statistics_before.with_tokens(all_numbers, exact=exact)
        return grown_statistics

    def _checked_rows(self, requests: Sequence[EditRequest], *, alone: bool) -> list[EditRow]:
        """The requests' rows; refused where no deviation of their tokens can be known."""
        rows = self.rows(requests)
        if self.hyperparameters.held_out:
            check_held_out(requests, self.hyperparameters.held_out)
            return rows
        counts = [len(_target_columns(row)) for row in rows]
        for row, count in zip(rows, counts if alone else [sum(counts)] * len(rows), strict=True):
            if count < 2:
                raise RequestError(
                    f"record {row.record!r}: UltraEdit knows no deviation of one token; set held_out, or"
                    " edit more tokens together"
                )
        return rows

    def _tokens(self, rows: Sequence[EditRow], activity: str = "") -> list[TokensOfEdit]:
        first_layer = min(self.lm.layout.layer_of(name) for name in self.modules)

        def read(row_indices: Sequence[int]) -> list[TokensOfEdit]:
            batch = EditBatch(self.lm, [rows[index] for index in row_indices], first_layer)
            gradients_by_module, terms = token_gradients(batch, self.modules, self.app, self.icd)
            losses_by_row = torch.stack(list(terms.values()), dim=1).tolist()
            tokens = []
            for row_number, losses in enumerate(losses_by_row):
                columns = _target_columns(rows[row_indices[row_number]])
                tokens.append(
                    TokensOfEdit(
                        {
                            name: x[row_number, columns]
                            for name, (x, _) in gradients_by_module.items()
                        },
                        {
                            name: gradient[row_number, columns]
                            for name, (_, gradient) in gradients_by_module.items()
                        },
                        dict(zip(terms, losses, strict=True)),
                    )
                )
            return tokens

        lengths = [len(row.forest) for row in rows]
        return made_in_batches(lengths, self.token_budget, read, activity=activity)

    def edit(self, requests: Sequence[EditRequest]) -> list[WeightEdit]:
        """One independent edit per request, normalised by the held-out statistics, or by its own tokens'."""
        self._checked_rows(requests, alone=True)
        return super().edit(requests)

    def edit_rows(self, rows: Sequence[EditRow]) -> list[WeightEdit]:
        """The independent edits of a batch."""
        first_statistics = self._first_statistics
        return [
            self._solved([edit_tokens], first_statistics or self._including({}, [edit_tokens]))
            for edit_tokens in self._tokens(rows)
        ]

    def edit_after(self, earlier: Edit, requests: Sequence[EditRequest]) -> Edit:
        """What requests add to an edited model; the first statistics are the unedited model's."""
        _ = self._first_statistics  # measured now, if they are not
        return super().edit_after(earlier, requests)

    def edit_jointly(self, requests: Sequence[EditRequest]) -> WeightEdit:
        """One turn: all requests' tokens enter the statistics, and one solve."""
        rows = self._checked_rows(requests, alone=False)
        tokens = self._tokens(rows)
        statistics = self._including(self._first_statistics if rows else {}, tokens)
        return self._solved_jointly(tokens, statistics)

    def _solved_jointly(self, tokens: Sequence[TokensOfEdit], statistics: Statistics) -> WeightEdit:
        notes_of_edits = [_notes_of_tokens(edit_tokens) for edit_tokens in tokens]
        solved = self._solved([t for t in tokens if t.failure is None], statistics)
        return solved.with_diagnostics({**solved.diagnostics, **joint_diagnostics(notes_of_edits)})

    def edit_sequentially(self, requests: Sequence[EditRequest]) -> Iterator[Edit]:
        """The cumulative edit after each request, a turn of its own; all are checked first."""
        self._checked_rows(requests, alone=True)
        return super().edit_sequentially(requests)

    def after_turn(self, state: SequenceState, requests: Sequence[EditRequest]) -> SequenceState:
        """One more turn: its tokens enter the statistics of those before."""
        rows = self._checked_rows(requests, alone=len(requests) == 1)
        if not rows:
            return state
        total = only_weights(state.edit, f"{self.method} after another edit")
        before = statistics_of(state.memory) or self._first_statistics  # of the unedited model
        with under_all(self.lm, total):
            tokens = self._tokens(rows)
        statistics = self._including(before, tokens)
        solve = self._solved if len(requests) == 1 else self._solved_jointly
        step = solve(tokens, statistics)
        return SequenceState(total.plus(step), tensors_of(statistics))

    def _solved(self, tokens: Sequence[TokensOfEdit], statistics: Statistics) -> WeightEdit:
        """One solve for each matrix with all tokens."""
        if not tokens or tokens[0].failure:
            return WeightEdit({}, _notes_of_tokens(tokens[0]) if tokens else {})
        deltas = {}
        for name in self.modules:
            inputs = torch.cat([edit_tokens.inputs[name] for edit_tokens in tokens])  # H [n, in]
            gradients = torch.cat(
                [edit_tokens.gradients[name] for edit_tokens in tokens]
            )  # G [n, out]
            z = statistics[self._shape(name)].normalised(torch.cat([inputs, gradients], dim=1))
            h, g = z.split([inputs.shape[1], gradients.shape[1]], dim=1)
            values = -self.hyperparameters.lr * h.square().sum(1, keepdim=True) * g  # V [n, out]
            change = change_of_tokens(inputs.double(), values)
            deltas[name] = LowRank(change.left.float(), change.right.float())
        notes = _notes_of_tokens(tokens[0]) if len(tokens) == 1 else {}
        return WeightEdit(deltas, diagnostics_of(self.lm, deltas, notes))


def _notes_of_tokens(tokens: TokensOfEdit) -> dict[str, Any]:
    """What is recorded of a request with its edit."""
    failure = {"failure": tokens.failure} if tokens.failure else {}
    return {"steps": 1, "losses": [dict(tokens.losses)], **failure}


def _target_columns(row: EditRow) -> list[int]:
    """Where a batch of whole rows predicts the target's tokens: such a row's columns are its nodes."""
    return sorted({prediction.node for prediction in row.target})
