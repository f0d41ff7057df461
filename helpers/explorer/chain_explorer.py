"""What an edit does to the chains of facts that lead back to the old answer, for one edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from helpers.editing.editor import Editor
from helpers.editing.editors import method_label
from helpers.models.language_model import LanguageModel
from helpers.results.store import ResultsStore
from helpers.thinkedit import case
from helpers.thinkedit.knowgic import Edit
from helpers.thinkedit.metrics import BY_RANK, facts_table
from helpers.thinkedit.run import ThinkEditRun

STEPS = ["step", "statement", "object", "before", "after", "state"]


@dataclass(frozen=True)
class ChainsOutcome:
    """An edit's facts before and after it was made.

    Attributes:
        edit: the edit with its chains.
        model: name of the model.
        method: the editor, in words.
        facts: table of ``helpers.thinkedit.metrics.facts_table``.
    """

    edit: Edit
    model: str
    method: str
    facts: pd.DataFrame

    def states(self) -> dict[str, case.EdgeStates]:
        """State of every link of the graph, "before" and "after"."""
        return case.edge_states(self.edit, self.facts)

    def chain(self, number: int) -> pd.DataFrame:
        """One chain step by step (``STEPS``): probability of each object before and after."""
        known = self.facts.set_index("item")
        items = {fact.key: item for item, fact in enumerate(self.edit.facts)}
        rows = []
        for step, fact in enumerate(self.edit.chains[number].facts, start=1):
            row = known.loc[items[fact.key]]
            state = case.state_of(bool(row["known_before"]), bool(row["known_after"]))
            rows.append((step, fact.cloze, fact.object, row["before"], row["after"], state))
        return pd.DataFrame(rows, columns=STEPS)

    def summary(self) -> str:
        """IFR and CKP in one line."""
        overall = case.step_table(self.edit, self.facts).set_index("steps").loc["overall"]
        kept, _ = case.preservation(self.edit, self.facts)
        recovery = f"{overall['IFR']:.2f}" if overall["deducible before"] else "undefined"
        return (
            f"{overall['deducible before']:.0f} of {overall['chains']:.0f} chains deducible before, "
            f"{overall['active after']:.0f} after; IFR {recovery}, CKP {kept:.2f}"
        )


@dataclass(frozen=True)
class ChainExplorer:
    """A model and a set of edits; scores are kept in the store, so that looking again is free."""

    language_model: LanguageModel
    edits: Sequence[Edit]
    store: ResultsStore
    layout: str = "mini"

    def explore(self, edit: Edit, editor: Editor) -> ChainsOutcome:
        """Make an edit and score all facts of its chains before and after."""
        run = ThinkEditRun(
            self.language_model, [edit], self.edits, {}, self.store, layout=self.layout
        )
        facts = facts_table(run.before(), run.after(editor, "independent"), rule=BY_RANK)
        method = method_label(editor.method)
        return ChainsOutcome(edit, self.language_model.name, method, facts)
