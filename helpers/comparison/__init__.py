"""Every editor on every measure: rows gathered from the stored tables of all papers."""
