"""A private, real Kubernetes for tests: `python -m tests.cluster up`, or the fixtures in `fixtures.py`."""
