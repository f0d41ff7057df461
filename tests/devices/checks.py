"""Everything that touches a model, on another device, against the same on the CPU.

    python -m tests.devices.checks DEVICE [WORD …]

The device is ``elsewhere``, the make-believe one, or ``cuda``; words choose checks. Prints one JSON
line per check: its name, and what went wrong, if anything.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import torch

from benchmarks.plain_editors import PLAIN
from helpers.editing.app import App
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editor import Editor
from helpers.editing.ft import Ft, FtHyperparameters
from helpers.editing.kn import Kn, KnHyperparameters
from helpers.editing.mend import Hypernetwork, Mend, MendHyperparameters
from helpers.editing.rect_prune import Prune, Rect
from helpers.editing.update import Update, apply
from helpers.locating.locators import LOCATORS, make_locator
from helpers.locating.query import Sentence, encode
from helpers.models import LanguageModel
from helpers.scoring.answers import Question, score_answers
from helpers.scoring.responses import Sampling, sample_responses
from tests import conftest as root
from tests.editing import conftest as editing

MODES = ("edit", "edit_jointly", "edit_sequentially")
CLOSE = 2e-3  # nats a token after optimisations on both devices


def _model() -> LanguageModel:
    model, tokenizer = root.random_model(
        root.TINY["llama"], seed=0, dtype=torch.float32, device="cpu"
    )
    return root._ready(LanguageModel("tiny-llama", model, tokenizer))


def _other_device(name: str) -> torch.device:
    if name != "elsewhere":
        return torch.device(name)
    from tests.devices.elsewhere import ELSEWHERE  # which changes torch for good

    return ELSEWHERE


HERE, THERE = _model(), _model()
THERE.model.to(_other_device(sys.argv[1]))
root._ready(THERE)
MOMENTS = editing.second_moment(
    HERE,
    (1, 2),
    editing.TextCorpus(Path(__file__), 64),
    folder=Path(mkdtemp()),
)


def editors(language_model: LanguageModel) -> dict[str, Editor]:
    """One of every kind on a model, those of the ROME family with APP."""
    app = App(0.5, 0.5, 0.5)
    moments = {k: m.to(language_model.device) for k, m in MOMENTS.items()}
    network = Hypernetwork.for_layers(language_model, (2, 3), 4).to(language_model.device)
    made: dict[str, Editor] = {
        name: editing._vector_editor(name, language_model, moments, app=app)
        for name in ("rome", "r-rome", "memit", "alphaedit")
    }
    plain = editing._vector_editor("memit", language_model, moments)
    tuning = {"layers": (1,), "num_steps": 4, "lr": 1e-3}
    return made | {
        "rect": Rect(plain, editing.RectHyperparameters()),
        "prune": Prune(plain, editing.PruneHyperparameters()),
        "ft-m": Ft(language_model, FtHyperparameters(objective="target_new", **tuning), app),
        "ft-l": Ft(language_model, FtHyperparameters(objective="prompt_last", **tuning)),
        "kn": Kn(language_model, KnHyperparameters(steps=2), ContextTemplates((("{}",),))),
        "mend": Mend(language_model, MendHyperparameters(layers=(2, 3), rank=4), network),
    }


def scores(language_model: LanguageModel, updates: list[Update] | None = None) -> torch.Tensor:
    """Mean log-probabilities of the requests' answers."""
    requests = editing.REQUESTS
    questions = [Question(r.text, (r.target, *r.correct)) for r in requests]
    owners = None
    if updates is not None:
        owners = list(range(len(requests))) if len(updates) > 1 else [0] * len(requests)
    return torch.tensor(score_answers(language_model, questions, updates, owners)["mean"])


def scored() -> None:
    """Answers have the same scores on both devices."""
    torch.testing.assert_close(scores(HERE), scores(THERE), atol=1e-4, rtol=0)


def edited(name: str, mode: str) -> None:
    """An editor in a mode gives the same scores on both devices."""
    found = []
    for language_model in (HERE, THERE):
        made = getattr(editors(language_model)[name], mode)(editing.REQUESTS)
        found.append(scores(language_model, [made] if isinstance(made, Update) else list(made)))
    torch.testing.assert_close(*found, atol=CLOSE, rtol=1e-3)


def plainly_edited(name: str) -> None:
    """An editor's plain path, which benchmarks run beside it, gives the same on both devices."""
    found = []
    for language_model in (HERE, THERE):
        made = PLAIN[name](editors(language_model)[name], editing.REQUESTS[0])
        found.append(scores(language_model, [made]) if isinstance(made, Update) else made.cpu())
    torch.testing.assert_close(*found, atol=CLOSE, rtol=1e-3)


def written() -> None:
    """An update that was saved, loaded and written scores as its overlay does."""
    (update, *_) = editors(THERE)["memit"].edit(editing.REQUESTS)
    path = Path(mkdtemp()) / "update.safetensors"
    update.to("cpu").save(path)
    overlaid = scores(THERE, [update])
    with apply(THERE, Update.load(path)):
        torch.testing.assert_close(scores(THERE), overlaid, atol=1e-4, rtol=0)


def sampled() -> None:
    """Responses are the same on both devices, unedited and under an update."""
    (update, *_) = editors(HERE)["memit"].edit(editing.REQUESTS)
    prompts, how = [r.text for r in editing.REQUESTS], Sampling(max_new_tokens=6)
    for updates, owners in ((None, None), ([update], [0, -1, 0])):
        here, there = (
            sample_responses(m, prompts, updates, owners, n=2, sampling=how) for m in (HERE, THERE)
        )
        assert here == there, (here, there)


def located(name: str) -> None:
    """A locator gives the same scores on both devices."""
    sentences = (Sentence("Mars is a planet near _", "Venus", "Mars"), Sentence("Bach _", "a", "B"))
    here, there = (
        torch.tensor(make_locator(name).scores(m, encode(m, sentences))) for m in (HERE, THERE)
    )
    torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-3)


def checks() -> Iterator[tuple[str, Callable[[], None]]]:
    """All checks by name."""
    yield "scoring", scored
    yield "sampling", sampled
    yield "writing", written
    for name in editors(HERE):
        for mode in MODES:
            yield f"{name}, {mode}", lambda name=name, mode=mode: edited(name, mode)
    for name in PLAIN:
        yield f"plain {name}", lambda name=name: plainly_edited(name)
    for name in LOCATORS:
        yield f"locating: {name}", lambda name=name: located(name)


if __name__ == "__main__":
    chosen = sys.argv[2:]
    for name, check in checks():
        if chosen and not any(word in name for word in chosen):
            continue
        problem = ""
        try:
            check()
        except Exception:
            problem = traceback.format_exc()
        print(json.dumps({"check": name, "problem": problem}), flush=True)
