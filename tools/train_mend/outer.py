"""MEND's training objective: edit in one wording, ask in another, keep other facts as they are.

    loss = edit_weight · NLL(target | paraphrase, edited) + locality_weight · KL(base || edited)

The update is differentiated through; inputs and gradients it is made of count as constants. All
blocks below the first edited one see nothing of an edit, so each text runs through them once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from helpers.editing.batch import EditBatch
from helpers.editing.mend import Hypernetwork, token_gradients
from helpers.editing.rows import EditRow
from helpers.models.forest import pack
from helpers.models.forward import hidden_states
from helpers.models.hooks import OnOutput, output_hooks, record
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids

Text = tuple[str, str]
"""A prompt and the answer after it."""


@dataclass(frozen=True)
class _State:
    """A text's row, what enters the first edited block, and the unedited final states (on the CPU)."""

    row: EditRow
    entering: Tensor
    final: Tensor


@dataclass
class TextStates:
    """States of texts, computed when first asked for."""

    language_model: LanguageModel
    layer: int
    _states: dict[Text, _State] = field(default_factory=dict)

    def batch(self, texts: Sequence[Text]) -> tuple[EditBatch, Tensor]:
        """The texts as a batch, and their unedited final hidden states [rows, width, hidden]."""
        self._prepare([text for text in dict.fromkeys(texts) if text not in self._states])
        states = [self._states[text] for text in texts]
        rows = [state.row for state in states]
        entering, final = (
            pad_sequence(list(padded), batch_first=True).to(self.language_model.device)
            for padded in zip(*((state.entering, state.final) for state in states), strict=True)
        )
        batch = EditBatch(self.language_model, rows, self.layer, entering=entering)
        return batch, final

    @torch.no_grad()
    def _prepare(self, texts: Sequence[Text]) -> None:
        if not texts:
            return
        rows = [_row(self.language_model, text) for text in texts]
        packed = pack([row.forest for row in rows], self.language_model)
        block = self.language_model.layout.block(self.layer)
        norm = self.language_model.layout.architecture.final_norm
        with record(self.language_model, inputs=[block], outputs=[norm]) as seen:
            hidden_states(self.language_model, packed.ids, packed.positions, packed.visible)
        for place, (text, row) in enumerate(zip(texts, rows, strict=True)):
            own = place, slice(len(row.forest))
            entering, final = (seen[module][own].clone().cpu() for module in (block, norm))
            self._states[text] = _State(row, entering, final)


def _row(language_model: LanguageModel, text: Text) -> EditRow:
    row = EditRow(" ".join(text))
    prompt, answer = prompt_ids(language_model, text[0]), answer_ids(language_model, text[1])
    row.target += row.predict(prompt, answer)
    return row


@dataclass
class Learner:
    """A hypernetwork with the model whose gradients it reads."""

    network: Hypernetwork
    states: TextStates

    @classmethod
    def of(cls, language_model: LanguageModel, network: Hypernetwork) -> Learner:
        """Texts start at the first of the network's layers."""
        first = min(language_model.layout.layer_of(name) for name in network.shapes)
        return cls(network, TextStates(language_model, first))

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
        with _edited(self.states.language_model, factors, owners):
            return batch.loss_terms(batch.hidden())["nll"]

    def change(
        self, factors: dict[str, tuple[Tensor, Tensor]], texts: Sequence[Text]
    ) -> tuple[Tensor, Tensor]:
        """What edit i does to text i: KL(base || edited) and the share of equal best tokens.

        Both are means over all the text's positions, [texts].
        """
        batch, final = self.states.batch(texts)
        head = self.states.language_model.model.get_output_embeddings()
        lengths = torch.tensor([active for active, _ in batch.lengths], device=final.device)
        real = torch.arange(final.shape[1], device=final.device) < lengths[:, None]
        with _edited(self.states.language_model, factors, torch.arange(len(texts))):
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
    language_model: LanguageModel, factors: dict[str, tuple[Tensor, Tensor]], owners: Tensor
) -> Iterator[None]:
    """Run row i under the update of edit ``owners[i]``, differentiably in the factors."""

    def adding(right: Tensor, left: Tensor) -> OnOutput:
        def on_output(x: Tensor, output: Tensor) -> Tensor:
            added = (x.float() @ right[owners].mT) @ left[owners]
            return output + added.to(output.dtype)

        return on_output

    with output_hooks(language_model, {name: adding(*pair) for name, pair in factors.items()}):
        yield
