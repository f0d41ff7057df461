"""What an edit costs: at equal strength, with answers held out, at other subjects, and when it is undone.

Four studies of PEAK's records, a module each. Each reads from top to bottom: what is edited and asked, the
``publication`` of its tables, what is measured of them, and the table that readers see.

================ ==========================================================================
held_out_answers APP whose loss is shown half of a record's answers: what becomes of the others
strength         an update at several scales, against methods that are weaker anyway
leaks            an edit's prompt, asked about other subjects
undo             an edit that is edited back
states           what ``strength`` and ``undo`` share: several edits made of one, in one run
records          which records are edited, and others of their relation
figures          a figure for each study
================ ==========================================================================
"""
