"""Random objects that make pods, most with a fault or two that the API server refuses; their pods are valid."""

from __future__ import annotations

from typing import Any

from tests.differential.draw import Draw, without_none
from tests.differential.oracle import Case

GROUPS = {
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
}
NAMES = ("train", "a.b", "Train", "a" * 52, "a" * 53, "b" * 63, "c" * 64, "d" * 254, "x_y", "-a", "a-", "9a")
LABELS = ({"app": "x"}, {"app": "x", "tier": "y"}, {"app": "y"}, {})
NUMBERS = (0, 1, 2, 5, -1)
SCHEDULES = (
    *(
        "0 3 * * *",
        "*/5 * * * *",
        "@daily",
        "@every 1h",
        "0 0 * * SUN",
        "0 0 1 jan ?",
        "5-10/2,7 * * * *",
        "@every 1h30m",
    ),
    *(
        "every day",
        "60 * * * *",
        "* * * *",
        "* * * * * *",
        "@never",
        "0 0 * * 7",
        "5-1 * * * *",
        "*/0 * * * *",
        "a * * * *",
    ),
    *(
        "TZ=UTC 0 3 * * *",
        "CRON_TZ=Europe/Berlin 0 3 * * *",
        "1-2-3 * * * *",
        "1/2/3 * * * *",
        "0 0 0 * *",
        "-1 * * * *",
    ),
    *("@every 5", "@every x", "", ",, * * * *", "1- * * * *", "0 0 * FOO *", "99999999999999999999 * * * *"),
)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "Local",
    "local",
    "Mars/Base",
    "",
    "../etc",
    "Etc/GMT+1",
    "A/averyveryverylongname",
    "-x",
)
AMOUNTS = (0, 1, 2, -1, "0%", "25%", "100%", "101%", "1", "x", "-5", "%")


def _maybe(draw: Draw, chance: float, *choices: Any) -> Any:
    return draw.pick(choices) if draw.chance(chance) else None


def case(draw: Draw) -> Case:
    kind = draw.pick(sorted(GROUPS))
    spec = {"Job": _job, "CronJob": _cron_job}.get(kind, _server)(draw, kind)
    return {"object": {"apiVersion": GROUPS[kind], "kind": kind, "metadata": _metadata(draw), "spec": spec}}


def _metadata(draw: Draw) -> dict[str, Any]:
    odd = draw.chance(0.15)
    found = without_none(
        labels=_maybe(draw, 0.1, {"a": "b"}, {"-a": "b"}, {"a": "b c"}, {"x/y": "z" * 64}, {"/a": ""}),
        annotations=_maybe(draw, 0.1, {"a": "b c"}, {"A/b": "x"}, {"a/b/c": "x"}, {"a": "x" * 262_144}),
        finalizers=_maybe(draw, 0.05, ["a/b"], ["a b"], ["example.com/x", "/y"]),
    )
    if draw.chance(0.15):
        found["generateName"] = draw.pick((*NAMES[:8], "train-", "a" * 60 + "-", "Train-"))
    if "generateName" not in found or draw.chance(0.2):
        found["name"] = draw.pick(NAMES) if odd else draw.pick(("train", "a.b", "b" * 61, "a" * 52))
    if draw.chance(0.02):
        return {key: found[key] for key in found if key not in ("name", "generateName")}
    return found


def _template(draw: Draw, labels: dict[str, str], restart: tuple[str | None, ...]) -> dict[str, Any]:
    pod = without_none(
        containers=[
            {"name": "main", "image": "busybox"},
            *({"name": "side", "image": "x"} for _ in range(draw.number(0, 1))),
        ],
        restartPolicy=draw.pick(restart),
        activeDeadlineSeconds=_maybe(draw, 0.05, 60),
    )
    return {"spec": pod, **({"metadata": {"labels": labels}} if labels or draw.chance(0.5) else {})}


