"""Editors of the ROME family on tiny random models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.corpus import TextCorpus
from helpers.editing.editor import Editor
from helpers.editing.memit import AlphaEdit, AlphaEditHyperparameters, Memit, MemitHyperparameters
from helpers.editing.moments import SecondMoment, second_moment
from helpers.editing.rect_prune import Prune, PruneHyperparameters, Rect, RectHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.rome import Rome, RomeHyperparameters
from helpers.editing.update import Update
from helpers.models import LanguageModel
from helpers.scoring.answers import Question, score_answers

CONTEXTS = ("{}", "The sea. {}", "I know it well. {}")
VECTOR = {
    "v_num_grad_steps": 8,
    "v_lr": 0.5,
    "v_weight_decay": 1e-3,
    "clamp_norm_factor": 4.0,
    "kl_factor": 0.0625,
    "context_template_length_params": (),
}
REQUESTS = [
    EditRequest("Mars", "{} is a planet near", "Venus", ("Earth",), ("Paris", "Rome"), "a"),
    EditRequest("Lake Chad", "The shore of {} touches", "Peru", ("Niger",), ("Nepal",), "b"),
    EditRequest("Bach", "{} wrote", "Aida", ("fugues", "a mass"), ("Tosca",), "c"),
]


def _vector_editor(
    name: str, language_model: LanguageModel, moments: dict[int, SecondMoment], **more: Any
) -> Editor:
    app = more.pop("app", None)
    targets = more.pop("targets", "new")
    settings = {**VECTOR, **more}
    flat, grouped = ContextTemplates((CONTEXTS,)), ContextTemplates((CONTEXTS[:1], CONTEXTS[1:]))
    if name in ("rome", "r-rome"):
        key = "averaged" if name == "r-rome" else "bare"
        rome = RomeHyperparameters(**{"layers": (1,), "rome_key": key, **settings})
        return Rome(language_model, rome, flat, moments, app, targets)
    if name == "memit":
        memit = MemitHyperparameters(**{"layers": (1, 2), "mom2_update_weight": 2.0, **settings})
        return Memit(language_model, memit, grouped, moments, app, targets)
    # Half of the directions count as unused.
    threshold = max(float(torch.linalg.eigvalsh(m.matrix).median()) for m in moments.values())
    alpha = AlphaEditHyperparameters(
        **{"layers": (1, 2), "nullspace_threshold": threshold, "L2": 1e-3, **settings}
    )
    return AlphaEdit(language_model, alpha, grouped, moments, app, targets)


@pytest.fixture(scope="session")
def moments_of(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[LanguageModel], dict[int, SecondMoment]]:
    """Second moments of layers 1 and 2, over a few sentences."""
    text = tmp_path_factory.mktemp("corpus") / "text.txt"
    sentences = [r.text + " " + answer for r in REQUESTS for answer in (r.target, *r.correct)]
    text.write_text("\n".join(sentences * 2 + list("abcdefghijklmnopqrstuvwxyz")))

    def measure(language_model: LanguageModel) -> dict[int, SecondMoment]:
        folder = tmp_path_factory.getbasetemp() / "moments" / language_model.fingerprint
        folder.mkdir(parents=True, exist_ok=True)
        return second_moment(language_model, (1, 2), TextCorpus(text, 64), folder=folder)

    return measure


@pytest.fixture(scope="session")
def make_editor(moments_of: Callable[..., Any]) -> Callable[..., Any]:
    """An editor by name on a tiny model; keywords change its hyperparameters, APP and targets."""

    def build(name: str, language_model: LanguageModel, **more: Any) -> Editor:
        moments = moments_of(language_model)
        if name == "rect":
            base = _vector_editor(more.pop("base", "memit"), language_model, moments, **more)
            return Rect(base, RectHyperparameters())
        if name == "prune":
            wrapped = {k: more.pop(k) for k in list(more) if k in PruneHyperparameters.model_fields}
            base = _vector_editor(wrapped.pop("base", "memit"), language_model, moments, **more)
            return Prune(base, PruneHyperparameters(**wrapped))
        return _vector_editor(name, language_model, moments, **more)

    return build


@pytest.fixture(scope="session")
def requests() -> list[EditRequest]:
    return list(REQUESTS)


@pytest.fixture(scope="session")
def protective() -> App:
    return App(0.5, 0.5, 0.5)


@pytest.fixture(scope="session")
def target_scores() -> Callable[..., torch.Tensor]:
    """Mean log-probability of each request's target under its update (None: the plain model)."""

    def score(language_model: LanguageModel, requests: Any, updates: Any = None) -> torch.Tensor:
        questions = [Question(r.text, (r.target,)) for r in requests]
        owners = None if updates is None else range(len(requests))
        table = score_answers(language_model, questions, updates, owners)
        return torch.tensor(table["mean"].to_numpy())

    return score


@pytest.fixture(scope="session")
def same() -> Callable[[Update, Update], bool]:
    """Whether two updates change the same matrices by exactly the same amounts."""

    def compare(one: Update, other: Update) -> bool:
        return one.keys() == other.keys() and all(
            torch.equal(delta.dense(), other[name].dense()) for name, delta in one.items()
        )

    return compare
