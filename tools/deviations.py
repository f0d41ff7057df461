"""``python -m tools.deviations``: write docs/deviations.md, what public code does differently from its paper,
and its short form in notebook 09.

A record has the switch that repeats the difference here, a field and its value in the editor's
hyperparameters, where there is one, and what it changes in our numbers.
``tests/editing/test_deviations.py`` holds the page to the records, and these to the hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from helpers.counterfact.metrics import metrics_of
from helpers.editing.editors import EDITORS
from helpers.editing.identities import IDENTITIES
from helpers.editing.interventions import LowRank
from helpers.editing.rect_prune import keep_largest, restrain
from helpers.editing.ultraedit import TokenStatistics
from helpers.paths import NOTEBOOKS, REPOSITORY, write_whole
from helpers.results.archive import archive
from helpers.results.statistics import paired
from helpers.results.text import in_points

PAGE = REPOSITORY / "docs" / "deviations.md"
NOTEBOOK = NOTEBOOKS / "09_editors.ipynb"
_BEGIN, _END = (
    "<!-- made by python -m tools.deviations -->",
    "<!-- end -->",
)  # of the notebook's ledger
COMMITS = {  # in which the code was read
    "AlphaEdit": "f5248d3",
    "EasyEdit": "14cea82",
    "ENCORE": "b87d96d",
    "GRACE": "f674183",
    "IKE": "da58c84",
    "LocFT-BF": "51db785",
    "memit": "80426fd",
    "NAS": "5acab48",
    "OTE-SE-Alignment": "106998a",
    "RECT": "8f8d4dc",
    "rome": "0874014",
    "UltraEdit": "0beb222",
    "unified-model-editing": "23d72b5",
}
NOT_MEASURED = "not measured"
ALWAYS = "always"  # repeated here without a switch
NEVER = "never"


@dataclass(frozen=True)
class Switch:
    """A hyperparameter with which an editor repeats what public code does."""

    editor: str  # by its name in ``EDITORS``
    field: str
    value: Any

    @property
    def words(self) -> str:
        """As a params file has it."""
        text = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return f"`{self.editor}`: `{self.field}: {text}`"


@dataclass(frozen=True)
class Deviation:
    """One difference between a paper and public code."""

    method: str
    paper: str
    code: str
    repositories: tuple[str, ...]
    repeated: Switch | str  # the switch, ``ALWAYS`` or ``NEVER``
    effect: Callable[[], str] | str = NOT_MEASURED  # on our numbers

    @property
    def source(self) -> str:
        """The repositories with their commits."""
        return ", ".join(f"{name} {COMMITS[name]}" for name in self.repositories)

    @property
    def effect_words(self) -> str:
        """What it changes, measured where it can be."""
        return self.effect if isinstance(self.effect, str) else self.effect()


def identity_words(name: str) -> str:
    """A row of the identities, and the difference that a test holds it to."""
    (identity,) = (row for row in IDENTITIES if row.name == name)
    bound = f"relative difference below {identity.tolerance:.0e}"
    if identity.differs is not None:
        bound = f"relative difference above {identity.differs:g}"
    return f"{identity.one_side} against {identity.other_side}: {bound} (identity `{name}`)"


def accumulated_words() -> str:
    """What a sequence of MEMIT is with and without earlier keys."""
    return f"{identity_words('memit-seq')}; {identity_words('memit')}"


def averaged_key_words() -> str:
    """R-ROME minus ROME on the stored CounterFact run, in points."""
    run = archive("counterfact").get("smollm2-135m_counterfact-val")
    metrics = metrics_of(run)
    differences = []
    for name in ("ES", "PS", "NS"):
        change = paired(metrics["ROME"][name], metrics["R-ROME"][name], "share").difference
        differences.append(f"{name} {in_points(change, signed=True)}")
    return f"SmolLM2, CounterFact, n = {change.n}, averaged minus bare, in points: {', '.join(differences)}"


def doubled_words() -> str:
    """How much larger the update is by which the added variant changes the unedited weights."""
    generator = torch.Generator().manual_seed(0)
    delta = LowRank(torch.randn(8, 2, generator=generator), torch.randn(6, 2, generator=generator))
    restrained, _ = restrain(delta, limit=1e3, log_base=torch.e)
    ratio = delta.plus(restrained).norm() / delta.norm()
    return f"the update times {ratio:.3f} where no singular value exceeds the unedited matrix's largest"


def kept_whole_words() -> str:
    """How far RECT with everything kept is from its base."""
    generator = torch.Generator().manual_seed(0)
    delta = LowRank(torch.randn(8, 1, generator=generator), torch.randn(6, 1, generator=generator))
    weight = torch.randn(8, 6, generator=generator)
    difference = (keep_largest(delta, weight, 1.0).dense() - delta.dense()).norm()
    return f"the base editor's update, difference {float(difference):g}"


def deviation_words() -> str:
    """By how much the deviation of a first turn's tokens is too large."""
    numbers = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    none = TokenStatistics.of_none(numbers)
    squares = [none.with_tokens(numbers, exact=exact).squares for exact in (False, True)]
    factor = float((squares[0] / squares[1]).sqrt().mean())
    return (
        f"standard deviations {factor:.3f} times as large after a first turn of {len(numbers)} tokens,"
        " and more with fewer"
    )


