"""How edits are made and scored, and what a table of the unedited model is; needs no model.

*independent*: every edit from the pristine model. *sequential*: edits accumulate, scored at the end. *deep*:
independent, with the chains' first facts edited as well. *placebo*: independent, each record scored under the
edit of another one (``helpers.editing.placebo``).
"""

SEQUENTIAL, PLACEBO = "sequential", "placebo"
MODES = ("independent", SEQUENTIAL, "deep", PLACEBO)
BEFORE, AGAIN = "before", "again"  # the unedited model, and its second draw
