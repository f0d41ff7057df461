"""A name becomes a language model with its tokenizer and the places of its MLPs."""

from helpers.models.architectures import ARCHITECTURES, Architecture, Layout
from helpers.models.language_model import LanguageModel
from helpers.models.load import MODEL_NAMES, load, load_named

__all__ = [
    "ARCHITECTURES",
    "MODEL_NAMES",
    "Architecture",
    "LanguageModel",
    "Layout",
    "load",
    "load_named",
]
