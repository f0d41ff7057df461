"""Everything that touches a model, on another device, against the same on the CPU.

    python -m tests.devices.checks DEVICE [WORD …]

The device is ``elsewhere``, the make-believe one, or ``cuda``; words choose checks. Prints one JSON
line per check: its name, and what went wrong, if anything.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from benchmarks.editing import shape_threshold
from benchmarks.plain import PLAIN
from helpers.editing.app import App
from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.editing.editors import EDITORS
from helpers.editing.memit import AlphaEdit
from helpers.editing.mend import Hypernetwork, Mend, MendHyperparameters
from helpers.editing.request import EditRequest
from helpers.editing.update import Update, apply
from helpers.locating.locators import LOCATORS, make_locator
from helpers.locating.query import Sentence, encode
from helpers.models import LanguageModel
from helpers.models.load import _ready
from helpers.models.shapes import random_model
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses
from tests.conftest import TINY

MODES = ("edit", "edit_jointly", "edit_sequentially")
CLOSE = 2e-3  # nats a token after optimisations on both devices
REQUESTS = [
    EditRequest("Mars", "{} is a planet near", "Venus", ("Earth",), ("Paris", "Rome"), "a"),
    EditRequest("Lake Chad", "The shore of {} touches", "Peru", ("Niger",), ("Nepal",), "b"),
    EditRequest("Bach", "{} wrote", "Aida", ("fugues", "a mass"), ("Tosca",), "c"),
]
VECTOR = {"layers": (1, 2), "v_num_grad_steps": 8, "context_template_length_params": ()}
QUICK: dict[str, dict[str, Any]] = {
    "ft": {"num_steps": 4, "lr": 1e-3},
    "kn": {"steps": 2, "at": "activation", "context_template_length_params": ()},
    "rome": VECTOR | {"layers": (1,)},
    "alphaedit": VECTOR | {"nullspace_threshold": 1e9},
}


def every_editor(language_model: LanguageModel, app: App | None = None) -> dict[str, Editor]:
    """One of every kind on a tiny model, with few steps."""
    network = Hypernetwork.for_layers(language_model, (2, 3), 4).to(language_model.device)
    settings = MendHyperparameters(layers=(2, 3), rank=4)
    made: dict[str, Editor] = {"mend": Mend(language_model, settings, network)}
    options: dict[str, Any] = {"preset": "generic", "corpus": "self-64x32", "memo": {}}
    for name in EDITORS.keys() - made.keys():
        own = app if EDITORS[name].loss else None
        quick = QUICK.get(EDITORS[name].section, VECTOR)
        editor = build_editor(name, language_model, app=own, overrides=quick, **options)
        made[name] = shape_threshold(editor) if isinstance(editor, AlphaEdit) else editor
    return dict(sorted(made.items()))


def two_models(device: str) -> tuple[LanguageModel, LanguageModel]:
    """One tiny model here, and the same on the other device."""
    if device == "elsewhere":
        from tests.devices import elsewhere  # which changes torch for good

        device = str(elsewhere.ELSEWHERE)
    made = []
    for place in ("cpu", device):
        model, tokenizer = random_model(TINY["llama"], seed=0, dtype=torch.float32, device="cpu")
        made.append(_ready(LanguageModel("tiny-llama", model.to(place), tokenizer)))
    here, there = made
    return here, there


def scores(language_model: LanguageModel, updates: list[Update] | None = None) -> torch.Tensor:
    """Mean log-probabilities of the requests' answers."""
    questions = [Question(r.text, (r.target, *r.correct)) for r in REQUESTS]
    owners = None
    if updates is not None:
        owners = list(range(len(REQUESTS))) if len(updates) > 1 else [0] * len(REQUESTS)
    return torch.tensor(score_answers(language_model, questions, updates, owners)["mean"])


def edited(editor: Editor, mode: str) -> torch.Tensor:
    """The scores under what an editor makes in a mode."""
    made = getattr(editor, mode)(REQUESTS)
    updates = [made] if isinstance(made, Update) else list(made)
    return scores(editor.language_model, updates)


def plainly_edited(name: str, editor: Editor) -> torch.Tensor:
    """The same by the plain path, which benchmarks compare with; of KN its attributions."""
    made = PLAIN[name](editor, REQUESTS[0])
    return scores(editor.language_model, [made]) if isinstance(made, Update) else made.cpu()


def written(editor: Editor) -> None:
    """An update that was saved, loaded and written scores as its overlay does."""
    language_model, (update, *_) = editor.language_model, editor.edit(REQUESTS)
    path = Path(mkdtemp()) / "update.safetensors"
    update.to("cpu").save(path)
    overlaid = scores(language_model, [update])
    with apply(language_model, Update.load(path)):
        torch.testing.assert_close(scores(language_model), overlaid, atol=1e-4, rtol=0)


def sampled(language_model: LanguageModel, update: Update) -> list[object]:
    """Responses, unedited and under an update."""
    prompts, how = [r.text for r in REQUESTS], Sampling(max_new_tokens=6)
    return [
        sample_responses(language_model, prompts, updates, owners, n=2, sampling=how)
        for updates, owners in ((None, None), ([update], [0, -1, 0]))
    ]


def located(name: str, language_model: LanguageModel) -> torch.Tensor:
    """A locator's scores of two sentences."""
    sentences = (Sentence("Mars is a planet near _", "Venus", "Mars"), Sentence("Bach _", "a", "B"))
    return torch.tensor(
        make_locator(name).scores(language_model, encode(language_model, sentences))
    )


def checks(device: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """All checks by name."""
    models = two_models(device)
    editors = [every_editor(model, App(0.5, 0.5, 0.5)) for model in models]
    (update, *_) = editors[0]["memit"].edit(REQUESTS)

    def same(of: Callable[[Any], torch.Tensor], pair: Sequence[Any], atol: float) -> None:
        torch.testing.assert_close(*map(of, pair), atol=atol, rtol=1e-3)

    def same_responses() -> None:
        here, there = (sampled(model, update) for model in models)
        assert here == there, (here, there)

    yield "scoring", partial(same, scores, models, 1e-4)
    yield "sampling", same_responses
    yield "writing", partial(written, editors[1]["memit"])
    for name in editors[0]:
        pair = [own[name] for own in editors]
        for mode in MODES if name in ("rome", "memit", "ft-m") else MODES[:1]:
            yield f"{name}, {mode}", partial(same, partial(edited, mode=mode), pair, CLOSE)
        if name in PLAIN:
            yield f"plain {name}", partial(same, partial(plainly_edited, name), pair, CLOSE)
    for name in LOCATORS:
        yield f"locating: {name}", partial(same, partial(located, name), models, 1e-4)


if __name__ == "__main__":
    os.environ["HELPERS_CACHE"] = mkdtemp()
    for name, check in checks(sys.argv[1]):
        if sys.argv[2:] and not any(word in name for word in sys.argv[2:]):
            continue
        problem = ""
        try:
            check()
        except Exception:
            problem = traceback.format_exc()
        print(json.dumps({"check": name, "problem": problem}), flush=True)
