"""How the benchmarks are made: triples, templates, PEAK and KLoB."""
