"""Side-by-side measurements; each prints one table. ``python -m benchmarks.editing``."""
