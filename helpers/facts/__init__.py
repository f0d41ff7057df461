"""Edit facts of your own, in any model: what each edit did, in one table."""

from helpers.facts.edit import GREEDY, EditedFacts, edit_facts
from helpers.facts.fact import Fact

__all__ = ["GREEDY", "EditedFacts", "Fact", "edit_facts"]
