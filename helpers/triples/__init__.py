"""Facts and graphs of them, from packages, files and SPARQL endpoints."""
