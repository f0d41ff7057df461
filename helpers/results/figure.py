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
    "04": ("peak.ablation_figures", "behaviour.doses", "behaviour.figures"),
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
        parts = [self.name]
        if self.each:
            parts.append(str(options[self.each[0]]))
        if self.of and not self.together and values and values[0].name != self.main:
            parts.append(values[0].name)
        return "_".join(parts)

    def published(self, data: Path = DATA) -> Iterator[Drawing]:
        """The figures of this kind whose tables are stored under ``data``."""
        if self.alone:
            yield self
        stored = Archive(data / self.of).runs() if self.of else []
        runs = [run for run in stored if set(self.needs) <= set(run.kinds) and self.when(run)]
        if self.together:
            alike = [run for run in runs if "@" not in run.name]
            if joint := sorted(alike, key=lambda run: run.name != self.main):
                yield Drawing(self.name, self.title, partial(self.draw, joint))
            return
        for run in runs:
            each = [{self.each[0]: value} for value in self.each[1](run)] if self.each else [{}]
            for options in each:
                title = f"{self.title} {', '.join([*options.values(), run.name])}."
                yield Drawing(self.file(run, **options), title, partial(self.draw, run, **options))


def figure(name: str, **how: Any) -> Callable[[Draw], Draw]:
    """Register the function below as the one that draws a figure, in the suite's look; see ``Drawing``."""

    def register(draw: Draw) -> Draw:
        @wraps(draw)
        def in_look(*values: Any, **options: Any) -> Figure:
            from helpers.results.style import in_style  # matplotlib, when something is drawn

            with in_style():
                return draw(*values, **options)

        title = " ".join((draw.__doc__ or "").partition("\n\n")[0].split())
        _REGISTRY[name] = Drawing(name, title, in_look, **how)
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
    for known in [chapter] if chapter in CHAPTERS else CHAPTERS:
        for module in CHAPTERS[known]:
            import_module(f"helpers.{module}")
    kinds = [kind for name, kind in _REGISTRY.items() if name.startswith(chapter)]
    entries = [entry for kind in kinds for entry in kind.published(data)]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}


def write_list(path: Path = LIST) -> None:
    """Write down the names and titles of all published figures."""
    lines = [f"{name:40s} {entry.title}\n" for name, entry in published_figures().items()]
    write_whole(path, "".join(lines))


def save(name: str, folder: Path | None = None, *, data: Path = DATA) -> list[Path]:
    """Draw one published figure and save it as PNG and SVG, by default among the committed ones."""
    entries = published_figures(data, chapter=name[:2])
    if name not in entries:
        raise _unknown(name)
    from helpers.results.style import save_figure

    return save_figure(entries[name].draw(), name, folder or paths.FIGURES)
