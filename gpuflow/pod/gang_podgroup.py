"""A gang as a JobSet whose pods Volcano's scheduler places, all of them or none: they are of one PodGroup of Volcano's.

The JobSet is as always, but that it waits in no queue of Kueue's. The pods are there from the start, and wait for
Volcano, which knows their PodGroup by an annotation. It moves the PodGroup from Pending to Inqueue by itself, and
places no pod before so many are there as it counts (`minMember`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.pod import gang_jobset
from gpuflow.pod.gang_volcano import as_scheduled, queued_fields
from gpuflow.runtime.gang_kinds import POD_GROUP

KIND = "PodGroup"


def jobset_of(pod: Mapping[str, Any], workers: int, leader: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One attempt as a JobSet, with its PodGroup beside it: whoever makes them takes them apart, and names both.

    The PodGroup has no `minResources`. Volcano needs none to start a gang whole: `minMember` does that, and what the
    queue may use is kept pod by pod. It is for objects whose pods come later. Here it would do harm: the plugin
    resourcequota adds it to what the quota is charged with already for the very pods, and may then never let them
    start; and a PodGroup falls back to Inqueue when its attempt has ended, and would take its part of the queue for as
    long as the JobSet is kept. So it need not follow what later attempts ask for, either.
    """
    first = None if leader is None else as_scheduled(leader)
    return {
        **gang_jobset.jobset_of(as_scheduled(pod), workers, first),
        POD_GROUP.key: {
            "apiVersion": POD_GROUP.api_version,
            "kind": KIND,
            "spec": {"minMember": workers + (leader is not None), **queued_fields(pod)},
        },
    }
