"""Whether the API server would create a pod, and in which words it would refuse.

Follows Kubernetes 1.36: defaulting, LimitRange, PriorityClass, RuntimeClass, validation of resources, Pod
Security and ResourceQuota.
"""

from gpuflow.kubernetes.admission.classes import PriorityClass, RuntimeClass
from gpuflow.kubernetes.admission.decision import Admission, admit
from gpuflow.kubernetes.admission.limit_range import LimitRange, broken_claim_bounds, read_limit_range
from gpuflow.kubernetes.admission.quota import Quota, read_quota
from gpuflow.kubernetes.admission.usage import (
    is_tracked_for_pods,
    usage_of_claim,
    usage_of_object,
    usage_of_pod,
    usage_of_resource_claim,
)

__all__ = [
    "Admission",
    "LimitRange",
    "PriorityClass",
    "Quota",
    "RuntimeClass",
    "admit",
    "broken_claim_bounds",
    "is_tracked_for_pods",
    "read_limit_range",
    "read_quota",
    "usage_of_claim",
    "usage_of_object",
    "usage_of_pod",
    "usage_of_resource_claim",
]
