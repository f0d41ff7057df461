"""Edit facts of your own, in any model: what each edit did, in one table."""

from helpers.facts.benchmark import GREEDY, record_of
from helpers.facts.edit import edit_facts
from helpers.facts.fact import Fact
from helpers.facts.read import load_facts
from helpers.facts.result import EditedFacts, load_edits

__all__ = [
    "GREEDY",
    "EditedFacts",
    "Fact",
    "edit_facts",
    "load_edits",
    "load_facts",
    "record_of",
]
