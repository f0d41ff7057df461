"""Which editors are one method: identities between their solutions, each with its measured difference.

An identity is measured on made-up second moments, keys and values, with the editors' own solvers; what they
are compared with is the formula as it is printed. Tests hold every row to its tolerance, and a notebook
shows the same rows. Differences are relative, in the Frobenius norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from helpers.editing.contexts import BARE, ContextTemplates
from helpers.editing.emmet import Emmet, EmmetHyperparameters
from helpers.editing.interventions import LowRank
from helpers.editing.key_history import KeyHistory, remember
from helpers.editing.memit import (
    AlphaEdit,
    AlphaEditHyperparameters,
    Memit,
    MemitHyperparameters,
    SpreadingEditor,
)
from helpers.editing.moments import SecondMoment
from helpers.editing.rome import Rome, RomeHyperparameters
from helpers.editing.ultraedit import change_of_tokens
from helpers.editing.vector import Vector
from helpers.models import LanguageModel

SIZE_IN, SIZE_OUT, EDITS = 24, 10, 5  # f, d and n of the made-up problem
_VECTOR: dict[str, Any] = {
    "layers": (0,),
    "v_num_grad_steps": 1,
    "v_lr": 0.5,
    "v_weight_decay": 0.0,
    "clamp_norm_factor": 4.0,
    "kl_factor": 0.0,
    "context_template_length_params": (),
}
_CONTEXTS = ContextTemplates(((BARE,),))


class Problem(NamedTuple):
    """A matrix and what is to be written into it, in fp64."""

    weight: Tensor  # W [d, f]
    moment: Tensor  # C [f, f]
    keys: Tensor  # K [f, n]
    values: Tensor  # V [d, n]

    @property
    def residuals(self) -> Tensor:
        """R = V - W K."""
        return self.values - self.weight @ self.keys


def made_up_problem(seed: int = 0) -> Problem:
    """Numbers without meaning; C is ill-conditioned as those of models are."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    samples = normal(4 * SIZE_IN, SIZE_IN) * torch.logspace(-2, 1, SIZE_IN, dtype=torch.float64)
    moment = (samples.T @ samples / len(samples)).float().double()
    return Problem(
        weight=normal(SIZE_OUT, SIZE_IN),
        moment=moment,
        keys=normal(SIZE_IN, EDITS),
        values=normal(SIZE_OUT, EDITS),
    )


def relative_difference(one_side: Tensor, other_side: Tensor) -> float:
    """||one_side - other_side|| / ||other_side||."""
    return float((one_side.double() - other_side.double()).norm() / other_side.double().norm())


def _moments(lm: LanguageModel, problem: Problem) -> dict[int, SecondMoment]:
    return {0: SecondMoment(problem.moment.float(), 100, 0, lm.fingerprint, "made up")}


def _memit(lm: LanguageModel, problem: Problem, weight: float) -> Memit:
    hyperparameters = MemitHyperparameters(**_VECTOR, mom2_update_weight=weight)
    return Memit(lm, hyperparameters, _CONTEXTS, _moments(lm, problem))


def _alphaedit(lm: LanguageModel, problem: Problem) -> AlphaEdit:
    threshold = float(torch.linalg.eigvalsh(problem.moment).median())
    hyperparameters = AlphaEditHyperparameters(**_VECTOR, nullspace_threshold=threshold, L2=0.1)
    return AlphaEdit(lm, hyperparameters, _CONTEXTS, _moments(lm, problem))


def rome_is_emmet(lm: LanguageModel) -> float:
    """One edit's update by ROME, which is kept in fp32, and by EMMET."""
    problem = made_up_problem()
    key = problem.keys[:, :1]  # [f, 1]
    residual = problem.residuals[:, :1]  # [d, 1]
    moments = _moments(lm, problem)
    rome = Rome(lm, RomeHyperparameters(**_VECTOR), _CONTEXTS, moments)
    vector = Vector(residual[:, 0], torch.zeros(SIZE_OUT))
    (by_rome,) = rome._weight_edit(0, key.T, vector).values()
    emmet = Emmet(lm, EmmetHyperparameters(**_VECTOR), _CONTEXTS, moments)
    left, right = emmet.solve_each(0, key, residual)
    return relative_difference(by_rome.dense(), left @ right.T)


def emmet_is_memit(lm: LanguageModel) -> float:
    """EMMET with e > 0 as its formula is printed, and MEMIT with lambda = e w."""
    problem = made_up_problem()
    e, w = 0.1, 100.0
    weighted = torch.linalg.solve(w * problem.moment, problem.keys)  # (w C)^-1 K
    gram_matrix = problem.keys.T @ weighted + e * torch.eye(EDITS, dtype=torch.float64)
    printed_update = problem.residuals @ torch.linalg.solve(gram_matrix, weighted.T)
    left, right = _memit(lm, problem, e * w).solve_jointly(0, problem.keys, problem.residuals)
    return relative_difference(left @ right.T, printed_update)


def _sequence(editor: SpreadingEditor, problem: Problem, *, remembering: bool) -> Tensor:
    """What a sequence of single edits adds to W, residuals taken against the W of its time."""
    history = KeyHistory()
    change = torch.zeros_like(problem.weight)
    for number in range(EDITS):
        key = problem.keys[:, [number]]
        residual = problem.values[:, [number]] - (problem.weight + change) @ key
        left, right = editor.solve_jointly(0, key, residual, history)
        change = change + left @ right.T
        if remembering:
            remember(history, 0, key)
    return change


