"""What Argo Workflows can say of a pipeline."""

from __future__ import annotations

from gpuflow.targets.constructs import VOCABULARY
from gpuflow.targets.frame import Cannot, Capabilities, Weaker

_GAPS: dict[str, Cannot | Weaker] = {
    "on_data": Cannot(
        "never", "Argo Workflows has no start by new data", "use an Argo Events sensor that submits the template"
    ),
    "schedule.catch_up": Cannot(
        "never", "a CronWorkflow runs one missed time at most", "start the missed runs by hand"
    ),
    "approval.timeout": Cannot(
        "never",
        "a suspend node with a duration goes on when the time is over, which is the opposite",
        "approve without a timeout",
    ),
    "cache": Cannot("not yet", "memoization is not written", "leave cache out"),
    "gang": Cannot(
        "not yet", "a gang needs a JobSet, which this target does not write", "use one pod with several GPUs"
    ),
    "inputs": Cannot(
        "not yet", "artifacts are not placed in the container", "pass the URI: {output: step.name} in the command"
    ),
    "exit.outputs": Cannot(
        "not yet", "an exit handler does not see outputs of tasks", "write what it needs to storage"
    ),
    "retry.more_memory": Cannot("not yet", "more memory after OOM is not written", "ask for the larger amount at once"),
    "spot.fallback_after": Cannot("not yet", "falling back to on-demand is not written", "use spot: prefer"),
    "when.item": Cannot("not yet", "a condition on the fan-out item is not written", "put the condition into the list"),
    "for_each.dynamic_matrix": Cannot(
        "not yet", "combinations of lists that are known at run time are not written", "make one list of maps"
    ),
}

_WEAKER: dict[str, Weaker] = {
    "params.range": Weaker(
        "Argo's parameters are text: min and max are checked when compiling, not when a run is started by hand"
    ),
}

CAPABILITIES: Capabilities = {construct: _GAPS.get(construct, _WEAKER.get(construct, True)) for construct in VOCABULARY}