def _selector(draw: Draw, labels: dict[str, str]) -> dict[str, Any] | None:
    if draw.chance(0.7):
        return {"matchLabels": labels} if labels else {}
    expressions = (
        {"key": "app", "operator": "In", "values": ["x"]},
        {"key": "app", "operator": "Exists"},
        {"key": "tier", "operator": "DoesNotExist"},
        {"key": "app", "operator": "NotIn", "values": ["x"]},
        {"key": "app", "operator": "In"},
        {"key": "app", "operator": "Exists", "values": ["x"]},
        {"key": "app", "operator": "Gt", "values": ["1"]},
        {"key": "-app", "operator": "Exists"},
        {"key": "app", "operator": "In", "values": ["a b"]},
    )
    return draw.pick(
        (
            None,
            {},
            {"matchLabels": {"app": "z"}},
            {"matchLabels": {"-app": "x"}},
            {"matchLabels": {"app": "a b"}},
            {"matchExpressions": draw.some(expressions, 1, 2)},
            {"matchLabels": {"app": "x"}, "matchExpressions": draw.some(expressions[:4], 1, 2)},
        )
    )


def _server(draw: Draw, kind: str) -> dict[str, Any]:
    labels = dict(draw.pick(LABELS))
    update = without_none(
        type=_maybe(draw, 0.6, "RollingUpdate", "RollingUpdate", "Recreate", "OnDelete", "Other"),
        rollingUpdate=_maybe(
            draw,
            0.6,
            without_none(
                maxUnavailable=_maybe(draw, 0.7, *AMOUNTS), maxSurge=_maybe(draw, 0.6, *AMOUNTS), partition=None
            ),
        ),
    )
    spec = without_none(
        selector=_selector(draw, labels),
        template=_template(draw, labels, (None, "Always", "Always", "Always", "Never", "OnFailure")),
        minReadySeconds=_maybe(draw, 0.2, 0, 10, 600, 601, -1),
        revisionHistoryLimit=None if kind == "ReplicaSet" else _maybe(draw, 0.1, *NUMBERS),
    )
    if kind == "Deployment":
        spec |= without_none(progressDeadlineSeconds=_maybe(draw, 0.3, 0, 10, 11, 600, -1))
    if kind in ("Deployment", "DaemonSet") and draw.chance(0.6):
        spec["strategy" if kind == "Deployment" else "updateStrategy"] = update
    if kind != "DaemonSet":
        spec |= without_none(replicas=_maybe(draw, 0.5, *NUMBERS))
    if kind == "StatefulSet":
        if "rollingUpdate" in update:
            update["rollingUpdate"] = {
                key: value for key, value in update["rollingUpdate"].items() if key != "maxSurge"
            }
            update["rollingUpdate"] |= without_none(partition=_maybe(draw, 0.3, *NUMBERS))
        spec |= without_none(
            updateStrategy=update if draw.chance(0.6) else None,
            serviceName=_maybe(draw, 0.5, "db", "DB", "a.b", "x" * 64, ""),
            podManagementPolicy=_maybe(draw, 0.3, "Parallel", "OrderedReady", "Both"),
            ordinals=_maybe(draw, 0.1, {"start": 1}, {"start": -1}),
            persistentVolumeClaimRetentionPolicy=_maybe(
                draw,
                0.2,
                {"whenDeleted": "Delete"},
                {"whenScaled": "Keep"},
                {"whenDeleted": "Retain", "whenScaled": ""},
            ),
            volumeClaimTemplates=_maybe(draw, 0.3, [_claim(draw)]),
        )
    return spec


def _claim(draw: Draw) -> dict[str, Any]:
    modes = draw.pick((["ReadWriteOnce"], ["ReadWriteOnce"], [], ["Often"], ["ReadWriteOncePod", "ReadOnlyMany"]))
    spec = without_none(
        accessModes=modes,
        resources=_maybe(draw, 0.8, {"requests": {"storage": "1Gi"}}, {"requests": {"storage": "0"}}, {"requests": {}}),
        storageClassName=_maybe(draw, 0.3, "fast", "Fast", ""),
        volumeMode=_maybe(draw, 0.2, "Block", "Tape"),
    )
    return {"metadata": {"name": "data"}, "spec": spec}


def _job(draw: Draw, _: str = "Job") -> dict[str, Any]:
    labels = dict(draw.pick(LABELS))
    if draw.chance(0.1):
        labels |= {
            draw.pick(("job-name", "controller-uid", "batch.kubernetes.io/job-name")): draw.pick(("train", "other"))
        }
    manual = _maybe(draw, 0.2, True, True, False)
    return _job_spec(draw, labels) | without_none(
        manualSelector=manual,
        selector=_selector(draw, labels) if draw.chance(0.8 if manual else 0.1) else None,
    )


