"""Pipelines of others and of our own, run on this machine with programs that stand for theirs."""
