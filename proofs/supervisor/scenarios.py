"""The setups that are explored."""

from __future__ import annotations

import json

from proofs.supervisor.scene import Scenario, Start


def _last(attempt: int, message: str) -> str:
    return json.dumps({"attempt": attempt, "by": "argo", "phase": "Failed", "message": message, "exit_code": "137"})


DEADLINE = "Pod was active on the node longer than the specified deadline"
NODES = ("one", "two", "three")
ALL = (
    Scenario(
        "machines",
        "every attempt on a machine of its own, an earlier one may still be alive",
        [Start(node) for node in NODES],
    ),
    Scenario(
        "restarts",
        "every attempt in the same directory on the same machine; a program may outlive its supervisor",
        [Start("one") for _ in NODES],
        orphans=True,
        overlap=False,
    ),
    Scenario(
        "repeats",
        "a failure is repeated by the supervisor itself, on machines of their own; an earlier one may still be alive",
        [Start(node, "--repeat", "--failures", "2") for node in NODES[:2]],
        steps=1,
    ),
    Scenario(
        "notice",
        "told to stop between regular saves, perhaps while one is on its way to the store",
        [Start(node, "--every", "1h") for node in NODES[:2]],
        steps=1,
        overlap=False,
    ),
    Scenario(
        "volume",
        "attempts on machines of their own that mount the same volume as checkpoint directory",
        [Start(node, directory="volume") for node in NODES],
        one_volume=True,
    ),
    Scenario(
        "folder",
        "the store is a directory, and the operating system fails to list it",
        [Start(node) for node in NODES],
        folder=True,
    ),
    Scenario(
        "forget",
        "the run is forgotten while an attempt may be alive, then started again",
        [Start("one"), Start("desk", command="forget"), Start("two"), Start("three")],
        after=(79,),
    ),
    Scenario(
        "items",
        "two items of a step on machines of their own that mount the same volume, each in a folder of its own",
        [
            Start("one", "--own-folder", directory="volume", item="a"),
            Start("two", "--own-folder", directory="volume", item="b"),
        ],
        one_volume=True,
        together=True,
    ),
    Scenario(
        "strangers",
        "two items of a step in the same directory of one volume",
        [Start("one", directory="volume", item="a"), Start("two", directory="volume", item="b")],
        one_volume=True,
        together=True,
    ),
    Scenario(
        "artifacts",
        "machines of their own; the program also leaves a file, kept in the store; starts after success too",
        [Start(node, "--output", "model:file") for node in NODES],
        steps=1,
        after=(79,),
    ),
    Scenario(
        "again",
        "a run that succeeded is done again while an older attempt may be alive",
        [Start("one"), Start("two", "--after-success", "again"), Start("three")],
        after=(79,),
    ),
    Scenario(
        "told",
        "the engine tells each attempt how the one before ended, be it true or not; a timeout may end one",
        [
            Start("one", "--engine-attempt", "0", "--timeout", "30s"),
            Start("two", "--engine-attempt", "1", "--last", _last(0, "main: OOMKilled (exit code 137)")),
            Start("three", "--engine-attempt", "2", "--last", _last(1, DEADLINE)),
        ],
    ),
    Scenario(
        "forged",
        "records are signed; somebody without the key writes claims, ends, a checkpoint and a success marker",
        [Start("bucket", command="forge"), *(Start(node) for node in NODES[:2])],
        signed=True,
    ),
)
SHORT = Scenario(
    "forgotten",
    "a run of one step is forgotten while its attempt is alive, then started again",
    [Start("one"), Start("desk", command="forget"), Start("two")],
    steps=1,
    after=(79,),
)
"""For mutations: small enough to be searched in seconds."""
BY_NAME = {scenario.name: scenario for scenario in (*ALL, SHORT)}
