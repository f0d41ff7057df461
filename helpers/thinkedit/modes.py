"""How edits are made and scored, and what a table of the unedited model is; needs no model.

*independent*: every edit from the pristine model. *sequential*: edits accumulate, scored at the end, in the
order of the set; *sequential 2* and *sequential 3* are further orders. *deep*: independent, with the chains'
first facts edited as well. *placebo*: independent, each record scored under the edit of another one
(``helpers.editing.placebo``).
"""

SEQUENTIAL, PLACEBO = "sequential", "placebo"
SEQUENCES = (SEQUENTIAL, "sequential 2", "sequential 3")  # one for each order
MODES = ("independent", *SEQUENCES, "deep", PLACEBO)
BEFORE, AGAIN = "before", "again"  # the unedited model, and its second draw
