"""One small pipeline for each construct: the table that every target is run through."""

from __future__ import annotations

HEAD = 'apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: "i:1", cpu: 1, memory: 1Gi}\n'
SITE = """
apiVersion: gpuflow/v1
kind: Site
name: s
extends: nvidia
spot: {labels: {node.example.com/spot: "true"}, tolerations: [{key: spot, operator: Exists, effect: NoSchedule}]}
topology: {rack: node.example.com/rack, block: node.example.com/block}
images: {alerts: "python:3.13-slim"}
"""


def step(fields: str) -> str:
    """A pipeline of one step."""
    return f"steps: {{a: {{command: [x], {fields}}}}}"


def inside(fields: str, more: str = "") -> str:
    """A pipeline with another one in it."""
    inner = '{name: q, steps: {a: {image: "i:1", command: [y]}}' + fields + "}"
    return f"steps: {{sub: {{pipeline: {inner}{more}}}}}"


LIST = "make: {command: [x], outputs: {o: json}}"

PIPELINES: dict[str, str] = {
    "annotations": step("annotations: {example.com/a: b}"),
    "approval": "steps: {a: {command: [x]}, ask: {approval: go?, needs: [a]}}",
    "approval.timeout": "steps: {a: {command: [x]}, ask: {approval: {message: go?, timeout: 1h}, needs: [a]}}",
    "cache": step("cache: true, outputs: {o: int}"),
    "checkpoint": step("checkpoint: {path: /c, store: s3://b}"),
    "checkpoint.scratch": step("checkpoint: {path: /c, store: s3://b, scratch: 5Gi}"),
    "claims": "claims: {c: {size: 1Gi, storage_class: fast}}\n" + step("volumes: {/c: {new_claim: c}}"),
    "deadline": "deadline: 2h\n" + step("cpu: 1"),
    "device_claim": step("device_claim: {claim: gpu-of-mine}"),
    "engines.airflow": "engines: {airflow: {owner: nlp}}\n" + step("engines: {airflow: {pool: gpus}}"),
    "engines.argo": "engines: {argo: {ttl: {success: 1d}}}\n" + step("engines: {argo: {archive_logs: true}}"),
    "engines.kubeflow": "engines: {kubeflow: {display_name: Nightly}}\n" + step("engines: {kubeflow: {cache_key: a}}"),
    "env.config_map": step("env: {A: {config_map: c, key: k}}"),
    "env.secret": step("env: {A: {secret: s, key: k}}"),
    "env_from": step("env_from: [{secret: s}]"),
    "ephemeral_storage": step("ephemeral_storage: 5Gi"),
    "exit.always": step("cpu: 1") + "\nexit: {e: {command: [e]}}",
    "exit.failure": step("cpu: 1") + "\nexit: {e: {on: failure, command: [e]}}",
    "exit.success": step("cpu: 1") + "\nexit: {e: {on: success, command: [e]}}",
    "exit.outputs": step("outputs: {o: {type: int, default: 1}}") + "\nexit: {e: {command: [e, {output: a.o}]}}",
    "for_each.list": step("for_each: {i: [a, b]}"),
    "for_each.range": step("for_each: {i: {range: 3}}"),
    "for_each.param": "params: {l: {type: json, default: [1, 2]}}\n" + step("for_each: {i: {param: l}}"),
    "for_each.output": f"steps: {{{LIST}, a: {{command: [x], for_each: {{i: {{output: make.o}}}}}}}}",
    "for_each.matrix": step("for_each: {i: [a, b], j: [c, d]}"),
    "for_each.dynamic_matrix": "params: {l: {type: json, default: [1]}}\n" + step("for_each: {i: {param: l}, j: [c]}"),
    "for_each.parallel": step("for_each: {i: [a, b]}, parallel: 1"),
    "gang": step("gang: {workers: 2, leader: {memory: 1Gi, command: [lead]}}"),
    "gpu": step("gpu: a100-80gb x 2"),
    "gpu.any": step("gpu: 2"),
    "gpu.form": step("gpu: a100-80gb sxm"),
    "gpu.any_of": step("gpu: {any_of: [l4, t4]}"),
    "if_skipped.run": "steps: {b: {command: [x], when: 1 > 2}, a: {command: [x], needs: [b], if_skipped: run}}",
    "image_pull_policy": step("image_pull_policy: Always"),
    "image_pull_secrets": step("image_pull_secrets: [registry]"),
    "init_containers": step("init_containers: [{name: i, image: 'i:1', command: [y]}]"),
    "inputs": "steps: {m: {command: [x], outputs: {o: {type: file, uri: s3://b/o}}}, "
    "a: {command: [x], inputs: {/in/o: {output: m.o}}}}",
    "inputs.size": step("inputs: {/in: {uri: s3://b/i, size: 5Gi}}"),
    "kubernetes.affinity": step(
        "kubernetes: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        "{nodeSelectorTerms: [{matchExpressions: [{key: k, operator: Exists}]}]}}}}"
    ),
    "kubernetes.dns_config": step('kubernetes: {dns_config: {nameservers: [10.0.0.2], options: {ndots: "2"}}}'),
    "kubernetes.dns_policy": step("kubernetes: {dns_policy: Default}"),
    "kubernetes.host_aliases": step("kubernetes: {host_aliases: {10.0.0.7: [models.internal]}}"),
    "kubernetes.host_ipc": step("kubernetes: {host_ipc: true}"),
    "kubernetes.host_network": step("kubernetes: {host_network: true}"),
    "kubernetes.merge": step(
        "kubernetes: {merge: {metadata: {labels: {l: m}, annotations: {example.com/n: o}}, "
        "spec: {nodeSelector: {k: v}, tolerations: [{key: k, operator: Exists}], volumes: [{name: n, emptyDir: {}}], "
        "containers: [{name: main, volumeMounts: [{name: n, mountPath: /n}]}]}}}"
    ),
    "kubernetes.node_selector": step("kubernetes: {node_selector: {k: v}}"),
    "kubernetes.resources": step("kubernetes: {resources: {rdma/hca: 1}}, gpu: l4"),
    "kubernetes.runtime_class": step("kubernetes: {runtime_class: gvisor}"),
    "kubernetes.scheduler": step("kubernetes: {scheduler: other}"),
    "kubernetes.tolerations": step("kubernetes: {tolerations: [{key: k, operator: Exists, effect: NoSchedule}]}"),
    "kubernetes.topology_spread": step("kubernetes: {topology_spread: [{topology_key: kubernetes.io/hostname}]}"),
    "lifecycle": step("lifecycle: {pre_stop: {command: [sh, -c, flush]}}"),
    "mig": step("mig: 1g.10gb of a100-80gb"),
    "notify.mail": "notify: [{mail: {to: [team@example.com], connection: mail}}]\n" + step("cpu: 1"),
    "notify.pagerduty": (
        "notify: [{pagerduty: {routing_key: {secret: s, key: k}, connection: pd, severity: info}}]\n" + step("cpu: 1")
    ),
    "notify.slack": (
        'notify: [{slack: {channel: "#ml", authorization: {secret: s, key: k}, connection: chat}}]\n' + step("cpu: 1")
    ),
    "notify.webhook": (
        "notify: [{webhook: {url: https://alerts.example.com/x, headers: {Authorization: {secret: s, key: k}}, "
        "connection: hook}, on: [failure, success]}]\n" + step("cpu: 1")
    ),
    "on_data": "on_data: [s3://b/new]\n" + step("cpu: 1"),
    "on_data.with_schedule": 'on_data: [s3://b/new]\nschedule: "0 3 * * *"\n' + step("cpu: 1"),
    "outputs.artifact": step("outputs: {o: {type: file, uri: s3://b/o}}"),
    "outputs.default": step("outputs: {o: {type: int, default: 1}}"),
    "outputs_from": step("outputs: {o: int}, outputs_from: xcom"),
    "outputs.size": step("outputs: {o: {type: directory, uri: s3://b/o, size: 5Gi}}"),
    "outputs.value": step("outputs: {o: int}"),
    "parallel": "parallel: 1\n" + step("cpu: 1"),
    "params": "params: {n: 1}\nsteps: {a: {command: [x, {param: n}]}}",
    "params.enum": "params: {n: {type: string, enum: [a, b], default: a}}\n" + step("cpu: 1"),
    "params.range": "params: {n: {type: int, min: 1, default: 2}}\n" + step("cpu: 1"),
    "pipeline": inside(""),
    "pipeline.deadline": inside(", deadline: 1h"),
    "pipeline.timeout": inside("", ", timeout: 1h"),
    "priority.pod": step("priority: {pod: high}"),
    "priority.queue": step("priority: {queue: high}, queue: q"),
    "probes": step("probes: {liveness: {tcp: 80}}"),
    "queue": step("queue: research"),
    "queue_timeout": step("queue_timeout: 1h"),
    "retry.any": step("retry: 1"),
    "retry.backoff": step("retry: {failures: 1, backoff: {start: 10s, factor: 2, max: 1m}}"),
    "retry.failures": step("retry: {failures: 1}"),
    "retry.final_exit_codes": step("retry: {failures: 1, final_exit_codes: [2]}"),
    "retry.interruptions": step("retry: {interruptions: 1}"),
    "retry.more_memory": step("retry: {failures: 1, more_memory: {factor: 2, max: 4Gi}}"),
    "retry.other_node": step("retry: {failures: 1, other_node: true}"),
    "retry.retryable_exit_codes": step("retry: {failures: 1, retryable_exit_codes: [2]}"),
    "run.attempt": step("env: {A: {run: attempt}}, retry: 1"),
    "run.date": step("env: {A: {run: date}}"),
    "run.format": step("env: {A: {run: date, format: '%Y/%m/%d'}}"),
    "run.interval_end": step("env: {A: {run: interval_end}}"),
    "run.interval_start": 'schedule: "0 3 * * *"\n' + step("env: {A: {run: interval_start}}"),
    "run.logical_date": step("env: {A: {run: logical_date}}"),
    "run.name": step("env: {A: {run: name}}"),
    "run.timezone": step("env: {A: {run: date, timezone: Europe/Paris}}"),
    "schedule": 'schedule: "0 3 * * *"\n' + step("cpu: 1"),
    "schedule.catch_up": 'schedule: {cron: "0 3 * * *", start: 2026-01-31, catch_up: true}\n' + step("cpu: 1"),
    "schedule.replace": 'schedule: {cron: "0 3 * * *", concurrency: replace}\n' + step("cpu: 1"),
    "schedule.start": 'schedule: {cron: "0 3 * * *", start: 2026-01-31}\n' + step("cpu: 1"),
    "schedule.suspended": 'schedule: {cron: "0 3 * * *", suspended: true}\n' + step("cpu: 1"),
    "schedule.timezone": 'schedule: {cron: "0 3 * * *", timezone: Europe/Paris}\n' + step("cpu: 1"),
    "script": "steps: {a: {script: echo hi}}",
    "security.add_capabilities": step("security: {add_capabilities: [IPC_LOCK]}"),
    "security.identity": step("security: {user: 7, group: 8}"),
    "security.privileged": step("security: {privileged: true}"),
    "security.read_only_root": step("security: {read_only_root: true}"),
    "security.run_as_root": step("security: {run_as_root: true}"),
    "service_account": step("service_account: runner"),
    "shared_gpu": step("shared_gpu: {model: l4, by: time-slicing}"),
    "shm": step("shm: 2Gi"),
    "sidecars": step("sidecars: [{name: s, image: 'i:1', command: [y]}]"),
    "spot": step("spot: require"),
    "spot.fallback_after": step("spot: {mode: require, fallback_after: 1}, retry: {interruptions: 2}"),
    "termination_grace": step("termination_grace: 90s"),
    "text.braces": "steps: {a: {command: [x, '{{y}}']}}",
    "timeout": step("timeout: 1h"),
    "topology.same": step("topology: {same: zone}"),
    "topology.spread": step("topology: {spread: node}"),
    "volumes.claim": step("volumes: {/d: {claim: data}}"),
    "volumes.config_map": step("volumes: {/d: {config_map: c}}"),
    "volumes.csi": step("volumes: {/d: {csi: {driver: csi.example.com, attributes: {a: b}}}}"),
    "volumes.default_mode": step("volumes: {/d: {secret: s, default_mode: '0440'}}"),
    "volumes.empty_dir": step("volumes: {/d: {empty_dir: 1Gi}}"),
    "volumes.ephemeral": step("volumes: {/d: {ephemeral: {size: 1Gi, storage_class: fast}}}"),
    "volumes.host_path": step("volumes: {/d: {host_path: /mnt/nvme}}"),
    "volumes.items": step("volumes: {/d: {config_map: c, items: {k: a/b}}}"),
    "volumes.memory": step("volumes: {/d: {memory: 1Gi}}"),
    "volumes.new_claim": "claims: {c: {size: 1Gi, storage_class: fast}}\n" + step("volumes: {/c: {new_claim: c}}"),
    "volumes.nfs": step("volumes: {/d: {nfs: {server: nfs.internal, path: /export}}}"),
    "volumes.projected": step("volumes: {/d: {projected: [{token: {path: token, audience: sts}}]}}"),
    "volumes.secret": step("volumes: {/d: {secret: s}}"),
    "volumes.sub_path": step("volumes: {/d: {claim: data, sub_path: x}}"),
    "when": "params: {n: 1}\n" + step("when: params.n > 1"),
    "when.item": step("for_each: {i: [1, 2]}, when: item.i > 1"),
    "working_dir": step("working_dir: /w"),
}
"""Each uses its construct, and as little else as can be."""
