"""Tables, figures, the papers' published numbers and widgets."""
