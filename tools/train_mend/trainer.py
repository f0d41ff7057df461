"""One training run of MEND's hypernetwork: its objective, its state, its steps and its measures.

    loss = edit_weight · NLL(target | paraphrase, edited) + locality_weight · KL(base || edited)

An edit in one wording is asked for in another, other facts stay. The update is differentiated through;
inputs and gradients it is made of count as constants. All blocks below the first edited one see nothing
of an edit, so each text runs through them once.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from helpers.editing.batch import EditBatch
from helpers.editing.mend import Hypernetwork, NetworkError, contributes, token_gradients
from helpers.editing.rows import EditRow
from helpers.kept import DamagedError, kept_whole, read_kept
from helpers.models.forest import pack
from helpers.models.forward import hidden_states
from helpers.models.hooks import OnOutput, output_hooks, record
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.paths import PACKAGED, written_whole
from helpers.triples.sources import packaged_triples
from helpers.triples.store import TripleFact

TEMPLATES = PACKAGED / "mend" / "templates.yaml"
FIRST_RATE = -2e-4  # of the updates; negative, as they descend
Text = tuple[str, str]  # a prompt and the answer after it


@dataclass(frozen=True)
class TrainingRecord:
    """One edit to learn from: wordings of a fact, the edit prompt first, a new answer and a true one."""

    subject: str
    prompts: tuple[str, ...]
    target: str
    known: str
    relation: str


def packaged_records(*, per_relation: int = 80, seed: int = 0) -> list[TrainingRecord]:
    """Records from the packaged facts, at most ``per_relation`` of each relation, shuffled."""
    templates = yaml.safe_load(TEMPLATES.read_text(encoding="utf-8"))
    facts = defaultdict(list)
    for fact in packaged_triples():
        if fact.relation in templates and fact.subject.isprintable():
            facts[fact.relation].append(fact)
    records = []
    for relation, own in sorted(facts.items()):
        generator = random.Random(f"{seed} {relation}")
        records += _of_relation(own, templates[relation], per_relation, generator)
    random.Random(seed).shuffle(records)
    return records


def _of_relation(
    facts: Sequence[TripleFact], templates: Sequence[str], count: int, generator: random.Random
) -> list[TrainingRecord]:
    answers = defaultdict(set)
    for fact in facts:
        answers[fact.subject].add(fact.object)
    others = sorted({fact.object for fact in facts})
    subjects = generator.sample(sorted(answers), len(answers))
    records: list[TrainingRecord] = []
    while subjects and len(records) < count:
        # A subject comes a second time, with another new answer, where there are too few of them.
        for subject in subjects[: count - len(records)]:
            free = [answer for answer in others if answer not in answers[subject]]
            if not free:
                continue
            wordings = generator.sample(list(templates), len(templates))
            prompts = tuple(wording.replace("{}", subject) for wording in wordings)
            known = generator.choice(sorted(answers[subject]))
            records.append(
                TrainingRecord(subject, prompts, generator.choice(free), known, facts[0].relation)
            )
        if len(records) >= 3 * len(subjects):
            break
    return records


def split(
    records: Iterable[TrainingRecord], *, held_out: int, seed: int = 0
) -> tuple[list[TrainingRecord], list[TrainingRecord]]:
    """Training and ``held_out`` records; no subject is on both sides."""
    records = list(records)
    counts = Counter(record.subject for record in records)
    subjects = sorted(counts)
    random.Random(seed).shuffle(subjects)
    drawn: set[str] = set()
    for subject in subjects:
        if sum(counts[s] for s in drawn) < held_out:
            drawn.add(subject)
    training = [record for record in records if record.subject not in drawn]
    return training, [record for record in records if record.subject in drawn][:held_out]


@dataclass(frozen=True)
class _State:
    """A text's row, what enters the first edited block, and the unedited final states (on the CPU)."""

    row: EditRow
    entering: Tensor
    final: Tensor


