"""Retry budgets on a real cluster: `python -m proofs retries`; proofs/retries.md says what is shown."""
