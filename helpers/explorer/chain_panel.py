"""The panel of implication chains: edit a fact, then walk the chains that lead back to it.

>>> ChainPanel(ChainExplorer(language_model, edits, store), Explorer(language_model))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

import ipywidgets as widgets
from matplotlib.figure import Figure

from helpers.explorer.base_panel import WIDE, Panel, table_html
from helpers.explorer.chain_explorer import ChainExplorer, ChainsOutcome
from helpers.explorer.one_edit import Explorer
from helpers.results.figure import figure
from helpers.thinkedit.drawings import graph_pair
from helpers.thinkedit.graph import graph_of_facts
from helpers.thinkedit.knowgic import Chain

ALL = -1  # in place of a chain's number


class ChainPanel(Panel):
    """Edits one of the explorer's facts.

    Args:
        chains: the model, the edits and the store.
        editors: where editors come from.
        first: an outcome to begin with; its edit is then chosen.
        editor: the editor chosen at first, with APP if ``app``.
        steps: length of the longest chains shown at first.
    """

    def __init__(
        self,
        chains: ChainExplorer,
        editors: Explorer,
        *,
        first: ChainsOutcome | None = None,
        editor: str = "rome",
        app: bool = False,
        steps: int = 3,
    ) -> None:
        self._chains = chains
        self.outcome = first
        super().__init__(editors, editor, self._edit, app=app)
        facts = [(f"{e.subject}: {e.original} → {e.new}", n) for n, e in enumerate(chains.edits)]
        self.fact = widgets.Dropdown(description="Edit", options=facts, layout=WIDE)
        self.steps = widgets.IntSlider(description="Steps up to", value=steps, min=1, max=steps)
        self.chain = widgets.Dropdown(description="Chain", layout=WIDE)
        self.steps.observe(lambda _: self._offer_chains(), "value")
        self.chain.observe(lambda _: self._redraw(), "value")
        if first is not None:
            self.fact.value = list(chains.edits).index(first.edit)
            self._show(first)
        walk = [self.steps, self.chain, self.picture, self.details, self.style_sheet]
        self.children = [self.fact, self.choices, self.status, *walk]

    def _edit(self) -> None:
        editor = self._explorer.editor(self.editor.value, app=self.app.value)
        self.outcome = self._chains.explore(self._chains.edits[self.fact.value], editor)
        self._show(self.outcome)

    def _show(self, outcome: ChainsOutcome) -> None:
        """Offer an outcome's chains and draw them."""
        self.steps.max = max(map(len, outcome.edit.chains))
        self._offer_chains()
        self.status.value = f"{escape(outcome.method)}: {escape(outcome.summary())}"  # last

    def _offer_chains(self) -> None:
        """Offer the chains of the outcome that are short enough, all together first."""
        if self.outcome is None:
            return
        chains = self.outcome.edit.chains
        short = [n for n, chain in enumerate(chains) if len(chain) <= self.steps.value]
        named = [(" → ".join(chains[n].nodes), n) for n in short]
        self.chain.options = [(f"all {len(short)} of them", ALL), *named]
        if self.chain.index == 0:
            self._redraw()  # a dropdown is silent when its options change but not its index
        self.chain.index = 0

    def _redraw(self) -> None:
        if self.outcome is None or self.chain.value is None:
            return
        number, chains = self.chain.value, self.outcome.edit.chains
        if number == ALL:
            shown = [chain for chain in chains if len(chain) <= self.steps.value]
            self.details.value = ""
        else:
            shown = [chains[number]]
            self.details.value = steps_html(self.outcome, number)
        self._draw(graphs(self.outcome, shown))


@figure("07_chains", title="An edit's chains before and after it")
def graphs(outcome: ChainsOutcome, chains: Sequence[Chain]) -> Figure:
    """The graph of some of an edit's chains before and after the edit."""
    part = replace(outcome.edit, chains=tuple(chains))
    graph = graph_of_facts(part.facts)
    wording = f"{part.prompt.replace('{}', part.subject)} {part.original} → {part.new}"
    caption = f"ours: {outcome.model}, {outcome.method}: {wording}"
    return graph_pair(graph, part.subject, part.original, **outcome.states(), caption=caption)


def steps_html(outcome: ChainsOutcome, number: int) -> str:
    """One chain's steps as an HTML table."""
    caption = "Probability of each step's object, and what became of the fact"
    return table_html(outcome.chain(number), caption, digits=3)
