"""What ROME, MEMIT and AlphaEdit share: their parts, their checks, and the optimised vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from helpers.editing.app import App
from helpers.editing.build import Setup
from helpers.editing.contexts import ContextTemplates
from helpers.editing.editor import Editor
from helpers.editing.hyperparameters import VectorHyperparameters
from helpers.editing.memo import Memory
from helpers.editing.request import EditRequest, several_requests
from helpers.editing.rows import edit_row, subject_prompts
from helpers.editing.second_moment import SecondMoment, SecondMomentError, check_fingerprint
from helpers.editing.update import Update
from helpers.editing.vector import Vector, optimise_vectors
from helpers.models.language_model import LanguageModel
from helpers.models.memory import tokens_at_once
from helpers.models.tokens import SubjectPrompt


@dataclass
class VectorEditor(Editor):
    """Base of the editors that optimise a vector at the subject's last token.

    ``second_moments`` maps each edited layer to its statistics. ``targets`` says which answers are
    made likely (``helpers.editing.rows``; PEAK, Table 5). ``token_budget`` bounds the tokens
    optimised at a time; default: by free memory. ``memory`` holds vectors of the unedited
    model, shared with other editors of it; without, every call optimises.

    Raises:
        SecondMomentError: statistics missing for a layer, or made with another model.
        ValueError: a layer the model does not have, or unknown ``targets``.
    """

    language_model: LanguageModel
    hyperparameters: VectorHyperparameters
    contexts: ContextTemplates
    second_moments: Mapping[int, SecondMoment] = field(default_factory=dict)
    app: App | None = None
    targets: str = "new"
    token_budget: int | None = None
    progress: bool = False
    memory: Memory | None = field(default=None, repr=False)

    grouped: ClassVar[bool] = (
        False  # whether the bare prompt weighs as much as all sampled contexts
    )

    @classmethod
    def needs(cls, setup: Setup, hyperparameters: VectorHyperparameters) -> dict[str, Any]:
        """Context templates and second moments."""
        contexts = setup.contexts(
            hyperparameters.context_template_length_params,
            grouped=cls.grouped,
            start=hyperparameters.context_template_start,
        )
        moments = setup.second_moments(hyperparameters.moment_layers)
        return {"contexts": contexts, "second_moments": moments}

    def __post_init__(self) -> None:
        super().__post_init__()
        for moment in self.second_moments.values():
            check_fingerprint(moment, self.language_model)
        for layer in self.hyperparameters.layers:
            self.language_model.layout.block(layer)  # raises for a layer that does not exist
            if self.needs_second_moments and layer not in self.second_moments:
                raise SecondMomentError(
                    f"{self.name} needs the second moment of layer {layer}; compute it with"
                    " second_moment(...)"
                )

    @property
    def needs_second_moments(self) -> bool:
        """Whether statistics of every edited layer are needed."""
        return True

    def versions(self) -> dict[str, int]:
        """Also those of the optimised vector, the contexts, and the statistics where used."""
        parts = {"vector": Vector.version, "contexts": ContextTemplates.version}
        if self.second_moments:
            parts["second_moments"] = SecondMoment.version
        return super().versions() | parts

    def settings(self) -> dict[str, Any]:
        """Also the context templates, the statistics and the choice of targets."""
        statistics = {str(k): [m.corpus, m.tokens] for k, m in self.second_moments.items()}
        return super().settings() | {
            "contexts": [list(group) for group in self.contexts.groups],
            "second_moments": statistics,
            "targets": self.targets,
        }

    def optimised(self, requests: Sequence[EditRequest], module: str) -> list[Vector]:
        """One vector per request, added to the output of ``module``."""
        requests = several_requests(requests)
        if self.memory is None:
            return self._optimise(requests, module)
        elsewhere = {"layers", "context_template_length_params", "context_template_start"}
        optimisation = set(VectorHyperparameters.model_fields) - elsewhere
        model = self.language_model
        settings = {
            "model": [model.fingerprint, model.dtype_name, str(model.device)],
            "module": module,
            "hyperparameters": self.hyperparameters.model_dump(mode="json", include=optimisation),
            "contexts": self.contexts.templates,
            "app": None if self.app is None else asdict(self.app),
            "targets": self.targets,
        }
        key = json.dumps(settings, sort_keys=True)
        return self.memory.get(key, requests, lambda missing: self._optimise(missing, module))

    def edit_after(self, earlier: Update, requests: Sequence[EditRequest]) -> Update:
        """As every editor does; vectors found on an edited model are not shared."""
        return Editor.edit_after(replace(self, memory=None), earlier, requests)

    def _optimise(self, requests: Sequence[EditRequest], module: str) -> list[Vector]:
        rows = [
            edit_row(self.language_model, r, self.contexts, self.app, targets=self.targets)
            for r in requests
        ]
        return optimise_vectors(
            self.language_model,
            rows,
            module,
            self.hyperparameters,
            self.app,
            token_budget=self.token_budget
            or tokens_at_once(self.language_model, 2048, gradients=True),
            progress=self.progress,
        )

    def prompts(self, requests: Sequence[EditRequest]) -> list[list[SubjectPrompt]]:
        """Each request's prompt in every context, the bare one first."""
        return [subject_prompts(self.language_model, r, self.contexts) for r in requests]
