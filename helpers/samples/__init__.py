"""How records are drawn, and what a sample of a given size can show; needs no model."""
