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
from helpers.editing.ft import Ft, FtHyperparameters
from helpers.editing.ftbf import FtBf, FtBfHyperparameters
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
from helpers.editing.rect_prune import Prune, PruneHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome, RomeHyperparameters
from helpers.editing.ultraedit import change_of_tokens
from helpers.editing.vector import Vector
from helpers.editing.weight_edit import WeightEdit, only_weights
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
_REQUEST = EditRequest("Mars", "{} is a planet near", "Venus")


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


def _memit_on_model(lm: LanguageModel, *, accumulate: bool = False) -> Memit:
    """MEMIT at the first layer of a model, with the unit matrix as its second moment."""
    moment = torch.eye(lm.layout.intermediate_size)
    moments = {0: SecondMoment(moment, 100, 0, lm.fingerprint, "made up")}
    hyperparameters = MemitHyperparameters(**_VECTOR, mom2_update_weight=2.0, accumulate=accumulate)
    return Memit(lm, hyperparameters, _CONTEXTS, moments)


def _difference_of_edits(one_edit: WeightEdit, other_edit: WeightEdit) -> float:
    """The largest relative difference of the edits' deltas."""
    return max(
        relative_difference(delta.dense(), other_edit[name].dense())
        for name, delta in one_edit.items()
    )


def accumulated_memit_alone_is_memit(lm: LanguageModel) -> float:
    """The first edit of a sequence that accumulates, and MEMIT's."""
    (first_edit,) = _memit_on_model(lm, accumulate=True).edit_sequentially([_REQUEST])
    (edit,) = _memit_on_model(lm).edit([_REQUEST])
    return _difference_of_edits(only_weights(first_edit, "an identity"), edit)


def prune_alone_is_memit(lm: LanguageModel) -> float:
    """PRUNE's edit alone, and that of MEMIT, its base."""
    memit = _memit_on_model(lm)
    (edit,) = memit.edit([_REQUEST])
    (restrained_edit,) = Prune(memit, PruneHyperparameters()).edit([_REQUEST])
    return _difference_of_edits(restrained_edit, edit)


def one_request_of_ft_bf_is_ft_m(lm: LanguageModel) -> float:
    """FT-BF's joint edit of one request, and FT-M's with the end of the text."""
    settings: dict[str, Any] = {"layers": (0,), "num_steps": 3, "lr": 1e-3, "eos": True}
    ft_m = Ft(lm, FtHyperparameters(**settings, objective="target_new"))
    (edit,) = ft_m.edit([_REQUEST])
    joint_edit = FtBf(lm, FtBfHyperparameters(**settings)).edit_jointly([_REQUEST])
    return _difference_of_edits(joint_edit, edit)


@dataclass(frozen=True)
class Identity:
    """Two sides, and how far apart they are allowed to be; ``differs``: how far they must be at least."""

    name: str
    one_side: str
    other_side: str
    measure: Callable[[LanguageModel], float]
    tolerance: float = 1e-9
    differs: float | None = None
    rows: str = ""  # of a comparison of editors, which are therefore one method or not

    @property
    def test(self) -> str:
        """The unit test that holds it."""
        return f"test_identities.py::test_what_is_called_one_method_is_one[{self.name}]"

    def holds(self, difference: float) -> bool:
        """Whether a measured difference is what the identity, or its denial, predicts."""
        return difference <= self.tolerance if self.differs is None else difference >= self.differs


IDENTITIES = (
    Identity(
        "rome",
        "ROME, one edit, bare key",
        "EMMET (e = 0), one edit",
        rome_is_emmet,
        tolerance=1e-6,
        rows="ROME and EMMET, but for EMMET's key, which is a mean over contexts",
    ),
    Identity(
        "emmet",
        "EMMET as shipped (e > 0)",
        "MEMIT on one layer, λ = e w",
        emmet_is_memit,
        rows="EMMET with e > 0 is MEMIT, so only e = 0 has a row",
    ),
    Identity(
        "memit-seq-1",
        "MEMIT, accumulated, first edit",
        "MEMIT, edit alone",
        accumulated_memit_alone_is_memit,
        tolerance=1e-6,
        rows="alone: MEMIT and MEMIT accumulated",
    ),
    Identity(
        "prune-1",
        "PRUNE, edit alone",
        "MEMIT, edit alone",
        prune_alone_is_memit,
        tolerance=1e-6,
        rows="alone: MEMIT and PRUNE, as long as no singular value exceeds the matrix's largest",
    ),
    Identity(
        "ft-bf-1",
        "FT-BF, one request",
        "FT-M with eos, one request",
        one_request_of_ft_bf_is_ft_m,
        tolerance=1e-4,
        rows="alone: FT-BF and FT-M, but for the end of the text in FT-BF's target",
    ),
    Identity(
        "memit-seq",
        "MEMIT, accumulated sequence",
        "joint edit",
        accumulated_memit_is_joint,
        rows="in sequence: MEMIT accumulated and MEMIT jointly, for fixed keys and values",
    ),
    Identity(
        "memit",
        "MEMIT, sequence",
        "joint edit",
        memoryless_memit_is_joint,
        differs=1e-2,
        rows="in sequence: MEMIT is a method of its own",
    ),
    Identity(
        "alphaedit",
        "AlphaEdit, sequence with its cache",
        "joint edit",
        alphaedit_is_joint,
        rows="in sequence: AlphaEdit and AlphaEdit jointly, for fixed keys and values",
    ),
    Identity(
        "alphaedit without cache",
        "AlphaEdit, sequence without its cache",
        "joint edit",
        memoryless_alphaedit_is_joint,
        differs=1e-2,
        rows="in sequence: without its cache AlphaEdit is another method",
    ),
    Identity(
        "ultraedit",
        "UltraEdit, f × f",
        "UltraEdit, n × n",
        ultraedit_primal_is_dual,
        rows="UltraEdit, whichever system it solves",
    ),
    Identity(
        "ultraedit-1",
        "UltraEdit, one token",
        "v hᵀ / (1 + h·h)",
        ultraedit_one_token,
        rows="none: its update of one token is of rank one, as ROME's, along another key",
    ),
    Identity(
        "ultraedit-n",
        "UltraEdit, orthogonal inputs",
        "sum of single tokens",
        ultraedit_orthogonal_tokens,
        rows="none: tokens with other inputs do not interact",
    ),
)


def identity_table(lm: LanguageModel, identities: Sequence[Identity] = IDENTITIES) -> pd.DataFrame:
    """A row for each identity: both sides, the measured difference, whether they are one method.

    ``held by`` is the unit test, ``rows`` which rows of a comparison are therefore one method, or are not.
    """
    rows = {}
    for identity in identities:
        difference = identity.measure(lm)
        rows[identity.name] = {
            "one side": identity.one_side,
            "other side": identity.other_side,
            "difference": difference,
            "one method": identity.differs is None,
            "as stated": identity.holds(difference),
            "held by": identity.test,
            "rows": identity.rows,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("identity")


def atlas(lm: LanguageModel) -> pd.DataFrame:
    """``identity_table`` as readers see it."""
    table = identity_table(lm)
    signs = table["one method"].map({True: "=", False: "≠"})
    return pd.DataFrame(
        {
            "what is equal": table["one side"] + " " + signs + " " + table["other side"],
            "difference": table["difference"].map("{:.0e}".format),
            "rows of one method": table["rows"],
            "held by": table["held by"],
        }
    )