DEVIATIONS = (
    Deviation(
        "ROME",
        "The key averaged over context templates is used everywhere (Equation 2).",
        "The direction in the numerator is averaged. The key in the denominator and the value that is"
        " replaced come from the prompt without a context.",
        ("rome", "EasyEdit"),
        Switch("rome", "rome_key", "bare"),
        averaged_key_words,
    ),
    Deviation(
        "ROME",
        "The key is multiplied by the inverse second moment.",
        "The second moment is switched off in the published settings.",
        ("EasyEdit",),
        Switch("rome", "mom2_adjustment", False),
    ),
    Deviation(
        "ROME",
        "Context templates are sampled texts.",
        "Templates begin with the end-of-text token. EasyEdit's begin with one of five words, as ours do.",
        ("rome",),
        Switch("rome", "context_template_start", "end_of_text"),
    ),
    Deviation(
        "ROME, MEMIT",
        "The vector is optimised for 20 or 25 steps.",
        "The loss of the last step is evaluated, but the step is not taken.",
        ("rome", "memit", "EasyEdit"),
        ALWAYS,
    ),
    Deviation(
        "MEMIT, AlphaEdit",
        "Keys are averaged over contexts.",
        "The prompt without a context has weight one half, all sampled contexts together one half.",
        ("memit", "AlphaEdit"),
        ALWAYS,
    ),
    Deviation(
        "MEMIT in sequence",
        "Algorithm 1 writes one batch and knows no earlier one.",
        "The keys of earlier batches enter the solve.",
        ("OTE-SE-Alignment",),
        Switch("memit-seq", "accumulate", True),
        accumulated_words,
    ),
    Deviation(
        "EMMET",
        "Every key is mapped to its value exactly (e = 0).",
        "The authors add e > 0 for batches, EasyEdit always. This is MEMIT on one layer with"
        " λ = e w, 10,000 in EasyEdit's settings for LLaMA and GPT-J.",
        ("unified-model-editing", "EasyEdit"),
        Switch("memit", "mom2_update_weight", 10000.0),
        lambda: identity_words("emmet"),
    ),
    Deviation(
        "AlphaEdit",
        "Keys of a sequence's earlier edits are accumulated.",
        "The sum of keys is a variable of the module, so it also grows over independent edits.",
        ("EasyEdit",),
        NEVER,
    ),
    Deviation(
        "RECT",
        "The 40 % of entries with the largest relative change are kept.",
        "The selection of entries is commented out: as released, the code is plain ROME.",
        ("RECT",),
        Switch("rect", "keep", 1.0),
        kept_whole_words,
    ),
    Deviation(
        "RECT",
        "The 40 % of entries with the largest relative change are kept.",
        "The commented code sets 80 % of the entries to zero.",
        ("RECT",),
        Switch("rect", "keep", 0.2),
    ),
    Deviation(
        "PRUNE",
        "The restrained update replaces the update.",
        "A port adds the restrained update to weights that already contain the update.",
        ("AlphaEdit",),
        Switch("prune-added", "prune_compat", "added"),
        doubled_words,
    ),
    Deviation(
        "NAS",
        "Every vector is scaled to the usual norm.",
        "Edits whose vector is longer than twice the usual norm are skipped, which the abstract does not"
        " mention.",
        ("NAS",),
        Switch("nas", "skip_long", True),
    ),
    Deviation(
        "ENCORE",
        "A vector is done once its target is the most probable answer in every sampled context.",
        "The code compares the number of target tokens that are the most probable ones with 5, the number of"
        " its contexts. A target of two tokens therefore stops too early or never. The prompt without a"
        " context is omitted.",
        ("ENCORE",),
        NEVER,
    ),
    Deviation(
        "ENCORE",
        "The keys of earlier edits enter the solve.",
        "The keys are read before later layers are written. They are kept as long as the program runs, not"
        " for one sequence.",
        ("ENCORE",),
        NEVER,
    ),
    Deviation(
        "FT-L",
        "The loss is the target's negative log-likelihood.",
        "All tokens of the target are read from the distribution right after the prompt.",
        ("EasyEdit",),
        Switch("ft-l", "objective", "prompt_last"),
        "none for a target of one token, by identity; otherwise not measured",
    ),
    Deviation(
        "FT-L",
        "Every entry's change is bounded.",
        "Settings for LLaMA, Qwen2.5 and GPT-J have no bound.",
        ("EasyEdit",),
        Switch("ft-l", "norm_constraint", None),
    ),
    Deviation(
        "KN",
        "Attributions are an integral of gradients.",
        "Settings for LLaMA and Qwen use one step of the integral, at zero.",
        ("EasyEdit",),
        Switch("kn", "steps", 1),
    ),
    Deviation(
        "UltraEdit",
        "Normalisation uses the tokens' variance.",
        "A turn of n tokens adds n times its unbiased variance to the sum of squares, not n - 1 times.",
        ("UltraEdit",),
        Switch("ultraedit", "statistics", "authors"),
        deviation_words,
    ),
    Deviation(
        "UltraEdit",
        "All requests of a turn are edited.",
        "If the turn is not a multiple of the forward batch, keys and gradients are counted differently."
        " A short turn reads the previous turn's files, and the remainder is omitted.",
        ("UltraEdit",),
        NEVER,
    ),
    Deviation(
        "LoRA",
        "AdaLoRA allocates ranks to matrices.",
        "The allocation of ranks is never called; in a sequence one adapter is trained further.",
        ("EasyEdit",),
        Switch("lora", "sequence", "continue"),
    ),
    Deviation(
        "FT-BF",
        "One named location is trained.",
        "Names match by substring: layer 2 also selects layers 20 to 29.",
        ("LocFT-BF",),
        NEVER,
    ),
    Deviation(
        "IKE",
        "32 demonstrations: 4 copy, 12 update, 16 retain.",
        "EasyEdit uses 16 single sentences, so the ratio of kinds is lost. `k: 16` repeats only the number.",
        ("EasyEdit",),
        Switch("ike", "k", 16),
    ),
    Deviation(
        "IKE",
        "Demonstrations are of other facts.",
        "One more demonstration is of the edit and shows the prompt and the answer that is asked for.",
        ("IKE",),
        NEVER,
    ),
    Deviation(
        "MEMOIR",
        "An edit trains the columns of the memory that its mask selects.",
        "Stochastic gradient descent decays the whole memory by 1e-5 per step, including all earlier edits.",
        ("NAS",),
        Switch("memoir", "weight_decay", 1e-5),
        "0.74 of the first edit is left after 1,000 edits of 30 steps (learning rate 1; arithmetic)",
    ),
    Deviation(
        "GRACE",
        "The settings name an early stop.",
        "The value is trained for all steps; the early stop is not used.",
        ("GRACE", "EasyEdit"),
        ALWAYS,
    ),
    Deviation(
        "GRACE",
        "The value of an entry that a further edit of the same label is near to is trained again.",
        "Training goes on from where the value stands; ours begins anew.",
        ("GRACE",),
        NEVER,
    ),
    Deviation(
        "GRACE",
        "Entries of one label share a radius, others split it.",
        "Two labels count as equal if their mean token ids are equal.",
        ("GRACE",),
        NEVER,
    ),
    Deviation(
        "GRACE",
        "An edit is found by its own prompt.",
        "After a second edit of one prompt neither entry is ever chosen; EasyEdit reverses labels from the"
        " second entry on.",
        ("GRACE", "EasyEdit"),
        NEVER,
    ),
)

