"""What ``python -m benchmarks.gpu`` measures with: the model of a large shape, editors and records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import Any

from benchmarks.editing import shape_threshold
from helpers import models
from helpers.editing.build import build_editor
from helpers.editing.editor import Editor
from helpers.editing.memit import AlphaEdit
from helpers.models.language_model import LanguageModel
from helpers.models.load import _ready
from helpers.models.shapes import SHAPE_TOKENIZER, SHAPES, random_model, words_tokenizer
from helpers.models.weights import prepare, torch_dtype
from helpers.peak.records import load_peak
from helpers.peak.schema import PeakRecord

SHAPE = "shape:llama2-7b"
TINY = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}


@dataclass(frozen=True)
class Setting:
    """What a step measures with; ``tiny`` keeps the shape's depth and nothing else of its size."""

    device: str = "cuda"
    dtype: str = "bfloat16"
    records: int = 16
    plain: int = 2
    tiny: bool = False

    @cached_property
    def model(self) -> LanguageModel:
        """The random model of the shape."""
        if self.tiny:
            return _tiny_shape(self)
        return models.load(SHAPE, dtype=self.dtype, device=self.device)

    @cached_property
    def embedded(self) -> LanguageModel:
        """The embedded model with its own weights, in fp32."""
        return models.load("smollm2-135m", device=self.device)

    def chosen(self, count: int | None = None) -> list[PeakRecord]:
        """So many packaged records, over and over where there are fewer: no download is needed."""
        packaged = load_peak("peak-mini-cf").records
        return list(islice(cycle(packaged), count or self.records))

    def editor(self, method: str, language_model: LanguageModel | None = None) -> Editor:
        """A method's editor on the shape with the paper's preset, or on the model given, tuned."""
        corpus = "self-64x32" if self.tiny else "self"
        options: dict[str, Any] = {"preset": "paper", "corpus": corpus}
        if method == "alphaedit":
            options["overrides"] = {"nullspace_threshold": 1e9}
        if language_model is not None:
            return build_editor(method, language_model, preset="tuned")
        editor = build_editor(method, self.model, **options)
        return shape_threshold(editor) if isinstance(editor, AlphaEdit) else editor


def _tiny_shape(setting: Setting) -> LanguageModel:
    """A model of the shape's depth and a thousandth of its size. It takes the presets of its name."""
    settings = SHAPES[SHAPE.partition(":")[2]] | TINY
    words = words_tokenizer(prepare(SHAPE_TOKENIZER), settings["vocab_size"])
    placed: dict[str, Any] = {"dtype": torch_dtype(setting.dtype), "device": setting.device}
    model, tokenizer = random_model(settings, seed=0, tokenizer=words, **placed)
    return _ready(LanguageModel(SHAPE, model, tokenizer))
