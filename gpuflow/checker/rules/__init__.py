"""Findings that no verdict needs: what will hurt, and what can never work as it is set up."""
