"""Knowledge locating: one module per method, all behind one protocol (``Locator.scores``)."""
