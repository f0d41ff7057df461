"""Try an edit, see what it does: panels for notebooks, and what they show without one."""
