"""Retry budgets on a real cluster: `make prove-retries`; docs/design/retries-proof.md says what is shown."""
