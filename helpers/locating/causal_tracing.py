"""Causal tracing (ROME): how much one layer's clean MLP output brings the answer back.

The subject's embeddings get Gaussian noise (three standard deviations of the embeddings); then one
layer's MLP output at the subject's last token is set to its clean value. The score is the indirect
effect p(answer | noise, layer restored) − p(answer | noise), averaged over noise samples (Meng et
al. 2022, Section 2.1). The paper's plots restore windows of ten layers; here one at a time.

A sentence without a subject (KLoB-u) has its middle word stand in for one; that choice is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from helpers.locating.locator import Locator, Scores
from helpers.locating.query import LocatorError, Query
from helpers.locating.slots import SlotBatch, branching, slot_batch, slot_logits
from helpers.models.hooks import OnOutput, output_hooks
from helpers.models.language_model import LanguageModel
from helpers.models.trace import record_outputs


class CausalTracing(Locator):
    """Indirect effect of each layer's MLP at the subject's last token.

    Args:
        samples: noise samples per sentence (ROME's 10).
        noise: standard deviations of the embeddings.
        seed: of the noise; every sentence gets the same stream, whatever its batch.
    """

    name = "causal tracing"
    granularity = "layer"
    at_a_time = 1

    def __init__(self, *, samples: int = 10, noise: float = 3.0, seed: int = 0) -> None:
        if samples < 1 or noise <= 0:
            raise LocatorError(f"samples and noise must be positive, got {samples} and {noise}")
        self.samples, self.noise, self.seed = samples, noise, seed

    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Indirect effects, [queries, layers]; signed."""
        scale = self.noise * embedding_deviation(language_model)
        rows = [self._effects(language_model, query, scale) for query in queries]
        return torch.stack(rows).float().cpu().numpy()

    @torch.no_grad()
    def _effects(self, language_model: LanguageModel, query: Query, scale: float) -> Tensor:
        start, stop = query.subject or middle_token(query)
        batch = slot_batch(language_model, [query], [start])
        offset = int(batch.positions[0, 0])  # tokens that are constant and do not run again
        noised, last = slice(start - offset, stop - offset), stop - offset - 1
        clean = self._clean_outputs(language_model, batch, last)
        noise = torch.randn(
            self.samples,
            stop - start,
            language_model.layout.hidden_size,
            generator=torch.Generator().manual_seed(self.seed),
        )
        blocks, n = language_model.layout.blocks, self.samples

        def corrupt(_: Tensor, output: Tensor) -> Tensor:
            output = output.clone()
            output[:, noised] += (scale * noise).to(output.device, output.dtype)
            return output

        def restore(layer: int) -> OnOutput:
            def on_output(_: Tensor, output: Tensor) -> Tensor:
                """Only the rows that branched off at this layer, the newest, are restored."""
                output = output.clone()
                output[-n:, last] = clean[layer]
                return output

            return on_output

        layout = language_model.layout
        hooks = {layout.mlp_out(layer): restore(layer) for layer in range(blocks)}
        hooks[layout.architecture.embedding] = corrupt
        repeated = replace(batch, ids=batch.ids.expand(n, -1), slots=batch.slots.expand(n))
        with (
            branching(language_model, repeated, layers=range(blocks), copies=1) as rows,
            output_hooks(language_model, hooks),
        ):
            slots = batch.slots.expand(n * (blocks + 1))
            logits = slot_logits(language_model, rows, slots)
        probabilities = logits.softmax(1)[:, query.required_target].view(blocks + 1, n).mean(1)
        return probabilities[1:] - probabilities[0]

    def _clean_outputs(
        self, language_model: LanguageModel, batch: SlotBatch, last: int
    ) -> list[Tensor]:
        """Each layer's MLP output at the subject's last token in the unchanged run."""
        layout = language_model.layout
        names = [layout.mlp_out(layer) for layer in range(layout.blocks)]
        with record_outputs(language_model, names) as outputs:
            slot_logits(language_model, batch)
        return [outputs[name][0, last] for name in names]


def embedding_deviation(language_model: LanguageModel, *, tokens: int = 4096) -> float:
    """Standard deviation of the input embeddings over evenly spaced tokens of the vocabulary."""
    size = language_model.model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(0, size, max(1, size // tokens), device=language_model.device)
    embedding = language_model.module(language_model.layout.architecture.embedding)
    with torch.no_grad():
        return float(embedding(ids).float().std())


def middle_token(query: Query) -> tuple[int, int]:
    """First and one past the last of the middle token, the stand-in for a subject."""
    middle = query.slot // 2
    return middle, middle + 1
