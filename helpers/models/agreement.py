"""Does this package score a text as the model itself does? Compared once, whenever a model is loaded.

Packed scoring rests on what nearly all causal models share: logits are the head's output, and a token's
place enters by its position id. Models that change logits after the head, bias attention by distance or
turn their keys by the longest row of a batch would get other scores without a sign of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from helpers.models.architectures import ModelError
from helpers.models.batching import out_of_memory
from helpers.models.forest import Forest, pack
from helpers.models.forward import hidden_states, log_probabilities
from helpers.models.language_model import LanguageModel
from helpers.models.tokens import answer_ids, prompt_ids
from helpers.models.weights import TF32

_PROMPT, _ANSWER = "The capital of Italy is", "Rome"
_LONGER = ("The capital of Norway is a city by the sea", "The capital of Peru is")
_TELLING = re.compile(r"logit|cap|scal|multipl|alibi|rope|rotary|window|position")
_LONGEST = 400  # characters of a configuration in a message


def own_scores(language_model: LanguageModel) -> tuple[list[int], Tensor]:
    """Token ids of a fixed text and log-probabilities [tokens - 1] by the model's own forward.

    Called before anything about the model is changed.
    """
    ids = list(language_model.tokenizer(f"{_PROMPT} {_ANSWER}")["input_ids"])
    text = torch.tensor([ids], device=language_model.device)
    with torch.inference_mode():
        logits = language_model.model(input_ids=text, attention_mask=torch.ones_like(text)).logits
    scores = logits[0, :-1].to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    if bool(scores.isnan().any()):
        raise ModelError(
            f"{language_model.name} computes no numbers in {language_model.dtype_name}; use another dtype"
        )
    return ids, scores.gather(-1, text[0, 1:, None])[:, 0]


def check_agreement(language_model: LanguageModel, ids: list[int], own: Tensor) -> None:
    """Refuse a model whose scores by this package are not its own.

    Alone, and packed beside a longer row that ends where the context does. Log-probabilities may
    differ by rounding: by the square root of the type's epsilon, relative to 1 + their size.

    Args:
        language_model: the model as it is used.
        ids: tokens of the fixed text, from ``own_scores``.
        own: their log-probabilities [tokens - 1].
    """
    text = (*prompt_ids(language_model, _PROMPT), *answer_ids(language_model, _ANSWER))
    if list(text) != ids:
        read = language_model.tokenizer.convert_ids_to_tokens
        raise ModelError(
            f"the tokenizer of {language_model.name} reads {f'{_PROMPT} {_ANSWER}'!r} as {read(ids)}, which"
            f" is not the prompt and then the answer, {read(text)}; save it again so that it appends"
            " nothing to a text"
        )
    # Half of the digits of the type that products are made in; TF32 has as many as float16.
    tf32 = language_model.dtype_name == TF32
    tolerance = torch.finfo(torch.float16 if tf32 else language_model.dtype).eps ** 0.5
    longer = [prompt_ids(language_model, prompt) for prompt in _LONGER]
    for words, others in (("alone", []), ("in a batch with a longer text", longer)):
        try:
            found = _packed_scores(language_model, text, others)
        except Exception as error:
            if out_of_memory(error):
                raise
            raise _refused(language_model, f"cannot be computed {words} ({error})") from error
        apart = (found - own).abs()
        if not bool((apart <= tolerance * (1 + own.abs())).all()):
            most = f"{float(apart.max()):.2g}"
            raise _refused(language_model, f"differ {words} by up to {most} from the model's own")


def _packed_scores(
    language_model: LanguageModel, text: Sequence[int], others: Sequence[Sequence[int]]
) -> Tensor:
    # The other texts, if any, are a second row of the batch.
    forests = [Forest(), Forest()] if others else [Forest()]
    forests[0].add(text)
    for other in others:
        forests[1].add(other)
    packed = pack(forests, language_model)
    positions = packed.positions.clone()
    positions[1:] += language_model.context_length - 1 - positions[1:].max() if others else 0
    with torch.inference_mode():
        rows = replace(packed, positions=positions)
        hidden = hidden_states(language_model, rows.ids, rows.positions, rows.visible)
        predicted = torch.tensor(text[1:], device=hidden.device)
        place = torch.arange(len(predicted), device=hidden.device)
        return log_probabilities(language_model, hidden[0], place, predicted)


def _refused(language_model: LanguageModel, what: str) -> ModelError:
    settings = language_model.model.config.to_dict()
    telling = [
        f"{k}={v}" for k, v in settings.items() if _TELLING.search(k) and v not in (None, False)
    ]
    return ModelError(
        f"{language_model.name} cannot be used here: log-probabilities of packed texts {what}; its"
        f" configuration has {', '.join(telling)[:_LONGEST]}"
    )
