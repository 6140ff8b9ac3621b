"""A pipeline's pods in their ClusterQueues: requests, verdicts, and findings in Kueue's words."""
