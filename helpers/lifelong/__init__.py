"""A thousand edits in a row: what stays of the first, and of what was never edited."""
