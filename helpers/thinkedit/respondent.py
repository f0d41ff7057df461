"""A language model behind the pipeline's ``Respondent`` protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from helpers.models.language_model import LanguageModel
from helpers.models.tokens import Prompt
from helpers.scoring.responses import Sampling, sample_responses, uses_chat


@dataclass(frozen=True)
class ModelRespondent:
    """Responds by batched sampling: instruct models through their chat template, others by completion.

    A completion ends at the first empty line, because the prompts separate their examples by one.
    ``rows`` responses are generated at the same time; it does not change them.
    """

    language_model: LanguageModel
    sampling: Sampling = field(default_factory=lambda: Sampling(max_new_tokens=64))
    rows: int = 64

    @property
    def chat(self) -> bool:
        """Whether prompts go through the chat template."""
        return uses_chat(self.language_model, self.sampling)

    @property
    def fingerprint(self) -> str:
        """Weights, tokenizer, type, device and sampling: what determines responses besides n and seed."""
        model = self.language_model
        settings = {k: v for k, v in asdict(self._sampling(0)).items() if k != "seed"}
        listed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return f"{model.fingerprint}, {model.dtype_name} on {model.device.type} ({listed})"

    def respond(
        self, prompts: Sequence[Prompt], *, n: int, seed: int, **changes: Any
    ) -> list[list[str]]:
        """``n`` sampled responses per prompt; ``changes`` are fields of the sampling."""
        sampling = self._sampling(seed, **changes)
        return sample_responses(
            self.language_model, prompts, n=n, sampling=sampling, rows=self.rows
        )

    def _sampling(self, seed: int, **changes: Any) -> Sampling:
        sampling = replace(self.sampling, **changes)
        stop = sampling.stop if self.chat else sampling.stop or "\n\n"
        return replace(sampling, stop=stop, chat=self.chat, seed=seed)
