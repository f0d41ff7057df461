"""Edit facts of your own, in any model: what each edit did, in one table.

>>> result = edit_facts(lm, [Fact("Sudan", "{} shares a border with", "Thailand")], editor="rome")
>>> result.table
"""

from helpers.facts.edit import GREEDY, EditedFacts, edit_facts
from helpers.facts.fact import Fact

__all__ = ["GREEDY", "EditedFacts", "Fact", "edit_facts"]
