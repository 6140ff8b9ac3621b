"""A pipeline's pods on the nodes: requests per node pool, verdicts, and findings in the scheduler's words."""
