"""Whether the API server would create a pod, and in which words it would refuse.

Follows Kubernetes 1.36: defaulting, LimitRange, PriorityClass, RuntimeClass, validation of resources, Pod
Security and ResourceQuota.
"""
