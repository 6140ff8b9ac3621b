"""Pods on the node that really runs them."""

from __future__ import annotations

import pytest

from . import machine
from .cluster import Cluster
from .fixtures import AnyCluster, lacking
from .kube import Kube
from .pods import outcome, pod

pytestmark = pytest.mark.cluster


def test_a_pod_runs_and_its_words_can_be_read(cluster: AnyCluster, namespace: Kube) -> None:
    namespace.create(pod("hello", cluster.image("busybox"), ["sh", "-c", "echo hello from $HOSTNAME"]))
    done = namespace.await_pod("hello", "Succeeded")
    assert outcome(done).exit_code == 0
    assert namespace("logs", "hello") == "hello from hello\n"


def test_a_pod_that_asks_for_gpus_runs_where_they_are(cluster: AnyCluster, namespace: Kube) -> None:
    devices = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.10gb": "1"}
    namespace.create(pod("train", cluster.image("busybox"), ["true"], resources=devices))
    done = namespace.await_pod("train", "Succeeded")
    node = cluster.kube.get("node", done["spec"]["nodeName"])
    assert node is not None
    assert int(node["status"]["allocatable"]["nvidia.com/gpu"]) >= 2


def test_the_python_image_imports_what_steps_import(cluster: AnyCluster, namespace: Kube) -> None:
    program = "import ctypes, hashlib, json, lzma, sqlite3, ssl, subprocess; print(json.dumps({'ok': 1}))"
    namespace.create(pod("python", cluster.image("python"), ["python3", "-c", program]))
    namespace.await_pod("python", "Succeeded")
    assert namespace("logs", "python") == '{"ok": 1}\n'


def test_the_gpuflow_image_has_the_supervisor(cluster: AnyCluster, namespace: Kube) -> None:
    namespace.create(pod("supervisor", cluster.image("gpuflow"), ["gpuflow-run", "--version"]))
    namespace.await_pod("supervisor", "Succeeded")
    assert namespace("logs", "supervisor").strip()


def test_a_pod_reaches_the_api_server_with_its_own_service_account(cluster: AnyCluster, namespace: Kube) -> None:
    program = """
import os, ssl, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount/"
host = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
token = open(place + "token").read()
request = urllib.request.Request(f"https://{host}/version", headers={"Authorization": f"Bearer {token}"})
context = ssl.create_default_context(cafile=place + "ca.crt")
print(urllib.request.urlopen(request, context=context).status)
"""
    namespace.create(pod("client", cluster.image("python"), ["python3", "-c", program]))
    namespace.await_pod("client", "Succeeded")
    assert namespace("logs", "client") == "200\n"


def test_the_clusters_programs_go_before_its_pods_and_pods_share_cpu_by_their_requests(
    private_cluster: Cluster, namespace: Kube
) -> None:
    weights = machine.cpu_weights(private_cluster.layout.cgroup)
    if not weights:
        lacking("this machine does not share CPU by control groups")
    assert weights["programs"] > weights["kubepods"] > 0
    sizes = {"small": "20m", "large": "400m"}
    for name, cpu in sizes.items():
        made = pod(name, private_cluster.image("busybox"), ["sleep", "60"])
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
        namespace.create(made)
    weigh = {}
    for name in sizes:
        uid = namespace.await_pod(name, "Running")["metadata"]["uid"]
        now = machine.cpu_weights(private_cluster.layout.cgroup)
        (weigh[name],) = (value for path, value in now.items() if path.endswith(f"pod{uid}"))
    assert weigh["large"] > 5 * weigh["small"]