def _job_spec(draw: Draw, labels: dict[str, str]) -> dict[str, Any]:
    large = (0, 1, 4, 4, 10_001, 100_000, 100_001)
    return without_none(
        template=_template(draw, labels, ("Never", "Never", "Never", "OnFailure", "OnFailure", "Always", None)),
        completions=_maybe(draw, 0.5, *large, -1),
        parallelism=_maybe(draw, 0.5, *large, -1),
        completionMode=_maybe(draw, 0.5, "Indexed", "Indexed", "NonIndexed", "Other"),
        backoffLimit=_maybe(draw, 0.3, *NUMBERS),
        backoffLimitPerIndex=_maybe(draw, 0.3, *NUMBERS),
        maxFailedIndexes=_maybe(draw, 0.2, *large, -1),
        ttlSecondsAfterFinished=_maybe(draw, 0.2, *NUMBERS),
        activeDeadlineSeconds=_maybe(draw, 0.2, *NUMBERS),
        managedBy=_maybe(
            draw, 0.1, "kueue.x-k8s.io/multikueue", "me", "A.b/c", "a.b/", "a.b/c d", "", "a.b/" + "x" * 63
        ),
        podReplacementPolicy=_maybe(draw, 0.2, "Failed", "TerminatingOrFailed", "Never"),
        podFailurePolicy=_failure_policy(draw) if draw.chance(0.3) else None,
        successPolicy=_success_policy(draw) if draw.chance(0.2) else None,
    )


def _failure_policy(draw: Draw) -> dict[str, Any]:
    def rule(_: int) -> dict[str, Any]:
        codes = without_none(
            operator=_maybe(draw, 0.9, "In", "In", "NotIn", "Is"),
            values=draw.pick(([1], [1, 2], [2, 1], [1, 1], [0, 1], [], [*range(1, 257)])),
            containerName=_maybe(draw, 0.3, "main", "other"),
        )
        conditions = [
            without_none(
                type=draw.pick(("DisruptionTarget", "DisruptionTarget", "-x", "")),
                status=_maybe(draw, 0.5, "True", "False", "Maybe"),
            )
            for _ in range(21 if draw.chance(0.03) else 1)
        ]
        return without_none(
            action=_maybe(draw, 0.95, "Ignore", "FailJob", "Count", "FailIndex", "Stop"),
            onExitCodes=codes if draw.chance(0.5) else None,
            onPodConditions=conditions if draw.chance(0.5) else None,
        )

    return {"rules": draw.times({0: 1, 1: 5, 2: 3, 21: 0.2}, rule)}


def _success_policy(draw: Draw) -> dict[str, Any]:
    def rule(_: int) -> dict[str, Any]:
        indexes = ("0", "0,2", "0-2", "2-0", "1,1", "x", "0-1-2", "0-1,1", "9", "", "0-", "3,1-2")
        return without_none(succeededCount=_maybe(draw, 0.6, *NUMBERS), succeededIndexes=_maybe(draw, 0.6, *indexes))

    return {"rules": draw.times({0: 1, 1: 5, 2: 3, 21: 0.2}, rule)}


def _cron_job(draw: Draw, _: str) -> dict[str, Any]:
    labels = dict(draw.pick(LABELS))
    job = _job_spec(draw, labels) | without_none(
        selector=_maybe(draw, 0.05, {"matchLabels": labels}), manualSelector=_maybe(draw, 0.05, True, False)
    )
    return without_none(
        schedule=draw.pick((*SCHEDULES, *SCHEDULES[:8])),
        timeZone=_maybe(draw, 0.3, *ZONES, "UTC", "UTC"),
        concurrencyPolicy=_maybe(draw, 0.4, "Allow", "Forbid", "Replace", "Wait"),
        startingDeadlineSeconds=_maybe(draw, 0.1, *NUMBERS),
        successfulJobsHistoryLimit=_maybe(draw, 0.1, *NUMBERS),
        failedJobsHistoryLimit=_maybe(draw, 0.1, *NUMBERS),
        jobTemplate={"spec": job},
    )
