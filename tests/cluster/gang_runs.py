"""A pipeline with one gang of four ranks, and what its run looks like in the cluster, whatever the engine is."""

from __future__ import annotations

from typing import Any

from gpuflow.runtime.gangs.kinds import JOBSET, GangKind

from .kube import Kube
from .waiting import until

OF_GANG = "gpuflow.dev/gang"
"""The label of every rank, whatever kind of object made it."""
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
    small: dict[str, Any] = {"image": "gpuflow.test/gpuflow:1", "image_pull_policy": "IfNotPresent", "memory": "96Mi"}
    # No limit: with so little a rank would start for most of a minute.
    small["cpu"] = {"request": "20m"}
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

    def __init__(self, kube: Kube, kind: GangKind = JOBSET) -> None:
        self.kube, self.kind = kube, kind

    def said(self) -> str:
        """What the engine has said so far, for who wonders why nothing happens."""
        return ""

    def attempts(self) -> list[dict[str, Any]]:
        found = self.kube.list(self._objects, "gpuflow.dev/step=train")
        return sorted(found, key=lambda item: int(item["metadata"]["annotations"]["gpuflow.dev/attempt"]))

    def counts(self) -> tuple[str, str, str]:
        """The number of the newest attempt, and the failures and interruptions before it."""
        notes = self.attempts()[-1]["metadata"]["annotations"]
        return tuple(notes[f"gpuflow.dev/{name}"] for name in ("attempt", "failures", "interruptions"))  # type: ignore[return-value]  # three of them

    def ranks(self, attempt: int = 1) -> dict[int, str]:
        """The pods of an attempt that run, by rank."""
        number, kind = str(attempt), self.kind
        for each in self.attempts():
            if each["metadata"]["annotations"]["gpuflow.dev/attempt"] == number:
                pods = self.kube.list("pod", f"{kind.pods}={each['metadata']['name']},{OF_GANG}")
                running = [pod["metadata"] for pod in pods if pod["status"].get("phase") == "Running"]
                return {self._rank(each, one["labels"]): one["name"] for one in running}
        return {}

    def _rank(self, attempt: dict[str, Any], labels: dict[str, str]) -> int:
        """A launcher of the MPI operator has no number of its own: it is the first."""
        kind, made = self.kind, attempt
        if kind.before is not None:
            first = self.kube.get(self._firsts, attempt["metadata"]["name"])
            assert first is not None, f"what stood before {attempt['metadata']['name']} is gone"
            made = {**attempt, kind.before.key: first}
        return kind.first_ranks(made)[labels[kind.role]] + int(labels.get(kind.rank, "0"))

    @property
    def _objects(self) -> str:
        return f"{self.kind.plural}.{self.kind.group}"

    @property
    def _firsts(self) -> str:
        """What stands before them; Services where nothing does, which go too."""
        return "service" if self.kind.before is None else f"{self.kind.before.plural}.{self.kind.before.group}"

    def there(self) -> list[str]:
        """The ranks that there are, whatever they do."""
        return [pod["metadata"]["name"] for pod in self.kube.list("pod", OF_GANG)]

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
        log = self.kube("logs", name, f"--container={self.kind.container}")
        return f"rank {rank} of 4, attempt {attempt} after" in log

    def nothing_left(self) -> None:
        def gone() -> bool:
            return not any(map(self.kube.list, (self._objects, self._firsts))) and not self.there()

        until("no rank to be left", gone, timeout=120)
