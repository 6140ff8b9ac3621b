"""Whether Kueue would give a workload its quota, from which flavors, and in which words it would not.

Follows Kueue 0.19: the requests of pod sets, the tree of ClusterQueues and cohorts, matching of flavors, flavor
fungibility, preemption without fair sharing, and the checks before.
"""

from gpuflow.checker.kueue.scheduler import Assignment, AssignmentStatus, Blocker, Kueue, assign_flavors, blocker_ahead

__all__ = ["Assignment", "AssignmentStatus", "Blocker", "Kueue", "assign_flavors", "blocker_ahead"]
