"""Every editor of the registry on tiny random models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch

from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.corpus import TextCorpus
from helpers.editing.editor import Editor
from helpers.editing.editors import EDITORS
from helpers.editing.mend import Hypernetwork, contributes
from helpers.editing.moments import SecondMoment, second_moments
from helpers.editing.request import EditRequest
from helpers.editing.weight_edit import WeightEdit
from helpers.models import LanguageModel
from helpers.scoring.answers import Question, score_answers
from tools.train_mend.trainer import Learner, normalise, untrained

CONTEXTS = ("{}", "The sea. {}", "I know it well. {}")
VECTOR: dict[str, Any] = {
    "v_num_grad_steps": 8,
    "v_lr": 0.5,
    "v_weight_decay": 1e-3,
    "clamp_norm_factor": 4.0,
    "kl_factor": 0.0625,
    "context_template_length_params": (),
}
VALUES: dict[str, dict[str, Any]] = {  # by section
    "rome": {"layers": (1,), **VECTOR},
    "memit": {"layers": (1, 2), "mom2_update_weight": 2.0, **VECTOR},
    "alphaedit": {"layers": (1, 2), "L2": 1e-3, **VECTOR},
    "ft": {"layers": (1,), "num_steps": 6, "lr": 1e-2},
    "encore": {
        "layers": (1, 2),
        "mom2_update_weight": 2.0,
        "update_norm_lambda": 0.01,
        "top_evaluations": 2,
        **VECTOR,
    },
    "emmet": {"layers": (1,), **VECTOR},
    "ultraedit": {"layers": (1, 2), "lr": 0.02, "held_out": 12},
    "simie": {"ridge": 1e-2},
    "lora": {"layers": (0, 1, 2, 3), "rank": 2, "num_steps": 6, "lr": 2e-2},
    "ftbf": {"layers": (1,), "num_steps": 6, "lr": 1e-2},
    "mend": {"layers": (2, 3), "rank": 4},
    "kn": {"steps": 4},
    "grace": {"layers": (2,), "num_steps": 8, "lr": 0.5, "epsilon": 0.01},
    "memoir": {
        "layers": (2,),
        "mask_share": 0.25,
        "num_steps": 8,
        "held_out": 40,
        "context_template_length_params": (),
    },
    "incontext": {},
    "ike": {"k": 2},
    "memory": {},
}
REQUESTS = [
    EditRequest("Mars", "{} is a planet near", "Venus", ("Earth",), ("Paris", "Rome"), "a"),
    EditRequest("Lake Chad", "The shore of {} touches", "Peru", ("Niger",), ("Nepal",), "b"),
    EditRequest("Bach", "{} wrote", "Aida", ("fugues", "a mass"), ("Tosca",), "c"),
]


@pytest.fixture(scope="session")
def moments_of(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[LanguageModel], dict[int, SecondMoment]]:
    """Second moments of layers 1 and 2, over a few sentences."""
    text = tmp_path_factory.mktemp("corpus") / "text.txt"
    sentences = [r.text + " " + answer for r in REQUESTS for answer in (r.target, *r.correct)]
    text.write_text("\n".join(sentences * 2 + list("abcdefghijklmnopqrstuvwxyz")))

    def measure(lm: LanguageModel) -> dict[int, SecondMoment]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("HELPERS_CACHE", str(tmp_path_factory.getbasetemp() / "moments"))
            return second_moments(lm, (1, 2), TextCorpus(text, 64))

    return measure


def untrained_network(lm: LanguageModel, rank: int = 4, rate: float = -2e-3) -> Hypernetwork:
    """MEND's network before training, its normalisation that of the requests, second U random."""
    network = untrained(lm, VALUES["mend"]["layers"], rank)
    gradients = Learner(lm, network).gradients([(r.text, r.target) for r in REQUESTS])
    tokens = {n: torch.cat([x, d], -1)[contributes(x, d)] for n, (x, d) in gradients.items()}
    normalise(network, tokens)
    with torch.no_grad():
        network.rates.fill_(rate)
        for shape in network.networks.values():
            shape.layers[1].left.normal_(std=0.05, generator=torch.Generator().manual_seed(1))
    return network.requires_grad_(False)


@pytest.fixture(scope="session")
def make_editor(moments_of: Callable[..., Any]) -> Callable[..., Any]:
    """An editor by name on a tiny model; keywords change its hyperparameters, objective and targets."""

    def build(name: str, lm: LanguageModel, **more: Any) -> Editor:
        row = EDITORS[name]
        if row.section in ("rect", "prune", "simie"):
            known = row.hyperparameters.model_fields
            own_values = VALUES.get(row.section, {})
            own = {key: more.pop(key) for key in list(more) if key in known and key != "base"}
            base = build(more.pop("base", "memit"), lm, **more)
            return row.editor_class(
                base, row.hyperparameters(**{**own_values, **row.values, **own})
            )
        parts: dict[str, Any] = {key: more.pop(key, None) for key in ("app", "icd")}
        parts["targets"] = more.pop("targets", "new")
        values = {**VALUES[row.section], **row.values, **more}
        if row.section in ("rome", "memit", "alphaedit", "encore", "emmet"):
            flat = ContextTemplates((CONTEXTS,))
            grouped = ContextTemplates((CONTEXTS[:1], CONTEXTS[1:]))
            parts["contexts"] = grouped if row.editor_class.grouped else flat
            parts["second_moments"] = moments_of(lm)
            if values.get("norm_feedback"):
                values = {"held_out": 8, **values}
            if row.section == "alphaedit":  # half of the directions count as unused
                largest = (m.matrix for m in parts["second_moments"].values())
                median = max(float(torch.linalg.eigvalsh(matrix).median()) for matrix in largest)
                values = {"nullspace_threshold": median, **values}
        elif row.section == "mend":
            parts["network"] = untrained_network(lm, values["rank"])
        elif row.section in ("kn", "memoir"):
            parts = {"contexts": ContextTemplates((CONTEXTS,))}
        elif not row.loss:
            parts = {}
        taken = {field.name for field in fields(row.editor_class)}
        parts = {key: part for key, part in parts.items() if key in taken}
        return row.editor_class(lm=lm, hyperparameters=row.hyperparameters(**values), **parts)

    return build


@pytest.fixture(scope="session")
def requests() -> list[EditRequest]:
    return list(REQUESTS)


@pytest.fixture(scope="session")
def protective() -> App:
    return App(0.5, 0.5, 0.5)


@pytest.fixture(scope="session")
def target_scores() -> Callable[..., torch.Tensor]:
    """Mean log-probability of each request's target under its edit (None: the unedited model)."""

    def score(lm: LanguageModel, requests: Any, edits: Any = None) -> torch.Tensor:
        questions = [Question(r.text, (r.target,)) for r in requests]
        owners = None if edits is None else range(len(requests))
        table = score_answers(lm, questions, edits, owners)
        return torch.tensor(table["mean"].to_numpy())

    return score


def assert_same(one: WeightEdit, other: WeightEdit, rtol: float = 1e-3, atol: float = 1e-4) -> None:
    """Both change the same matrices by the same; ``atol`` is a share of the largest entry."""
    assert one.keys() == other.keys()
    for module, delta in other.items():
        dense = delta.dense()
        scale = float(dense.abs().max())
        torch.testing.assert_close(one[module].dense(), dense, rtol=rtol, atol=atol * scale)
