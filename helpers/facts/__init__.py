"""Edit facts of your own, in any model: what each edit did, in one table."""

from helpers.facts.edit import GREEDY, EditedFacts, Fact, edit_facts

__all__ = ["GREEDY", "EditedFacts", "Fact", "edit_facts"]
