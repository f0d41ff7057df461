"""PEAK records made from triples."""
