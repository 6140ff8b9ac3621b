"""The pod of a task as data: references as calls, claims of the run by name, and what changes on demand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuflow.pod import Engine, is_supervised, pod_for
from gpuflow.pod.later_attempts import off_spot, on_demand_fields
from gpuflow.pod.launcher import launcher_for
from gpuflow.pod.volumes import run_claim_volume
from gpuflow.site import Site
from gpuflow.targets.airflow.facts import FACTS
from gpuflow.targets.airflow.python import Call
from gpuflow.targets.airflow.references import MARK, Marks, Scope, glued


def pod_data(scope: Scope, name: str, site: Site, *, leads: bool = False) -> dict[str, Any]:
    """`metadata` and `spec` of a step's pod, with calls where the values of a run belong. `leads`: of its leader."""
    marks = Marks(scope)
    # The ranks of a gang leave their outputs in rank 0's last words, and none to Airflow.
    is_rank = scope.pipeline.effective(name).gang is not None
    out = Engine(FACTS.supervisor, FACTS.outputs_dir, scope.within)
    engine = Engine(within=scope.within, leads=leads) if is_rank else out
    pod: dict[str, Any] = marks.replaced(pod_for(scope.pipeline, name, site, marks, engine))
    if (copies := scope.copies()) and is_supervised(scope.pipeline.effective(name), site):
        _tell_copies(pod["spec"]["containers"][0]["command"], copies)
    made = {run_claim_volume(claim): claim for claim in scope.pipeline.claims}
    for volume in pod["spec"].get("volumes", ()):
        if volume["name"] in made:
            volume["persistentVolumeClaim"]["claimName"] = Call("claim", (claim_stem(scope, made[volume["name"]]),))
    return pod


def launcher_data(scope: Scope, name: str, site: Site) -> dict[str, Any]:
    """The pod that looks after a gang where the stock operator makes it, with the gang in its command.

    Nobody owns the gang: the loss of this pod leaves it to the next try, which finds it.
    """
    marks = Marks(scope)
    engine = Engine(FACTS.supervisor, FACTS.outputs_dir, scope.within)
    pod = launcher_for(scope.pipeline, name, site, marks, engine, lambda text: MARK in text, owner="none")
    replaced: dict[str, Any] = marks.replaced(pod)
    return replaced


def _tell_copies(command: list[Any], copies: list[tuple[str, Any]]) -> None:
    """A supervised step of a flattened sub-pipeline keeps its state apart by the items around it too."""
    words = [word.args[0] if isinstance(word, Call) else word for word in command[: command.index("--")]]
    own = next((place for place, word in enumerate(words) if str(word).startswith("--item=")), None)
    around: list[Any] = []
    for key, value in copies:
        around += [f"{key}=", value, ","]
    if own is None:
        place = next(place for place, word in enumerate(words) if str(word).startswith("--run-id="))
        command.insert(place + 1, glued(["--item=", *around[:-1]]))
    else:
        rest = command[own].args if isinstance(command[own], Call) else (command[own],)
        command[own] = glued(["--item=", *around, rest[0].removeprefix("--item="), *rest[1:]])


def claim_stem(scope: Scope, claim: str) -> str:
    """What the names of a claim's volumes start with."""
    return "-".join((*scope.group, claim)) if scope.group else f"{scope.pipeline.name}-{claim}"


def on_demand(scope: Scope, name: str, site: Site, *, leads: bool = False) -> dict[str, Any]:
    """The fields of the pod's spec that are different when the step no longer runs on spot; None: not there."""
    fixed = replace(scope, pipeline=off_spot(scope.pipeline, name))
    first, plain = (pod_data(each, name, site, leads=leads) for each in (scope, fixed))
    return on_demand_fields(first["spec"], plain["spec"])
