"""CounterFact metrics: success against the original answer, fluency, consistency.

Success takes natural log-probabilities of the new and the original (true) answer at the same
prompts; fluency and consistency take generated text (as in the evaluation of ROME, MEMIT).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

FluencyVariant = Literal["averaged", "weighted_sum"]

ENTROPY_WEIGHTS = {2: 2 / 3, 3: 4 / 3}  # n-gram length -> weight
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w\w+")


def efficacy(*, new: ArrayLike, true: ArrayLike) -> float:
    """Share of edit prompts where the new answer beats the original one, strictly.

    Args:
        new: log-probabilities of the new answer, shape (P,).
        true: log-probabilities of the original answer at the same prompts.

    Returns:
        A fraction; NaN without prompts.

    Raises:
        ValueError: different shapes.
    """
    return _share_above(new, true)


def paraphrase_success(*, new: ArrayLike, true: ArrayLike) -> float:
    """``efficacy`` at paraphrases of the edit prompt."""
    return _share_above(new, true)


def neighbourhood_success(*, new: ArrayLike, true: ArrayLike) -> float:
    """Share of prompts about other subjects where the original answer still beats the new one."""
    return _share_above(true, new)


def ngram_entropy(tokens: Sequence[str], *, n: int) -> float:
    """Entropy in bits of the n-grams of a text; 0 when it is shorter than n tokens."""
    counts = Counter(zip(*(tokens[start:] for start in range(n)), strict=False))
    frequencies = np.array(list(counts.values()), dtype=float) / max(1, counts.total())
    return float(-(frequencies * np.log2(frequencies)).sum()) + 0.0


def fluency(text: str, *, variant: FluencyVariant = "averaged") -> float:
    """Weighted bigram and trigram entropy of a generated text, in bits.

    Args:
        text: generated text; words and punctuation marks are its tokens.
        variant: ``"averaged"`` is the mean of 2/3 · H2 and 4/3 · H3, as CounterFact's code has
            it; ``"weighted_sum"`` is their sum (ThinkEdit, Equation 4), twice as large.
    """
    tokens = _TOKEN.findall(text)
    total = sum(
        weight * ngram_entropy(tokens, n=length) for length, weight in ENTROPY_WEIGHTS.items()
    )
    return total / len(ENTROPY_WEIGHTS) if variant == "averaged" else total


def inverse_document_frequencies(corpus: Iterable[str]) -> dict[str, float]:
    """Smoothed inverse document frequency, ln((1 + N) / (1 + df)) + 1, of every word.

    Args:
        corpus: the N documents that say how common words are.
    """
    documents = [set(_words(text)) for text in corpus]
    counts = Counter(word for words in documents for word in words)
    return {
        word: math.log((1 + len(documents)) / (1 + count)) + 1 for word, count in counts.items()
    }


def consistency(text: str, reference: str, *, idf: Mapping[str, float]) -> float:
    """Cosine of the TF-IDF vectors of a generated text and a reference, from 0 to 1.

    Args:
        text: generated text about the subject.
        reference: text about things that have the new answer.
        idf: see ``inverse_document_frequencies``; other words are ignored.

    Returns:
        The cosine; 0 when either text has no known word.
    """
    one, other = (_tf_idf(words, idf) for words in (text, reference))
    product = sum(value * other.get(word, 0.0) for word, value in one.items())
    norms = math.hypot(*one.values()) * math.hypot(*other.values())
    return product / norms if norms else 0.0


def _share_above(upper: ArrayLike, lower: ArrayLike) -> float:
    upper, lower = np.asarray(upper, dtype=float), np.asarray(lower, dtype=float)
    if upper.shape != lower.shape:
        raise ValueError(f"shapes {upper.shape} and {lower.shape} are not of the same prompts")
    return float((upper > lower).mean()) if upper.size else float("nan")


def _words(text: str) -> list[str]:
    """Lower-case words of two letters or more."""
    return _WORD.findall(text.lower())


def _tf_idf(text: str, idf: Mapping[str, float]) -> dict[str, float]:
    counts = Counter(word for word in _words(text) if word in idf)
    return {word: count * idf[word] for word, count in counts.items()}
