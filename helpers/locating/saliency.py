"""Parameter locators: |gradient x weight| and the squared gradient (empirical Fisher information).

Both take the gradient of −log p(answer) with respect to every entry of the MLPs' second matrices,
the ones that locate-then-edit methods change. No weight is unfrozen: a matrix's gradient for one
sentence is the sum over tokens of (gradient of its output) x (its input), which a batched backward
pass gives for all sentences at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.locating.locator import Locator, Scores
from helpers.locating.query import LocatorError, Query
from helpers.locating.slots import slot_batch, slot_logits, traced
from helpers.models.language_model import LanguageModel

# A batch's scores are at_a_time vectors of this length in fp32, on the device and on the host.
MOST_ENTRIES = 1_000_000_000


class _GradientLocator(Locator):
    """Per-sentence weight gradients, turned into scores by a subclass."""

    granularity = "parameter"
    at_a_time = 4

    def scores(self, language_model: LanguageModel, queries: Sequence[Query]) -> Scores:
        """Scores [queries, layers x neurons x hidden]: a neuron's output weights lie together.

        Raises:
            LocatorError: a model with more than ``MOST_ENTRIES`` weights there.
        """
        layout = language_model.layout
        entries = layout.blocks * layout.intermediate_size * layout.hidden_size
        if entries > MOST_ENTRIES:
            raise LocatorError(
                f"{self.name} scores every weight, {entries:,} of {language_model.name}: a batch alone"
                f" takes {4 * self.at_a_time * entries / 2**30:.0f} GiB; name locators of layers or neurons"
                " (in a params file of notebook 05: locators)"
            )
        device = language_model.device
        names = [layout.mlp_out(layer) for layer in range(layout.blocks)]
        targets = torch.tensor([query.required_target for query in queries], device=device)
        batch = slot_batch(language_model, queries)
        with traced(language_model, names) as (inputs, outputs):
            logits = slot_logits(language_model, batch)
            loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
            gradients = torch.autograd.grad(loss, [outputs[name] for name in names])
        sizes = len(queries), layout.blocks, layout.intermediate_size, layout.hidden_size
        scores = torch.empty(sizes, device=device)
        for layer, (name, gradient) in enumerate(zip(names, gradients, strict=True)):
            found = scores[:, layer]  # everything happens in its place: scores are large
            torch.bmm(inputs[name].detach().mT.float(), gradient.float(), out=found)
            self._score(found, language_model.weight(name).T.float().contiguous())
        return scores.flatten(1).cpu().numpy()

    @abstractmethod
    def _score(self, gradient: Tensor, weight: Tensor) -> None:
        """Turn the gradient [queries, neurons, hidden] into scores; weight [neurons, hidden]."""


class WeightSaliency(_GradientLocator):
    """|weight · gradient|: first-order change of the loss when the entry is removed."""

    name = "gradient x weight"

    def _score(self, gradient: Tensor, weight: Tensor) -> None:
        gradient.mul_(weight).abs_()


class Fisher(_GradientLocator):
    """Squared gradient, the entry's empirical Fisher information."""

    name = "Fisher"

    def _score(self, gradient: Tensor, weight: Tensor) -> None:
        gradient.square_()
