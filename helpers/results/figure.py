"""The figures by name: a function that draws one is registered where it is defined. The first paragraph of
its docstring is the figure's title.

@figure("05_layers", of="klob", needs=("edits",))
def layer_curves(run): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from helpers import UserError, paths
from helpers.paths import in_repository, write_whole
from helpers.records import check_choice, did_you_mean
from helpers.results.archive import DATA, Archive, Run, runs_by_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIST = in_repository(
    "figures/figures.txt"
)  # of what stored tables give, read without importing anything
# Names instead of imports: a paper's room lies above this one. Imported when a figure is asked for.
CHAPTERS = {
    "01": ("peak.figures", "peak.first_screen"),
    "02": ("peak.construction.publish",),
    "03": ("peak.figures",),
    "04": ("peak.ablation_figures", "costs.figures"),
    "05": ("klob.figures",),
    "06": ("thinkedit.figures", "thinkedit.case"),
    "07": ("explorer.one_edit",),
    "08": ("behaviour.figures",),
    "09": ("comparison.figures", "comparison.wording", "gates.figures"),
    "10": ("lifelong.figures",),
}
_REGISTRY: dict[str, Drawing] = {}
Draw = TypeVar("Draw", bound=Callable[..., "Figure"])


class Option(NamedTuple):
    """What the command line may choose of a figure: a keyword of its function, and the values in a run."""

    keyword: str
    values: Callable[[Run], Sequence[Any]]


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
    options: Mapping[str, Option] = field(
        default_factory=dict
    )  # by their names on the command line
    on_request: str = ""  # the option without which there is no figure

    def file(self, *values: Any, **options: Any) -> str:
        """The name of the figure drawn from these arguments."""
        name_parts = [self.name]
        if self.each:
            name_parts.append(str(options[self.each[0]]))
        if self.of and not self.together and values and values[0].name != self.main:
            name_parts.append(values[0].name)
        return "_".join(name_parts)

    def runs(self, data: Path = DATA) -> list[Run]:
        """The stored runs that it can be drawn from; those of a name of their own are in no joint figure."""
        stored_runs = Archive(data / self.of).runs() if self.of else []
        runs = [run for run in stored_runs if set(self.needs) <= set(run.kinds) and self.when(run)]
        return [run for run in runs if "@" not in run.name] if self.together else runs

    def published(self, data: Path = DATA) -> Iterator[Drawing]:
        """The figures of this kind whose tables are stored under ``data``."""
        if self.alone:
            yield self
        elif not self.on_request:
            yield from self._of_runs(self.runs(data))

    def offered(self, data: Path = DATA) -> dict[str, list[str]]:
        """The options of the command line, each with its values, of which the data have several."""
        runs = self.runs(data)
        offered = {"model": list(runs_by_model(runs))}
        for name, option in self._all_options.items():
            offered[name] = list(dict.fromkeys(str(v) for run in runs for v in option.values(run)))
        return {
            name: values
            for name, values in offered.items()
            if len(values) > 1 or name == self.on_request
        }

    def chosen(self, choices: Mapping[str, str], data: Path = DATA) -> list[Drawing]:
        """The figures of this kind that are left by choices: of each option's name, the value as text.

        What is chosen beyond a run or one of its figures ends the name. A UserError names the options, or
        the values, that there are.
        """
        offered = self.offered(data)
        for name, text in choices.items():
            if name not in offered:
                others = ", ".join(f"--{other}" for other in offered) or "no option"
                raise UserError(f"{self.name} takes no --{name}; it takes {others}")
            check_choice(self.name, name, text, offered[name])
        if self.on_request and self.on_request not in choices:
            raise UserError(f"{self.name}: choose one with --{self.on_request}")
        runs = self.runs(data)
        if "model" in choices:
            runs = runs_by_model(runs)[choices["model"]]
        values: dict[str, Any] = {}
        for name, option in self._all_options.items():
            if name in choices:
                value_in_run = {run.name: _value_of(option, run, choices[name]) for run in runs}
                runs = [run for run in runs if value_in_run[run.name] is not None]
                if runs:
                    values[option.keyword] = value_in_run[runs[0].name]
        if choices and not runs:
            words = ", ".join(f"--{name} {text}" for name, text in choices.items())
            raise UserError(f"{self.name}: no stored run has {words} together")
        ending = ""
        for name, text in choices.items():
            tells_run = name == "model" and not self.together
            tells_figure = self.each is not None and name == self.each[0]
            if not (tells_run or tells_figure):
                ending += f"_{name}-{text}"
        figures = self._of_runs(runs, **values)
        return [replace(one, name=f"{one.name}{ending}") for one in figures]

    @property
    def _all_options(self) -> dict[str, Option]:
        of_each = {self.each[0]: Option(*self.each)} if self.each else {}
        return {**of_each, **self.options}

    def _of_runs(self, runs: Sequence[Run], **values: Any) -> Iterator[Drawing]:
        """The figures of these runs, drawn with these values of keywords."""
        if self.together:
            if runs_main_first := sorted(runs, key=lambda run: run.name != self.main):
                draw = partial(self.draw, runs_main_first, **values)
                yield Drawing(self.name, self.title, draw)
            return
        for run in runs:
            options_of_figures: list[dict[str, Any]] = [{}]
            if self.each:
                parameter, values_of = self.each
                shown = [values[parameter]] if parameter in values else values_of(run)
                options_of_figures = [{parameter: value} for value in shown]
            for options in options_of_figures:
                title = f"{self.title} {', '.join([*options.values(), run.name])}."
                draw = partial(self.draw, run, **{**values, **options})
                yield Drawing(self.file(run, **options), title, draw)


def _value_of(option: Option, run: Run, text: str) -> Any:
    """A run's value of an option that has this text; None without one."""
    return next((value for value in option.values(run) if str(value) == text), None)


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
    hint = did_you_mean(name, [other for other in (*_REGISTRY, *listed) if other != name])
    return UserError(f"no figure {name!r}{hint}; see python -m helpers figure --list")


