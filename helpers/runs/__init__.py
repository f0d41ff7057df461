"""Parameters, the results store and headless execution."""
