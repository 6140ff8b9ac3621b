"""Harnesses that need engines or hours, each with what it showed. `python -m proofs --list`; proofs/README.md."""
