"""What an edit costs: at equal strength, with answers held out, at other subjects, and when it is undone.

Four studies of PEAK's records, two modules each. The one with ``_run`` edits and asks, and lists what is
published (``publication``); the other measures what is stored and makes the table that readers see, without
a model.

================ ==========================================================================
held_out_answers APP whose loss is shown half of a record's answers: what becomes of the others
strength         an update at several scales, against methods that are weaker anyway
unshown_strength held-out answers at equal strength, from the stored runs of the two above
leaks            an edit's prompt, asked about other subjects
undo             an edit that is edited back
states           what ``strength_run`` and ``undo_run`` share: several edits made of one, in one run
records          which records are edited, and others of their relation
figures          a figure for each study
================ ==========================================================================
"""
