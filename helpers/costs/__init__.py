"""What an edit costs: at equal strength, with answers held out, at other subjects, and when it is undone."""
