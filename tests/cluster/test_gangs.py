"""A JobSet whose pods run: they find each other by name, wait in a queue as one, and come back together."""

from __future__ import annotations

from typing import Any

import pytest

from .fixtures import AnyCluster
from .gangs import condition, gang, ranks
from .kube import Kube
from .queues import LABEL, priority, queue, waiting_message
from .waiting import until

pytestmark = pytest.mark.cluster

SIZE = 4
QUOTA = {"nvidia.com/gpu": "4", "cpu": "1", "memory": "1Gi"}
GPU = {"nvidia.com/gpu": "1"}
PORT = "29500"
# Rank 0 says the same word to each of the others; they look its name up until it is there.
MEET = f"""
import os, socket, sys, time
rank, size, leader = (os.environ["GPUFLOW_" + name] for name in ("RANK", "WORLD_SIZE", "LEADER"))
if rank == "0":
    with socket.create_server(("", {PORT}), reuse_port=True) as server:
        heard = []
        while len(heard) < int(size) - 1:
            connection, _ = server.accept()
            heard.append(connection.makefile().readline().strip())
            connection.sendall(b"all together\\n")
            connection.close()
    print("heard", *sorted(heard))
else:
    for attempt in range(200):
        try:
            connection = socket.create_connection((leader, {PORT}), timeout=5)
            break
        except OSError as error:
            time.sleep(0.3)
    else:
        sys.exit(f"no way to {{leader}}: {{error}}")
    connection.sendall(rank.encode() + b"\\n")
    print(leader, "says", connection.makefile().readline().strip())
"""


def completed(item: dict[str, Any]) -> bool:
    return bool(condition(item, "Completed"))


def logs(kube: Kube, name: str) -> list[str]:
    return [kube("logs", each["metadata"]["name"]).strip() for each in ranks(kube, name)]


def running(kube: Kube, name: str) -> list[dict[str, Any]]:
    """Its ranks, when all of them run."""
    found = [each for each in ranks(kube, name) if each["status"].get("phase") == "Running"]
    return found if len(found) == SIZE else []


def workload(kube: Kube, name: str) -> dict[str, Any]:
    """The one Workload that Kueue made of a JobSet."""

    def owned() -> list[dict[str, Any]]:
        owners = ((item, item["metadata"].get("ownerReferences", ())) for item in kube.list("workload"))
        return [item for item, rows in owners if any(row["name"] == name for row in rows)]

    (found,) = until(f"the workload of {name}", owned)
    return found


@pytest.mark.parametrize("subdomain", ["", "g-0123456789"])
def test_ranks_find_rank_0_by_its_name_and_talk_to_it(
    subdomain: str, cluster: AnyCluster, jobset: AnyCluster, namespace: Kube
) -> None:
    namespace.create(gang("meet", SIZE, cluster.image("python"), ["python3", "-c", MEET], subdomain=subdomain))
    namespace.await_object("jobset", "meet", "completed", completed, 180)
    first, *others = logs(namespace, "meet")
    assert first == "heard 1 2 3"
    assert others == [f"meet-worker-0-0.{subdomain or 'meet'} says all together"] * 3


# The last rank looks every name up, until all of them are there, and then two that nobody has.
LOOK_UP = """
import os, socket, time
if os.environ["GPUFLOW_RANK"] != "3":
    time.sleep(600)
def address(name):
    try:
        return socket.gethostbyname(name)
    except socket.gaierror:
        return ""
for rank in range(4):
    while not address(f"names-worker-0-{rank}.names"):
        time.sleep(0.3)
    print(address(f"names-worker-0-{rank}.names"))
print([address("names-worker-0-4.names"), address("example.com")], flush=True)
time.sleep(600)
"""


def test_every_rank_has_a_name_and_nobody_else(cluster: AnyCluster, jobset: AnyCluster, namespace: Kube) -> None:
    namespace.create(gang("names", SIZE, cluster.image("python"), ["python3", "-c", LOOK_UP]))
    pods = until("all ranks to run", lambda: running(namespace, "names"), timeout=120)
    last = pods[-1]["metadata"]["name"]
    said = until("the last rank's word", lambda: lines if "[" in (lines := namespace("logs", last)) else "")
    assert said.split("\n")[:SIZE] == [each["status"]["podIP"] for each in pods]
    assert said.split("\n")[SIZE] == "['', '']"


def test_kueue_admits_a_gang_as_one_and_a_higher_priority_suspends_it_for_a_while(
    cluster: AnyCluster, jobset: AnyCluster, kueue: AnyCluster, namespace: Kube
) -> None:
    image = cluster.image("busybox")
    with queue(namespace, QUOTA, preempt=True), priority(namespace, 1000) as urgent:
        namespace.create(gang("patient", SIZE, image, ["sleep", "600"], labels=LABEL, resources=GPU))
        before = until("all ranks to run", lambda: running(namespace, "patient"), timeout=120)
        admitted = workload(namespace, "patient")
        assert [(each["name"], each["count"]) for each in admitted["spec"]["podSets"]] == [("worker", SIZE)]
        assert condition(admitted, "Admitted")
        assert len(namespace.list("workload")) == 1

        namespace.create(gang("urgent", SIZE, image, ["sleep", "3"], labels={**LABEL, **urgent}, resources=GPU))
        held = namespace.await_object("jobset", "patient", "suspended", lambda item: bool(item["spec"].get("suspend")))
        assert not condition(held, "Failed")
        evicted = until("the eviction", lambda: condition(workload(namespace, "patient"), "Evicted"))
        assert evicted is not None
        assert evicted["reason"] == "Preempted"
        namespace.await_object("jobset", "urgent", "completed", completed, 120)

        again = until("all ranks to run again", lambda: running(namespace, "patient"), timeout=120)
        assert not {each["metadata"]["uid"] for each in before} & {each["metadata"]["uid"] for each in again}
        back = namespace.get("jobset", "patient")
        assert back is not None
        assert (back["spec"]["suspend"], back["status"].get("restarts", 0)) == (False, 0)
        assert "terminalState" not in back["status"]
        namespace("delete", "jobset", "--all", "--wait=false")


def test_a_gang_that_can_never_fit_waits_whole(
    cluster: AnyCluster, jobset: AnyCluster, kueue: AnyCluster, namespace: Kube
) -> None:
    with queue(namespace, {**QUOTA, "nvidia.com/gpu": "3"}):
        image = cluster.image("busybox")
        namespace.create(gang("large", SIZE, image, ["sleep", "600"], labels=LABEL, resources=GPU))
        message = until("Kueue's refusal", lambda: waiting_message(namespace, "large"))
        assert "insufficient quota for nvidia.com/gpu" in message
        assert ranks(namespace, "large") == []
        namespace("delete", "jobset", "--all", "--wait=false")