@dataclass
class TextStates:
    """States of texts, computed when first asked for."""

    lm: LanguageModel
    layer: int
    _states: dict[Text, _State] = field(default_factory=dict)

    def batch(self, texts: Sequence[Text]) -> tuple[EditBatch, Tensor]:
        """The texts as a batch, and their unedited final hidden states [rows, width, hidden]."""
        self._prepare([text for text in dict.fromkeys(texts) if text not in self._states])
        states = [self._states[text] for text in texts]
        rows = [state.row for state in states]
        entering, final = (
            pad_sequence(list(padded), batch_first=True).to(self.lm.device)
            for padded in zip(*((state.entering, state.final) for state in states), strict=True)
        )
        batch = EditBatch(self.lm, rows, self.layer, entering=entering)
        return batch, final

    @torch.no_grad()
    def _prepare(self, texts: Sequence[Text]) -> None:
        if not texts:
            return
        rows = [EditRow(" ".join(text)) for text in texts]
        for row, (prompt, answer) in zip(rows, texts, strict=True):
            ids = (prompt_ids(self.lm, prompt), answer_ids(self.lm, answer))
            row.target += row.predict(*ids)
        packed = pack([row.forest for row in rows], self.lm)
        block = self.lm.layout.block(self.layer)
        norm = self.lm.layout.architecture.final_norm
        with record(self.lm, inputs=[block], outputs=[norm]) as seen:
            hidden_states(self.lm, packed.ids, packed.positions, packed.visible)
        for place, (text, row) in enumerate(zip(texts, rows, strict=True)):
            own = place, slice(len(row.forest))
            entering, final = (seen[module][own].clone().cpu() for module in (block, norm))
            self._states[text] = _State(row, entering, final)


class Learner:
    """A hypernetwork with the model whose gradients it reads; texts start at its first layer."""

    def __init__(self, lm: LanguageModel, network: Hypernetwork) -> None:
        first = min(lm.layout.layer_of(name) for name in network.shapes)
        self.network, self.states = network, TextStates(lm, first)

    def gradients(self, edits: Sequence[Text]) -> dict[str, tuple[Tensor, Tensor]]:
        """Inputs and output gradients of the edits' tokens (see ``token_gradients``)."""
        batch, _ = self.states.batch(edits)
        return token_gradients(batch, list(self.network.shapes))[0]

    def factors(self, edits: Sequence[Text]) -> dict[str, tuple[Tensor, Tensor]]:
        """Right [edits, tokens, in] and left [edits, tokens, out] of each matrix's updates."""
        return {name: self.network(name, x, d) for name, (x, d) in self.gradients(edits).items()}

    def nll(
        self, factors: dict[str, tuple[Tensor, Tensor]], texts: Sequence[Text], owners: Tensor
    ) -> Tensor:
        """Mean NLL of each text's answer [texts], under the update of its owner."""
        batch, _ = self.states.batch(texts)
        with _edited(self.states.lm, factors, owners):
            return batch.loss_terms(batch.hidden())["nll"]

    def change(
        self, factors: dict[str, tuple[Tensor, Tensor]], texts: Sequence[Text]
    ) -> tuple[Tensor, Tensor]:
        """What edit i does to text i: KL(base || edited) and the share of equal best tokens, both means over
        all the text's positions, [texts].
        """
        batch, final = self.states.batch(texts)
        head = self.states.lm.network.get_output_embeddings()
        lengths = torch.tensor([active for active, _ in batch.lengths], device=final.device)
        real = torch.arange(final.shape[1], device=final.device) < lengths[:, None]
        with _edited(self.states.lm, factors, torch.arange(len(texts))):
            edited = head(batch.hidden()[real]).float().log_softmax(-1)
        with torch.no_grad():
            base = head(final[real]).float().log_softmax(-1)
        row = real.nonzero()[:, 0]
        divergence = (base.exp() * (base - edited)).sum(-1)
        same = (base.argmax(-1) == edited.argmax(-1)).float()
        sums = divergence.new_zeros(2, len(texts))
        sums = sums.index_add(1, row, torch.stack([divergence, same]))
        kl, agreement = sums / lengths
        return kl, agreement


