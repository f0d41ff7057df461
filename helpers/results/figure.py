"""The figures by name: a function that draws one is registered where it is defined. The first paragraph of
its docstring is the figure's title.

@figure("05_layers", of="klob", needs=("edits",))
def layer_curves(run): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from helpers import UserError, paths
from helpers.paths import in_repository, write_whole
from helpers.records import did_you_mean
from helpers.results.archive import DATA, Archive, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIST = in_repository(
    "figures/figures.txt"
)  # of what stored tables give, read without importing anything
# Names instead of imports: a paper's room lies above this one. Imported when a figure is asked for.
CHAPTERS = {
    "01": ("peak.figures",),
    "02": ("peak.construction.publish",),
    "03": ("peak.figures",),
    "04": ("peak.ablation_figures", "behaviour.doses", "behaviour.figures", "costs.figures"),
    "05": ("klob.figures",),
    "06": ("thinkedit.figures", "thinkedit.case"),
    "07": ("peak.figures", "explorer.one_edit"),
}
_REGISTRY: dict[str, Drawing] = {}
Draw = TypeVar("Draw", bound=Callable[..., "Figure"])


@dataclass(frozen=True)
class Drawing:
    """How figures of one kind are drawn: from the published runs ``of`` a paper, from values that a
    notebook has, or, ``alone``, from nothing else.
    """

    name: str
    title: str
    draw: Callable[..., Figure]
    of: str = ""
    needs: tuple[str, ...] = ()  # tables, or kinds of parts, that a run must have
    when: Callable[[Run], bool] = lambda run: True  # what else must be true of it
    main: str = ""  # the run whose figure has no run in its name
    # Of a run's several figures: the parameter that distinguishes them, and how to list its values.
    each: tuple[str, Callable[[Run], Sequence[str]]] | None = None
    alone: bool = False
    together: bool = False  # all runs are in one figure, the main one first

    def file(self, *values: Any, **options: Any) -> str:
        """The name of the figure drawn from these arguments."""
        name_parts = [self.name]
        if self.each:
            name_parts.append(str(options[self.each[0]]))
        if self.of and not self.together and values and values[0].name != self.main:
            name_parts.append(values[0].name)
        return "_".join(name_parts)

    def published(self, data: Path = DATA) -> Iterator[Drawing]:
        """The figures of this kind whose tables are stored under ``data``."""
        if self.alone:
            yield self
        stored_runs = Archive(data / self.of).runs() if self.of else []
        runs = [run for run in stored_runs if set(self.needs) <= set(run.kinds) and self.when(run)]
        if self.together:
            runs_of_own_name = [run for run in runs if "@" not in run.name]
            if runs_main_first := sorted(runs_of_own_name, key=lambda run: run.name != self.main):
                yield Drawing(self.name, self.title, partial(self.draw, runs_main_first))
            return
        for run in runs:
            options_of_figures: list[dict[str, Any]] = [{}]
            if self.each:
                parameter, values_of = self.each
                options_of_figures = [{parameter: value} for value in values_of(run)]
            for options in options_of_figures:
                title = f"{self.title} {', '.join([*options.values(), run.name])}."
                yield Drawing(self.file(run, **options), title, partial(self.draw, run, **options))


def figure(name: str, **conditions: Any) -> Callable[[Draw], Draw]:
    """Register the function below as the one that draws a figure, in the suite's look; see ``Drawing``."""

    def register(draw_figure: Draw) -> Draw:
        @wraps(draw_figure)
        def in_look(*values: Any, **options: Any) -> Figure:
            from helpers.results.style import in_style  # matplotlib, when something is drawn

            with in_style():
                return draw_figure(*values, **options)

        figure_title = " ".join((draw_figure.__doc__ or "").partition("\n\n")[0].split())
        _REGISTRY[name] = Drawing(name, figure_title, in_look, **conditions)
        return cast(Draw, in_look)

    return register


def _unknown(name: str) -> UserError:
    listed = [line.split()[0] for line in LIST.read_text("utf-8").splitlines()]
    hint = did_you_mean(name, [*_REGISTRY, *listed])
    return UserError(f"no figure {name!r}{hint}; see python -m helpers figure --list")


def drawing(name: str) -> Drawing:
    """How figures of a kind are drawn; a ``UserError`` where there is none."""
    for module in CHAPTERS.get(name[:2], ()):
        import_module(f"helpers.{module}")
    if name not in _REGISTRY:
        raise _unknown(name)
    return _REGISTRY[name]


def published_figures(data: Path = DATA, *, chapter: str = "") -> dict[str, Drawing]:
    """All figures that can be drawn from stored tables, or those of one chapter, by name."""
    for chapter_number in [chapter] if chapter in CHAPTERS else CHAPTERS:
        for module in CHAPTERS[chapter_number]:
            import_module(f"helpers.{module}")
    published: list[Drawing] = []
    for name, drawing_of_kind in _REGISTRY.items():
        if name.startswith(chapter):
            published += drawing_of_kind.published(data)
    in_order = sorted(published, key=lambda published_figure: published_figure.name)
    return {published_figure.name: published_figure for published_figure in in_order}


def write_list(path: Path = LIST) -> None:
    """Write down the names and titles of all published figures."""
    list_lines = [
        f"{name:40s} {published_figure.title}\n"
        for name, published_figure in published_figures().items()
    ]
    write_whole(path, "".join(list_lines))


def save(name: str, folder: Path | None = None, *, data: Path = DATA) -> list[Path]:
    """Draw one published figure and save it as PNG and SVG, by default among the committed ones."""
    figures_by_name = published_figures(data, chapter=name[:2])
    if name not in figures_by_name:
        raise _unknown(name)
    from helpers.results.style import save_figure

    return save_figure(figures_by_name[name].draw(), name, folder or paths.FIGURES)
