"""How each program of the cluster is called: arguments, configuration files, the port it serves."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from ..engines import build
from .kube import documents
from .layout import ADDRESS, CLUSTER_DOMAIN, IMAGES, POD_RANGE, REAL_NODE, SERVICE_RANGE, Layout
from .nodes import BY_HAND, REAL_LABELS

# The kubelet renews its lease four times in this span, and the node counts as lost after twice as long.
LEASE_SECONDS = 8


@dataclass(frozen=True)
class Program:
    """A command that the keeper runs; `port` is served once it works (0: see who starts it)."""

    argv: tuple[str, ...]
    port: int = 0
    env: Mapping[str, str] = field(default_factory=dict)


def credentials(layout: Layout) -> None:
    """Write the administrator's token, the key that signs service accounts and the kubeconfig."""
    token = secrets.token_hex(16)
    layout.tokens.touch(mode=0o600)
    layout.tokens.write_text(f"{token},admin,admin,system:masters\n")
    key = ["openssl", "genrsa", "-out", str(layout.service_account_key), "2048"]
    subprocess.run(key, check=True, capture_output=True)
    cluster = {"server": f"https://{ADDRESS}", "certificate-authority": str(layout.api_certificate)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "private", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "private", "context": {"cluster": "private", "user": "admin"}}],
        "current-context": "private",
    }
    layout.kubeconfig.touch(mode=0o600)
    layout.kubeconfig.write_text(json.dumps(config, indent=1))


def etcd(layout: Layout) -> Program:
    url = "http://127.0.0.1:2379"
    return Program(
        (
            str(build.binary("etcd")),
            f"--data-dir={layout.run / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ),
        port=2379,
    )


def apiserver(layout: Layout) -> Program:
    return Program(
        (
            str(build.binary("kube-apiserver")),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={ADDRESS}",
            f"--advertise-address={ADDRESS}",
            "--secure-port=443",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--cert-dir={layout.api_certificate.parent}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={layout.service_account_key}",
            f"--service-account-signing-key-file={layout.service_account_key}",
            f"--token-auth-file={layout.tokens}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=InternalIP",
        ),
        port=443,
    )


def controller_manager(layout: Layout) -> Program:
    return Program(
        (
            str(build.binary("kube-controller-manager")),
            f"--kubeconfig={layout.kubeconfig}",
            "--leader-elect=false",
            "--allocate-node-cidrs=false",
            "--resource-quota-sync-period=5s",
            "--node-monitor-period=2s",
            f"--node-monitor-grace-period={2 * LEASE_SECONDS}s",
            f"--service-account-private-key-file={layout.service_account_key}",
            f"--root-ca-file={layout.api_certificate}",
        ),
        port=10257,
    )


def scheduler(layout: Layout) -> Program:
    program = str(build.binary("kube-scheduler"))
    return Program((program, f"--kubeconfig={layout.kubeconfig}", "--leader-elect=false"), port=10259)


def kwok(layout: Layout) -> Program:
    """The simulator of nodes and their pods: Job pods complete at once, others stay running; none labeled `BY_HAND`."""
    stages = build.shared("kwok", "stage")
    files = (stages / "node" / "fast", stages / "node" / "heartbeat-with-lease", stages / "pod" / "fast")
    config = layout.run / "kwok.yaml"
    rules = [rule for folder in files for rule in documents(folder) if rule["kind"] == "Stage"]
    mine = {"key": f".metadata.labels[{json.dumps(BY_HAND)}]", "operator": "DoesNotExist"}
    for rule in rules:
        if rule["spec"]["resourceRef"]["kind"] == "Pod":
            rule["spec"]["selector"]["matchExpressions"].append(mine)
    config.write_text(yaml.safe_dump_all(rules))
    return Program(
        (
            str(build.binary("kwok")),
            f"--kubeconfig={layout.kubeconfig}",
            f"--config={config}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--node-lease-duration-seconds={5 * LEASE_SECONDS}",
            "--server-address=127.0.0.1:10247",
        ),
        port=10247,
    )


def containerd(layout: Layout) -> Program:
    network = layout.run / "network"
    network.mkdir()
    plugin = {
        "type": "ptp",
        "ipMasq": False,
        "ipam": {"type": "host-local", "subnet": POD_RANGE, "routes": [{"dst": "0.0.0.0/0"}]},
    }
    conflist = {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}
    (network / "10-pods.conflist").write_text(json.dumps(conflist))
    config = layout.run / "containerd.toml"
    # Values are written as JSON: its strings are TOML strings.
    config.write_text(f"""\
version = 2
root = {json.dumps(str(layout.run / "containerd"))}
state = "/run/containerd"
oom_score = 0

[grpc]
  address = {json.dumps(str(layout.containerd_socket))}

[plugins."io.containerd.internal.v1.opt"]
  path = {json.dumps(str(layout.run / "opt"))}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {json.dumps(IMAGES["pause"])}
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  disable_apparmor = true
  stats_collect_period = 4
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = {json.dumps(str(network))}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
""")
    return Program((shutil.which("containerd") or "containerd", f"--config={config}", "--log-level=warn"))


def kubelet(layout: Layout) -> Program:
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        # Where `dns.install` puts a server; without one names are not found, as without the address.
        "clusterDNS": [ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        "podLogsDir": str(layout.run / "pod-logs"),
        "volumePluginDir": str(layout.run / "volume-plugins"),
        # How soon a pod over its own disk limit is found.
        "volumeStatsAggPeriod": "4s",
        "registerNode": True,
    }
    config = layout.run / "kubelet.json"
    config.write_text(json.dumps(settings, indent=1))
    return Program(
        (
            str(build.binary("kubelet")),
            f"--config={config}",
            f"--kubeconfig={layout.kubeconfig}",
            f"--root-dir={layout.run / 'kubelet'}",
            f"--hostname-override={REAL_NODE}",
            f"--node-ip={ADDRESS}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in REAL_LABELS.items())}",
        ),
        port=10250,
    )
