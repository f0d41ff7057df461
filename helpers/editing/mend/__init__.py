"""MEND: a trained hypernetwork turns a gradient into an edit."""