@contextmanager
def _edited(
    lm: LanguageModel, factors: dict[str, tuple[Tensor, Tensor]], owners: Tensor
) -> Iterator[None]:
    """Run row i under the update of edit ``owners[i]``, differentiably in the factors."""

    def adding(right: Tensor, left: Tensor) -> OnOutput:
        def on_output(x: Tensor, output: Tensor) -> Tensor:
            added = (x.float() @ right[owners].mT) @ left[owners]
            return output + added.to(output.dtype)

        return on_output

    with output_hooks(lm, {name: adding(*pair) for name, pair in factors.items()}):
        yield


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Everything but model and records that the trained network depends on.

    Both learning rates fall linearly to zero at the last step. The weights are the published ones.
    ``measured`` records give the normalisation.
    """

    rank: int = 128
    steps: int = 1200
    batch: int = 10
    learning_rate: float = 1e-3
    rate_learning_rate: float = 2e-6
    layers: tuple[int, ...]
    edit_weight: float = 0.1
    locality_weight: float = 1.0
    largest_gradient: float = 100.0
    measured: int = 100
    seed: int = 0


class _Task(NamedTuple):
    """One edit to learn from: edited text, text asked afterwards, text that must stay."""

    edit: Text
    outer: Text
    locality: Text


def draw_tasks(records: Sequence[TrainingRecord], count: int, seed: str) -> list[_Task]:
    """Choose records, two of each one's wordings, and other facts, half of the same relation."""
    generator = random.Random(seed)
    tasks = []
    for drawn in generator.sample(list(records), min(count, len(records))):
        edit, outer = generator.sample(drawn.prompts, 2)
        others = [r for r in records if r.subject != drawn.subject]
        alike = [r for r in others if r.relation == drawn.relation]
        other = generator.choice(alike if alike and generator.random() < 0.5 else others)
        locality = (other.prompts[0], other.known)
        tasks.append(_Task((edit, drawn.target), (outer, drawn.target), locality))
    return tasks


class Trainer:
    """Network, optimiser and step, which a checkpoint brings back exactly."""

    def __init__(
        self,
        lm: LanguageModel,
        records: Sequence[TrainingRecord],
        settings: TrainingSettings,
    ) -> None:
        self.settings, self.records, self.step = settings, list(records), 0
        self.network = untrained(lm, settings.layers, settings.rank, settings.seed)
        self.learner = Learner(lm, self.network)
        learned = [p for p in self.network.parameters() if p is not self.network.rates]
        groups = [
            {"params": learned, "lr": settings.learning_rate},
            {"params": [self.network.rates], "lr": settings.rate_learning_rate},
        ]
        self.optimiser = torch.optim.Adam(groups)
        self._schedule = [group["lr"] for group in self.optimiser.param_groups]

    def measure(self) -> None:
        """Set the network's normalisation from edits of the first records."""
        tasks = draw_tasks(self.records, self.settings.measured, f"{self.settings.seed} measure")
        seen: dict[str, list[torch.Tensor]] = {}
        for start in range(0, len(tasks), 20):
            gradients = self.learner.gradients([task.edit for task in tasks[start : start + 20]])
            for name, (x, delta) in gradients.items():
                real = contributes(x, delta)
                seen.setdefault(name, []).append(torch.cat([x[real], delta[real]], dim=-1))
        normalise(self.network, {name: torch.cat(parts) for name, parts in seen.items()})

    def train_step(self) -> tuple[float, float]:
        """One optimiser step; the batch's mean NLL and KL."""
        settings = self.settings
        tasks = draw_tasks(self.records, settings.batch, f"{settings.seed} {self.step}")
        factors = self.learner.factors([task.edit for task in tasks])
        owners = torch.arange(len(tasks))
        nll = self.learner.nll(factors, [task.outer for task in tasks], owners).mean()
        kl = self.learner.change(factors, [task.locality for task in tasks])[0].mean()
        self.optimiser.zero_grad()
        (settings.edit_weight * nll + settings.locality_weight * kl).backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.largest_gradient)
        left = 1 - self.step / settings.steps
        for group, rate in zip(self.optimiser.param_groups, self._schedule, strict=True):
            group["lr"] = left * rate
        self.optimiser.step()
        self.step += 1
        return float(nll.detach()), float(kl.detach())

    @torch.no_grad()
    def evaluate(self, records: Sequence[TrainingRecord]) -> dict[str, float]:
        """Held-out measures, in percent but for KL: the new answer beats the known one after the edit prompt
        (ES) and the other wordings (GS); positions of another fact's text whose likeliest token stays (LS).
        """
        sums = {"ES": 0.0, "GS": 0.0, "LS": 0.0, "KL": 0.0}
        for start in range(0, len(records), 20):
            part = records[start : start + 20]
            factors = self.learner.factors([(r.prompts[0], r.target) for r in part])
            asked = [(i, p) for i, r in enumerate(part) for p in r.prompts]
            owners = torch.tensor([i for i, _ in asked])
            new, known = (
                self.learner.nll(factors, [(p, a[i]) for i, p in asked], owners)
                for a in ([r.target for r in part], [r.known for r in part])
            )
            for i in range(len(part)):
                wins = (new < known)[owners == i].float()
                sums["ES"] += float(wins[0]) * 100
                sums["GS"] += float(wins[1:].mean()) * 100
            # The text to be kept is the next held-out record's, of another subject.
            others = [_next_other(records, start + i) for i in range(len(part))]
            kl, same = self.learner.change(factors, [(o.prompts[0], o.known) for o in others])
            sums["KL"] += float(kl.sum())
            sums["LS"] += float(same.sum()) * 100
        return {name: total / len(records) for name, total in sums.items()}

    def save(self, path: Path) -> None:
        """Write network, optimiser and step."""
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        for index, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{index}.{k}": torch.as_tensor(v) for k, v in state.items()}
        metadata = {"step": str(self.step), **self._origin()}
        with kept_whole(path) as scratch:
            save_file({k: v.contiguous() for k, v in tensors.items()}, scratch, metadata)

    def _origin(self) -> dict[str, str]:
        """What a checkpoint must share with the run that resumes from it."""
        return {
            "settings": json.dumps(asdict(self.settings)),
            "model": self.learner.states.lm.fingerprint,
            "records": hashlib.sha256(repr(self.records).encode()).hexdigest()[:16],
        }

    def resume(self, path: Path) -> None:
        """Resume from a checkpoint."""
        try:
            metadata, tensors = read_kept(path, _read)
        except DamagedError as error:
            raise NetworkError(f"{error}; delete it to start again") from error
        for name, own in self._origin().items():
            if metadata.get(name) != own:
                raise NetworkError(
                    f"{path} is a checkpoint of other {name} ({metadata.get(name)}, here {own});"
                    f" delete it to start again, or use the same {name}"
                )
        learned = {k.removeprefix("network."): v for k, v in tensors.items() if k[:8] == "network."}
        self.network.load_state_dict(learned)
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimiser."):
                _, index, key = name.split(".")
                state.setdefault(int(index), {})[key] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": state, "param_groups": groups})
        self.step = int(metadata["step"])


