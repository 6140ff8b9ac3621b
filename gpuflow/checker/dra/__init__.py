"""What the scheduler answers to a pod that asks for devices through claims (dynamic resource allocation)."""
