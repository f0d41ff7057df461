"""How records are drawn, and what so many of them can show; needs no model."""
