"""A model's own knowledge graph, grown around a fact (Algorithms 1–3)."""
