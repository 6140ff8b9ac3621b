"""A pipeline with one gang of four ranks, and what its run looks like in the cluster, whatever the engine is."""

from __future__ import annotations

from typing import Any

from gpuflow.runtime.gang_kinds import JOBSET

from .gangs import OF_JOBSET, RANK
from .kube import Kube
from .waiting import until

WORD = 'a {{b}} $(X) "c"'
SCRIPT = """\
echo "rank $GPUFLOW_RANK of $GPUFLOW_WORLD_SIZE, attempt $GPUFLOW_ATTEMPT after $GPUFLOW_INTERRUPTIONS: $WORD"
if [ "$GPUFLOW_RANK$GPUFLOW_ATTEMPT" = "$FAILS" ]; then sleep 3; exit 3; fi
sleep $SECONDS_EACH
printf '%s' "$WORD" > "$GPUFLOW_OUTPUTS/said"
"""


def pipeline(
    *,
    script: str = SCRIPT,
    seconds: int = 3,
    fails: str = "",
    failures: int = 0,
    interruptions: int = 3,
    queue: str | None = None,
    leader: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """`fails`: the rank and the attempt that exits with 3. `queue`: of Kueue, for the gang. `leader`: what is different
    in rank 0."""
    small = {"image": "gpuflow.test/gpuflow:1", "image_pull_policy": "IfNotPresent", "cpu": "20m", "memory": "96Mi"}
    env = {"WORD": {"param": "word"}, "SECONDS_EACH": str(seconds), "FAILS": fails}
    retry = {"failures": failures, "interruptions": interruptions, "backoff": {"start": "1s", "max": "2s"}}
    gang = 4 if leader is None else {"workers": 3, "leader": leader}
    train = {"gang": gang, "script": script, "env": env, "retry": retry, "outputs": {"said": "string"}}
    if queue is not None:
        train["queue"] = queue
    read = {"script": "printf '%s\\n' \"$SAID\"", "env": {"SAID": {"output": "train.said"}}}
    return {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": "gangs",
        "silence": ["GF341"],
        "params": {"word": {"type": "string", "default": WORD}},
        "defaults": small,
        "steps": {"train": train, "read": read},
    }


class GangRun:
    """The run of such a pipeline in a namespace of its own."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube

    def said(self) -> str:
        """What the engine has said so far, for who wonders why nothing happens."""
        return ""

    def attempts(self) -> list[dict[str, Any]]:
        found = self.kube.list("jobset", "gpuflow.dev/step=train")
        return sorted(found, key=lambda item: int(item["metadata"]["annotations"]["gpuflow.dev/attempt"]))

    def counts(self) -> tuple[str, str, str]:
        """The number of the newest attempt, and the failures and interruptions before it."""
        notes = self.attempts()[-1]["metadata"]["annotations"]
        return tuple(notes[f"gpuflow.dev/{name}"] for name in ("attempt", "failures", "interruptions"))  # type: ignore[return-value]  # three of them

    def ranks(self, attempt: int = 1) -> dict[int, str]:
        """The pods of an attempt that run, by rank."""
        number = str(attempt)
        for jobset in self.attempts():
            if jobset["metadata"]["annotations"]["gpuflow.dev/attempt"] == number:
                pods = self.kube.list("pod", f"{OF_JOBSET}={jobset['metadata']['name']}")
                running = [pod["metadata"] for pod in pods if pod["status"].get("phase") == "Running"]
                first = JOBSET.first_ranks(jobset)
                return {
                    first[each["labels"][JOBSET.role]] + int(each["labels"][RANK]): each["name"] for each in running
                }
        return {}

    def there(self) -> list[str]:
        """The ranks that there are, whatever they do."""
        return [pod["metadata"]["name"] for pod in self.kube.list("pod", RANK)]

    def all_run(self, attempt: int = 1) -> dict[int, str]:
        """Every rank by its number, once their programs work."""

        def work() -> bool:
            ranks = self.ranks(attempt)
            if len(ranks) < 4:
                return False
            return all(self._works(rank, name, attempt) for rank, name in ranks.items())

        until("all ranks work", work, timeout=300, otherwise=self.said)
        return self.ranks(attempt)

    def _works(self, rank: int, name: str, attempt: int) -> bool:
        """Whether the program of a rank has said its first words; its supervisor has similar ones before."""
        return f"rank {rank} of 4, attempt {attempt} after" in self.kube("logs", name, "--container=main")

    def nothing_left(self) -> None:
        def gone() -> bool:
            return not self.kube.list("jobset") and not self.kube.list("pod", RANK)

        until("no rank to be left", gone, timeout=120)