def _kind_name(name: str) -> str:
    """The kind that a published figure's name begins with; empty where there is none."""
    return max((kind for kind in _REGISTRY if name.startswith(kind)), key=len, default="")


def _import_chapters(chapters: Iterable[str]) -> None:
    for chapter in chapters:
        for module in CHAPTERS.get(chapter, ()):
            import_module(f"helpers.{module}")


def drawing(name: str) -> Drawing:
    """How figures of a kind are drawn; a ``UserError`` where there is none."""
    _import_chapters([name[:2]])
    if name not in _REGISTRY:
        raise _unknown(name)
    return _REGISTRY[name]


def published_figures(data: Path = DATA, *, chapter: str = "") -> dict[str, Drawing]:
    """All figures that can be drawn from stored tables, or those of one chapter, by name."""
    _import_chapters([chapter] if chapter in CHAPTERS else CHAPTERS)
    published: list[Drawing] = []
    for name, drawing_of_kind in _REGISTRY.items():
        if name.startswith(chapter):
            published += drawing_of_kind.published(data)
    in_order = sorted(published, key=lambda published_figure: published_figure.name)
    return {published_figure.name: published_figure for published_figure in in_order}


def write_list(path: Path = LIST) -> None:
    """Write down the names and titles of all published figures, and the options of each kind."""
    titles = {name: entry.title for name, entry in published_figures().items()}
    options_of_kinds: dict[str, str] = {}
    for kind in _REGISTRY.values():
        if kind.on_request and kind.runs():
            titles[kind.name] = kind.title
        options_of_kinds[kind.name] = ", ".join(f"--{option}" for option in kind.offered())
    list_lines = []
    for name, title in sorted(titles.items()):
        kind_name = _kind_name(name)
        options = options_of_kinds[kind_name]
        options_words = f" [{kind_name}: {options}]" if options else ""
        list_lines.append(f"{name:40s} {title}{options_words}\n")
    write_whole(path, "".join(list_lines))


def figures_named(
    name: str, choices: Mapping[str, str] | None = None, *, data: Path = DATA
) -> list[Drawing]:
    """The published figure of a name; of a kind's name, or with choices, all that they leave of the kind."""
    published = published_figures(data, chapter=name[:2])
    if name in published and not choices:
        return [published[name]]
    kind_name = _kind_name(name)
    if not kind_name:
        raise _unknown(name)
    figures = _REGISTRY[kind_name].chosen(choices or {}, data)
    of_name = [one for one in figures if one.name.startswith(name)]
    if not of_name:
        raise _unknown(name)
    return of_name


def save(
    name: str,
    folder: Path | None = None,
    *,
    choices: Mapping[str, str] | None = None,
    data: Path = DATA,
) -> list[Path]:
    """Draw published figures and save each as PNG and SVG, by default among the committed ones.

    ``choices`` are of the options that the figure's data has several of (``Drawing.offered``).
    """
    from helpers.results.style import save_figure

    paths_of_figures = []
    for published_figure in figures_named(name, choices, data=data):
        fig = published_figure.draw()
        paths_of_figures += save_figure(fig, published_figure.name, folder or paths.FIGURES)
    return paths_of_figures
