"""Pipelines on a running Argo: scripted faults, the contract they are held against, and the examples."""
