"""Context templates, and the keys and values that a module has at the subject in them.

Templates are short texts sampled from the model that precede the edit prompt: they make an edit hold
in more than one context. They are sampled once, seeded, and cached by the model's fingerprint. (The
packaged ones of smollm2-135m were seeded anew for each length: short ones begin the long ones.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm.auto import tqdm

from helpers.editing.corpus import written_by
from helpers.editing.edit import Edit
from helpers.editing.editor import made_in_batches
from helpers.editing.running import under
from helpers.kept import load_or_make
from helpers.models import LanguageModel
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states
from helpers.models.hooks import record
from helpers.models.products import exact_products
from helpers.models.shapes import SHAPE_PREFIX, SHAPE_TOKENIZER, seeded
from helpers.models.state import in_own_state
from helpers.models.tokens import SubjectPrompt
from helpers.models.weights import PACKAGED_WEIGHTS
from helpers.paths import PACKAGED, cache_folder

BARE = "{}"
START_WORDS = ("The", "Therefore", "Because", "I", "You")


@dataclass(frozen=True)
class ContextTemplates:
    """Templates in groups, the bare one first; averages are taken inside a group, then over groups.

    One group with everything is ROME's plain mean; ({bare}, {sampled}) is MEMIT's weighting.
    """

    groups: tuple[tuple[str, ...], ...]

    @property
    def templates(self) -> tuple[str, ...]:
        """All templates, the bare one first."""
        return tuple(template for group in self.groups for template in group)

    @property
    def weights(self) -> tuple[float, ...]:
        """Weight of each template in averages of keys; they sum to one."""
        share = 1 / len(self.groups)
        return tuple(share / len(group) for group in self.groups for _ in group)

    def averaged(self, keys: Tensor) -> Tensor:
        """The weighted mean [f] of one edit's keys [templates, f], in their type."""
        return torch.tensor(self.weights, device=keys.device, dtype=keys.dtype) @ keys


@in_own_state
def context_templates(
    lm: LanguageModel,
    lengths: Sequence[tuple[int, int]],
    *,
    grouped: bool,
    start: str = "words",
    seed: int = 0,
) -> ContextTemplates:
    """Sample templates (top-k 5, no temperature), or read those sampled before.

    ``lengths`` are pairs (total tokens, number of templates), spread over five start words or, as ROME's
    own code does, begun with the end-of-text token. ``grouped``: the bare one is a group of its own.
    """
    name = "_".join(f"{length}x{count}" for length, count in lengths) or "bare"
    file_name = f"{name}_{start}_seed{seed}.json"
    # Packaged for the embedded models; random models write no text and take those.
    is_random = lm.name.startswith(SHAPE_PREFIX)
    writer = PACKAGED_WEIGHTS[SHAPE_TOKENIZER] if is_random else lm
    path = PACKAGED / "samples" / writer.fingerprint / "context_templates" / file_name
    if not path.exists():
        # The 3 is raised when templates are sampled in another way.
        path = cache_folder("context_templates_3", lm.fingerprint) / file_name

    def make(scratch: Path) -> None:
        # Seeded once, or short templates would be beginnings of long ones.
        with seeded(seed, lm.device), exact_products():
            bar = tqdm(lengths, desc=f"sampling context templates of {lm.name}, once")
            texts = [t for pair in bar for t in _sample(lm, *pair, start)]
        scratch.write_text(json.dumps(texts, ensure_ascii=False, indent=1), "utf-8")

    sampled = load_or_make(path, lambda path: json.loads(path.read_text("utf-8")), make)
    if grouped and sampled:
        return ContextTemplates(((BARE,), tuple(sampled)))
    return ContextTemplates(((BARE, *sampled),))


def _sample(lm: LanguageModel, length: int, count: int, start: str) -> list[str]:
    tokenizer = lm.tokenizer
    texts = [tokenizer.eos_token] * count
    if start == "words":
        if count % len(START_WORDS):
            raise ValueError(f"{count} templates are not a multiple of {len(START_WORDS)} words")
        texts = [word for word in START_WORDS for _ in range(count // len(START_WORDS))]
    starts: list[list[int]] = tokenizer(texts)["input_ids"]
    # Together only where they are equally long, as these words are: padding would be read as text.
    alike = len({len(ids) for ids in starts}) == 1
    templates = []
    for group in [starts] if alike else [[ids] for ids in starts]:
        ids = torch.tensor(group, device=lm.device)
        for row in written_by(lm, ids, max(1, length - ids.shape[1]), top_k=5):
            text = tokenizer.decode(row, skip_special_tokens=True)
            # One line, no braces (they would be slots), no trailing blank or full stop.
            text = re.sub(r"[\s{}]+", " ", text).strip().rstrip(".")
            templates.append(f"{text}. {{}}")
    return templates


@torch.no_grad()
def read_at_subjects(
    lm: LanguageModel,
    prompts: Sequence[Sequence[SubjectPrompt]],
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    edits: Sequence[Edit] | None = None,
) -> dict[str, list[Tensor]]:
    """Inputs (keys) and outputs (values) of modules at the subject's last token, read in one pass.

    Args:
        prompts: of each request.
        inputs: names of the modules whose inputs are read.
        outputs: names of those whose outputs are read.
        edits: one for each request, under which its prompts run; None: the unedited model.

    Returns:
        By module a tensor [prompts, size] for each request.
    """
    module_names = (*inputs, *outputs)
    forests = []
    subject_nodes = []  # of each request, in each of its prompts
    for prompts_of_request in prompts:
        forest = Forest()
        # Nothing reads what follows the subject, so it need not run.
        beginnings = [prompt.ids[: prompt.subject_last + 1] for prompt in prompts_of_request]
        subject_nodes.append([forest.add(ids)[-1] for ids in beginnings])
        forests.append(forest)

    def read(indices: Sequence[int]) -> list[dict[str, Tensor]]:
        packed = pack([forests[index] for index in indices], lm)
        owners = indices if edits is not None else [-1] * len(indices)
        with (
            under(lm, edits or [], owners),
            record(lm, inputs=inputs, outputs=outputs) as recorded,
        ):
            hidden_states(lm, packed.ids, packed.positions, packed.visible)
        return [
            {name: recorded[name][row, subject_nodes[index]].float() for name in module_names}
            for row, index in enumerate(indices)
        ]

    by_request = made_in_batches([len(forest) for forest in forests], 4096, read)
    return {name: [of_request[name] for of_request in by_request] for name in module_names}
