"""ThinkEdit's published figures, each drawn from the stored tables alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from helpers.paths import FIGURES, file_name
from helpers.reporting import thinkedit_figures as figures
from helpers.reporting import thinkedit_stored as archive
from helpers.reporting import thinkedit_tables as tables
from helpers.reporting.thinkedit_side_tables import sequence_leads

DATA = FIGURES / "data"
RIGHT_AFTER = "right after"


def stored_models(folder: Path = DATA, *, estimator: str = "exact") -> list[str]:
    """Models whose scores by an estimator (or "along" a sequence) are stored."""
    prefix = f"06_thinkedit_{estimator}_"
    return sorted(p.stem.removeprefix(prefix) for p in folder.glob(f"{prefix}*.parquet"))


def evaluation(
    models: Sequence[str], *, estimator: str = "exact", folder: Path = DATA
) -> tables.Evaluation:
    """All metrics of the stored models.

    With the exact estimator, the mode ``RIGHT_AFTER`` has each edit of a sequence as it was made.
    """
    scores = archive.stored(estimator, models, folder)
    if estimator == "exact":
        sequences = set(stored_models(folder, estimator="along"))
        followed = [model for model in models if file_name(model) in sequences]
        along = [archive.stored("along", [m], folder).assign(mode=RIGHT_AFTER) for m in followed]
        scores = pd.concat([scores, *along], ignore_index=True)
    return tables.evaluate_scores(scores, archive.stored_chains(folder), estimator=estimator)


def sequence_figure(models: Sequence[str], folder: Path = DATA) -> Figure:
    """How the edits of a sequence fare, a row of panels per model; methods without APP."""
    along, exact = (archive.stored(kind, models, folder) for kind in ("along", "exact"))
    plain = (scores[~scores["method"].str.endswith("+app")] for scores in (along, exact))
    caption = archive.caption(exact, "exact, sequential")
    return figures.sequence_lines(sequence_leads(*plain), caption=caption)


def deep_figure(models: Sequence[str], folder: Path = DATA) -> Figure:
    """IFR against CKP, from plain independent edits to deep ones, where there are both."""
    found, _ = tables.split_app(evaluation(models, folder=folder))
    return _from_to(
        tables.technique_table(found, mode="independent"),
        tables.technique_table(found, mode="deep"),
        folder,
        about="exact, independent",
        end="deep edit",
    )


def app_figure(models: Sequence[str], folder: Path = DATA, *, mode: str) -> Figure:
    """IFR against CKP, from edits without APP to edits with it, where there are both."""
    plain, with_app = (
        tables.technique_table(found, mode=mode)
        for found in tables.split_app(evaluation(models, folder=folder))
    )
    return _from_to(plain, with_app, folder, about=f"exact, {mode}", end="with APP")


def _caption(models: Sequence[str], folder: Path, about: str) -> str:
    return archive.caption(archive.stored("exact", models, folder), about)


def _from_to(
    plain: pd.DataFrame, changed: pd.DataFrame, folder: Path, *, about: str, end: str
) -> Figure:
    """Arrows, for the models and methods that are in both tables."""
    keys = ["model", "method"]
    both = plain.merge(changed[keys], on=keys)
    changed = changed.merge(plain[keys], on=keys)
    caption = _caption(list(both["model"].unique()), folder, about)
    return figures.recovery_against_preservation(both, changed, caption=caption, end=end)


def sampled_figure(models: Sequence[str], folder: Path = DATA, *, mode: str) -> Figure:
    """IFR against CKP, both from sampled responses."""
    found = evaluation(models, estimator="sampled", folder=folder)
    techniques = tables.technique_table(found, mode=mode)
    caption = archive.caption(archive.stored("sampled", models, folder), f"sampled, {mode}")
    return figures.recovery_against_preservation(techniques, caption=caption)


def thinkedit_figures(
    folder: Path = DATA, *, mode: str = "sequential"
) -> Iterator[tuple[str, str, Callable[[], Figure]]]:
    """Name, title and drawing of every figure whose data is stored."""
    models = stored_models(folder)

    def made() -> tables.Evaluation:
        return tables.split_app(evaluation(models, folder=folder))[0]

    if models:
        scores = archive.stored("exact", models, folder)
        caption = archive.caption(scores, f"exact, {mode}")
        yield (
            "06_ifr_by_length",
            f"IFR by chain length, {mode}",
            lambda: figures.recovery_by_length(
                tables.length_table(made(), mode=mode), caption=caption
            ),
        )
        yield (
            "06_ckp",
            f"CKP by method, {mode}",
            lambda: figures.preservation_bars(
                tables.technique_table(made(), mode=mode), caption=caption
            ),
        )
        yield (
            "06_ifr_against_ckp",
            f"IFR against CKP, {mode}",
            lambda: figures.recovery_against_preservation(
                tables.technique_table(made(), mode=mode), caption=caption
            ),
        )
        yield (
            "06_active_chains",
            f"Chains deducible before and active after, {mode}",
            lambda: figures.chain_counts_bars(
                tables.chain_counts(made(), mode=mode), caption=caption
            ),
        )
        if "deep" in set(scores["mode"]):
            yield (
                "06_deep_edit",
                "Deep edits: IFR against CKP, independent",
                lambda: deep_figure(models, folder),
            )
        if scores["method"].str.endswith("+app").any():
            yield (
                "06_app",
                f"Edits with APP: IFR against CKP, {mode}",
                lambda: app_figure(models, folder, mode=mode),
            )
    followed = stored_models(folder, estimator="along")
    if followed:
        yield (
            "06_sequence",
            "Edits of a sequence, right after and at the end",
            lambda: sequence_figure(followed, folder),
        )
    by_sampling = stored_models(folder, estimator="sampled")
    if by_sampling:
        yield (
            "06_sampled",
            f"IFR against CKP by sampling, {mode}",
            lambda: sampled_figure(by_sampling, folder, mode=mode),
        )
    yield (
        "06_paper_ifr_by_length",
        "IFR by chain length, the paper's own numbers",
        lambda: figures.recovery_by_length(tables.paper_lengths(), caption=figures.THE_PAPER),
    )
