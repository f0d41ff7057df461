"""How edits are made and scored, and what a table of the unedited model is; needs no model.

*independent*: every edit from the pristine model. *sequential*: edits accumulate, scored at the end, in the
order of the set; *sequential 2* and *sequential 3* are further orders. *deep*: independent, with the chains'
first facts edited as well. *placebo*: independent, each record scored under the edit of another one
(``helpers.editing.placebo``). *without key*: independent, without what the edit does to its subject's key
(``helpers.editing.without_key``); *without key whitened*: as the model's keys weigh directions; *without
other key*, the control: without what it does to the subject of the record's placebo.
"""

SEQUENTIAL, PLACEBO = "sequential", "placebo"
SEQUENCES = (SEQUENTIAL, "sequential 2", "sequential 3")  # one for each order
WITHOUT_KEY, WHITENED, WITHOUT_OTHER_KEY = (
    "without key",
    "without key whitened",
    "without other key",
)
KEY_MODES = (WITHOUT_KEY, WHITENED, WITHOUT_OTHER_KEY)
MODES = ("independent", *SEQUENCES, "deep", PLACEBO, *KEY_MODES)
BEFORE, AGAIN = "before", "again"  # the unedited model, and its second draw