_TITLE = """# What public code does differently from its paper

<!-- made by python -m tools.deviations -->
"""
_OPENING = (
    "An editor's results depend on its implementation. This page lists where public code departs from"
    " the method as published. It gives the commit in which the code was read, the switch that repeats the"
    " difference here, and what it changes in our numbers. Without a switch, the difference is either"
    " repeated in every run (*always*) or in none (*never*). Each editor's module states where ours departs"
    " from both.\n"
)


def page() -> str:
    """The page's text."""
    lines = [_TITLE, _OPENING]
    for title, rows in (
        ("With a switch", [row for row in DEVIATIONS if isinstance(row.repeated, Switch)]),
        ("Without a switch", [row for row in DEVIATIONS if not isinstance(row.repeated, Switch)]),
    ):
        lines += [f"## {title}\n", *_table(rows), ""]
    return "\n".join(lines)


def _table(rows: Iterable[Deviation]) -> list[str]:
    lines = [
        "| method | as published | in public code | read in | repeated here | what it changes |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        repeated = row.repeated
        if isinstance(repeated, Switch):
            default = EDITORS[repeated.editor].hyperparameters.model_fields[repeated.field].default
            implied = EDITORS[repeated.editor].values.get(repeated.field, default)
            repeated = repeated.words + (" (our default)" if implied == repeated.value else "")
        effect = row.effect_words
        if row.repeated in (ALWAYS, NEVER) and effect == NOT_MEASURED:
            effect = "–"
        cells = (row.method, row.paper, row.code, row.source, repeated, effect)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def notebook() -> str:
    """Notebook 09 with a short form of the ledger, folded."""
    content = json.loads(NOTEBOOK.read_text("utf-8"))
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if _BEGIN in source:
            before, _, after = source.partition(f"{_BEGIN}\n")
            after = after[after.index(_END) :]
            cell["source"] = f"{before}{_BEGIN}\n{folded_ledger()}\n{after}".splitlines(
                keepends=True
            )
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def folded_ledger() -> str:
    """What public code does, a line a record, to be opened by a reader."""
    lines = [
        f"<details><summary><b>The ledger in short</b> ({len(DEVIATIONS)} records)</summary>",
        "",
        "| method | in public code | read in | repeated here |",
        "|---|---|---|---|",
    ]
    for row in DEVIATIONS:
        repeated = row.repeated.words if isinstance(row.repeated, Switch) else row.repeated
        lines.append(f"| {row.method} | {row.code} | {row.source} | {repeated} |")
    return "\n".join([*lines, "", "</details>"])


if __name__ == "__main__":
    write_whole(PAGE, page())
    write_whole(NOTEBOOK, notebook())
    print(PAGE)
    print(NOTEBOOK)
