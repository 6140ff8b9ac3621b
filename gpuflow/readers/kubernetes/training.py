"""The jobs of Kubeflow's training operator, and MPIJobs."""

from __future__ import annotations

from typing import Final

from gpuflow.demands.model import Demand
from gpuflow.graph import Unknown
from gpuflow.readers.frame import Passive
from gpuflow.readers.kubernetes.building import Object, Run, suspended
from gpuflow.readers.kubernetes.parts import Part
from gpuflow.readers.kubernetes.pods import pod_of

REPLICA_SPECS: Final = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
ROLES: Final = ("Master", "Chief", "Launcher", "PS", "Worker", "Evaluator")
"""In the order in which they are named in answers."""


def training_job(thing: Object) -> Demand | Passive:
    """Every kind of replica lives with all others. An elastic job may grow beyond what it starts with."""
    return _demand(thing, {})


def mpi_job(thing: Object) -> Demand | Passive:
    """A launcher and its workers. A launcher that waits for the workers still runs beside them."""
    thing.spec.flag("runLauncherAsWorker")
    thing.spec.text("launcherCreationPolicy", "AtStartup", ("AtStartup", "WaitForWorkersReady"))
    thing.spec.need("mpiReplicaSpecs", "Launcher")
    return _demand(thing, {"Worker": 0})


def _demand(thing: Object, defaults: dict[str, int]) -> Demand | Passive:
    spec = thing.spec
    specs = spec.need(REPLICA_SPECS[thing.document.kind])
    roles = sorted(specs.entries(), key=lambda entry: ROLES.index(entry[0]) if entry[0] in ROLES else len(ROLES))
    sets = []
    counts: dict[str, int] = {}
    for role, part in roles:
        pod = pod_of(part.need("template"), thing.owner)
        restart = part.text("restartPolicy")
        if restart is not None:
            pod = {**pod, "spec": {**pod["spec"], "restartPolicy": "Never" if restart == "ExitCode" else restart}}
        counts[role] = part.count("replicas", defaults.get(role, 1))
        sets.append((role.lower(), counts[role], pod))
    policy = spec.at("runPolicy")
    only = None if policy is None else suspended(policy, thing.owner.is_queued)
    run = Run()
    where = specs.key_where if not roles else roles[0][1].key_where
    run.together(thing.name, sets, where)
    elastic = spec.at("elasticPolicy")
    worker = dict(roles).get("Worker")
    if elastic is not None and worker is not None:
        _grown(run, thing, elastic, counts["Worker"], {name: pod for name, _, pod in sets}["worker"], worker)
    return run.demand(thing, only_at_most=only)


def _grown(run: Run, thing: Object, elastic: Part, now: int, pod: dict[str, object], worker: Part) -> None:
    """The workers that an elastic job may get on top of those that it starts with."""
    elastic.count("minReplicas", 0)
    most = elastic.at("maxReplicas")
    more = 0 if most is None else most.whole() - now
    if most is not None and more > 0:
        why = f"{most.name} lets it grow from {now} to {most.value} workers while it runs"
        run.apart(f"{thing.name}-elastic", pod, Unknown(why, more), worker.key_where)
