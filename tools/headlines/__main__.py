"""``python -m tools.headlines``: write every headline into the README and under its notebook's title.

The README's first screen and its table are made here as well, and the longer tables of ``docs/results.md``.
``tests/test_headlines.py`` holds all of it to the published tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import typer

from helpers.comparison.measures import stored_rows
from helpers.comparison.tables import short_table
from helpers.paths import NOTEBOOKS, REPOSITORY
from helpers.peak.figures import MAIN_RUN
from tools.headlines import editors, first_screen, klob, lifelong, peak, thinkedit
from tools.headlines.headline import Headline

README = REPOSITORY / "README.md"
RESULTS = REPOSITORY / "docs" / "results.md"
_SCORERS = {  # of the table of scorers
    "ES": "ES",
    "tokens": "token match",
    "choice": "multiple choice",
    "yes": "true?",
    "negated": "false?",
    "free, greedy": "free text",
    "asked, greedy": "instructed",
    "chat, greedy": "chat",
}
_BEGIN, _END = "<!-- made by python -m tools.headlines: {} -->", "<!-- end -->"


def all_headlines() -> list[Headline]:
    """Of every notebook, in their order; of notebook 10 only where a long run is published."""
    headlines = [
        *peak.headlines(),
        *klob.headlines(),
        *thinkedit.headlines(),
        *editors.headlines(),
        *lifelong.headlines(),
    ]
    return sorted(headlines, key=lambda headline: headline.number)


def pages(headlines: Iterable[Headline]) -> dict[Path, str]:
    """The README and the page of results, with fresh headlines and tables."""
    parts_of_pages = {
        README: {
            "figure": first_screen.caption_of_figure(),
            "findings": first_screen.findings_lines(),
            "headlines": "\n".join(headline.line() for headline in headlines),
            "short table": _markdown(first_screen.first_screen_table()),
        },
        RESULTS: {
            "editors": _markdown(editors_table()),
            "scorers": _markdown(scorers_table()),
        },
    }
    texts = {}
    for page, parts in parts_of_pages.items():
        texts[page] = page.read_text("utf-8")
        for name, part in parts.items():
            texts[page] = replaced(texts[page], name, part)
    return texts


def editors_table() -> pd.DataFrame:
    """Every plain editor on PEAK-CF and on what each model recalls, one row per editor and model.

    Both halves of a row are of one setting: where an editor's hyperparameters differ, the second is empty.
    """
    return short_table(stored_rows(), _MAIN_MODEL)


def scorers_table() -> pd.DataFrame:
    """Mean success of every editor's edits under each scorer, without and with APP, in percent."""
    states = peak.states_of_main_run()
    means = {state: 100 * table[[*_SCORERS]].mean() for state, table in states.items()}
    table = pd.DataFrame.from_dict(means, orient="index").rename(columns=_SCORERS)
    return table.map("{:.0f}".format).rename_axis("editor")


def notebook(headline: Headline) -> tuple[Path, str]:
    """A notebook's path and its text with a fresh box in its first cell."""
    path = NOTEBOOKS / f"{headline.notebook}.ipynb"
    content = json.loads(path.read_text("utf-8"))
    first = content["cells"][0]
    source = replaced("".join(first["source"]), headline.number, headline.box())
    first["source"] = source.splitlines(keepends=True)
    return path, json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def replaced(text: str, name: str, part: str) -> str:
    """The text with what is between the marks of that name exchanged."""
    begin = _BEGIN.format(name)
    marked = re.compile(f"{re.escape(begin)}\n.*?{re.escape(_END)}", re.DOTALL)
    if not marked.search(text):
        raise ValueError(f"no place for {name!r}: put {begin!r} and {_END!r} where it belongs")
    return marked.sub(lambda _: f"{begin}\n{part}\n{_END}", text)


def _markdown(table: pd.DataFrame) -> str:
    """A table with its index as Markdown; an index repeated from the row above is omitted."""
    rows, above = [], ""
    for key, cells in zip(table.index, table.to_numpy(), strict=True):
        first, *rest = key if isinstance(key, tuple) else (key,)
        rows.append(["" if first == above else first, *rest, *cells])
        above = first
    head = [*table.index.names, *table.columns]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


_MAIN_MODEL = MAIN_RUN.split("_")[0]


def main() -> None:
    """Write the boxes of the notebooks and the tables of the README anew."""
    made = all_headlines()
    for page, text in pages(made).items():
        page.write_text(text, "utf-8")
    for each in made:
        path, text = notebook(each)
        path.write_text(text, "utf-8")
        print(path)


if __name__ == "__main__":
    typer.run(main)