def _sequence_against_joint(editor: SpreadingEditor, problem: Problem, remembering: bool) -> float:
    left, right = editor.solve_jointly(0, problem.keys, problem.residuals)
    return relative_difference(_sequence(editor, problem, remembering=remembering), left @ right.T)


def accumulated_memit_is_joint(lm: LanguageModel) -> float:
    """MEMIT's sequence that accumulates, and its joint edit."""
    problem = made_up_problem()
    return _sequence_against_joint(_memit(lm, problem, 2.0), problem, remembering=True)


def memoryless_memit_is_joint(lm: LanguageModel) -> float:
    """MEMIT's sequence as published, and its joint edit."""
    problem = made_up_problem()
    return _sequence_against_joint(_memit(lm, problem, 2.0), problem, remembering=False)


def alphaedit_is_joint(lm: LanguageModel) -> float:
    """AlphaEdit's sequence with its cache, and its joint edit."""
    problem = made_up_problem()
    return _sequence_against_joint(_alphaedit(lm, problem), problem, remembering=True)


def memoryless_alphaedit_is_joint(lm: LanguageModel) -> float:
    """AlphaEdit's sequence without its cache, and its joint edit."""
    problem = made_up_problem()
    return _sequence_against_joint(_alphaedit(lm, problem), problem, remembering=False)


def ultraedit_primal_is_dual(_: LanguageModel) -> float:
    """UltraEdit's solve with f x f numbers, as printed, and with n x n, as here."""
    problem = made_up_problem()
    inputs, values = problem.keys.T, problem.values.T  # H [n, f], V [n, d]
    gram = inputs.T @ inputs + torch.eye(SIZE_IN, dtype=torch.float64)
    primal = torch.linalg.solve(gram, inputs.T @ values).T  # [d, f]
    return relative_difference(change_of_tokens(inputs, values).dense(), primal)


def ultraedit_one_token(_: LanguageModel) -> float:
    """UltraEdit of one token, and v h^T / (1 + ||h||^2)."""
    problem = made_up_problem()
    h, v = problem.keys[:, 0], problem.values[:, 0]
    change: LowRank = change_of_tokens(h[None], v[None])
    return relative_difference(change.dense(), torch.outer(v, h) / (1 + h @ h))


def ultraedit_orthogonal_tokens(_: LanguageModel) -> float:
    """UltraEdit of tokens with orthogonal inputs, and the sum of each token's edit."""
    problem = made_up_problem()
    inputs = 3 * torch.linalg.qr(problem.keys).Q.T  # H [n, f]
    values = problem.values.T
    single_changes = [change_of_tokens(inputs[[i]], values[[i]]).dense() for i in range(EDITS)]
    return relative_difference(
        change_of_tokens(inputs, values).dense(), torch.stack(single_changes).sum(0)
    )


@dataclass(frozen=True)
class Identity:
    """Two sides, and how far apart they are allowed to be; ``differs``: how far they must be at least."""

    name: str
    one_side: str
    other_side: str
    measure: Callable[[LanguageModel], float]
    tolerance: float = 1e-9
    differs: float | None = None

    def holds(self, difference: float) -> bool:
        """Whether a measured difference is what the identity, or its denial, says."""
        return difference <= self.tolerance if self.differs is None else difference >= self.differs


IDENTITIES = (
    Identity(
        "rome", "ROME, one edit, bare key", "EMMET (e = 0), one edit", rome_is_emmet, tolerance=1e-6
    ),
    Identity("emmet", "EMMET as shipped (e > 0)", "MEMIT on one layer, λ = e w", emmet_is_memit),
    Identity("memit-seq", "MEMIT, accumulated sequence", "joint edit", accumulated_memit_is_joint),
    Identity("memit", "MEMIT, sequence", "joint edit", memoryless_memit_is_joint, differs=1e-2),
    Identity("alphaedit", "AlphaEdit, sequence with its cache", "joint edit", alphaedit_is_joint),
    Identity(
        "alphaedit without cache",
        "AlphaEdit, sequence without its cache",
        "joint edit",
        memoryless_alphaedit_is_joint,
        differs=1e-2,
    ),
    Identity("ultraedit", "UltraEdit, f × f", "UltraEdit, n × n", ultraedit_primal_is_dual),
    Identity("ultraedit-1", "UltraEdit, one token", "v hᵀ / (1 + h·h)", ultraedit_one_token),
    Identity(
        "ultraedit-n",
        "UltraEdit, orthogonal inputs",
        "sum of single tokens",
        ultraedit_orthogonal_tokens,
    ),
)


def identity_table(lm: LanguageModel, identities: Sequence[Identity] = IDENTITIES) -> pd.DataFrame:
    """A row for each identity: both sides, the measured difference, whether they are one method."""
    rows = {}
    for identity in identities:
        difference = identity.measure(lm)
        rows[identity.name] = {
            "one side": identity.one_side,
            "other side": identity.other_side,
            "difference": difference,
            "one method": identity.differs is None,
            "as stated": identity.holds(difference),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("identity")
