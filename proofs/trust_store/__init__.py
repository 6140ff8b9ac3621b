"""Stores in the hands of somebody else: one object of a sound store is changed, and a run is resumed from it.

    python -m proofs trust-store --count 5600 --seed 1

Real code reads the store: the supervisor with its book, restore and outputs, in this process with the program left out,
and a sample of the same cases as real `gpuflow-run` processes. For each case: no traceback, nothing outside the folders
that belong to the run, and the run resumes from the newest sound checkpoint, or says in one sentence why it does not.
"""
