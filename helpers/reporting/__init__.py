"""Tables, figures and the papers' published numbers."""