@torch.no_grad()
def untrained(lm: LanguageModel, layers: Sequence[int], rank: int, seed: int = 0) -> Hypernetwork:
    """A network for all MLP matrices of ``layers``, before training: gradient descent."""
    layout = lm.layout
    names = [n for layer in layers for n in (*layout.mlp_in(layer), layout.mlp_out(layer))]
    sizes = ((name, lm.weight(name).shape) for name in names)
    network = Hypernetwork({name: (out, into) for name, (out, into) in sizes}, rank)
    generator = torch.Generator().manual_seed(seed)
    for each in network.networks.values():
        for layer in each.layers:  # type: ignore[union-attr]
            rows, size = layer.right.shape
            layer.right.copy_(torch.randn(rows, size, generator=generator) / size**0.5)
    network.rates.fill_(FIRST_RATE)
    return network.to(lm.device)


def normalise(network: Hypernetwork, tokens: Mapping[str, Tensor]) -> None:
    """Set the normalisation from each matrix's contributing tokens, [n, in + out]."""
    for key, members in network.members.items():
        seen = torch.cat([tokens[name] for name in members])
        network.networks[key].mean.copy_(seen.mean(0))  # type: ignore[operator]
        network.networks[key].deviation.copy_(seen.std(0))  # type: ignore[operator]


def save_network(network: Hypernetwork, path: Path, lm: LanguageModel) -> None:
    """Write a network to a file, its matrices in half precision, too coarse for the normalisation."""
    state = {
        name: tensor.half() if name.endswith((".left", ".right")) else tensor.float()
        for name, tensor in network.state_dict().items()
    }
    described = {"shapes": network.shapes, "rank": network.rank, "model": lm.name}
    metadata = {"mend": json.dumps(described), "fingerprint": lm.fingerprint}
    with written_whole(path) as scratch:
        save_file({k: v.contiguous().cpu() for k, v in state.items()}, scratch, metadata)


def _next_other(records: Sequence[TrainingRecord], place: int) -> TrainingRecord:
    following = [*records[place + 1 :], *records[:place]]
    subject = records[place].subject
    return next((r for r in following if r.subject != subject), following[0])


def _read(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    with safe_open(path, "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
