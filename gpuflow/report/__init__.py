"""Renderings of a report."""
