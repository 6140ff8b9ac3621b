"""Twins about a step's Kubernetes settings: the same object twice, odd amounts, every form of placement and retry."""

from typing import Any

from kfp import dsl
from kfp import kubernetes as k8s

from tests.targets.kubeflow.twins.hand import IMAGE, step


def _one(pipeline: str, name: str) -> tuple[Any, Any]:
    """A component without inputs, and a decorator for the pipeline around it."""

    def body() -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=[name])

    body.__name__ = name
    return dsl.container_component(body), dsl.pipeline(name=pipeline)


TWICE = """
name: twice
defaults: {image: "registry.example.com/work:1"}
steps:
  work:
    command: [work]
    env:
      USER_NAME: {secret: hub, key: user}
      TOKEN: {secret: hub, key: token, optional: true}
      LEVEL: {config_map: settings, key: level}
      MODE: {config_map: settings, key: mode}
    volumes:
      /data: {claim: datasets, sub_path: train}
      /test: {claim: datasets, sub_path: test}
      /settings: {config_map: settings}
      /more: {config_map: settings}
"""


def twice() -> Any:
    work, decorate = _one("twice", "work")

    @decorate
    def pipeline() -> None:
        task = step(work(), "twice", "work")
        k8s.use_secret_as_env(task, secret_name="hub", secret_key_to_env={"token": "TOKEN"}, optional=True)
        k8s.use_secret_as_env(task, secret_name="hub", secret_key_to_env={"user": "USER_NAME"})
        k8s.use_config_map_as_env(task, config_map_name="settings", config_map_key_to_env={"level": "LEVEL"})
        k8s.use_config_map_as_env(task, config_map_name="settings", config_map_key_to_env={"mode": "MODE"})
        k8s.mount_pvc(task, pvc_name="datasets", mount_path="/data", sub_path="train")
        k8s.mount_pvc(task, pvc_name="datasets", mount_path="/test", sub_path="test")
        k8s.use_config_map_as_volume(task, config_map_name="settings", mount_path="/more")
        k8s.use_config_map_as_volume(task, config_map_name="settings", mount_path="/settings")

    return pipeline


CHOSEN = """
name: chosen
defaults: {image: "registry.example.com/work:1"}
steps:
  work:
    command: [work]
    kubernetes:
      node_selector: {"node.kubernetes.io/instance-type": p4d.24xlarge, zone: "1"}
      tolerations:
        - {operator: Exists}
        - {key: spot, operator: Exists, effect: NoSchedule}
        - {key: "n/a", value: "true"}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: cpus, operator: Gt, values: ["32"]}
                  - {key: ssd, operator: Exists}
              - matchFields: [{key: metadata.name, operator: In, values: [node-1]}]
          preferredDuringSchedulingIgnoredDuringExecution:
            - {weight: 1, preference: {matchExpressions: [{key: zone, operator: NotIn, values: [a, b]}]}}
            - {weight: 100, preference: {matchExpressions: [{key: old, operator: DoesNotExist}]}}
"""


def chosen() -> Any:
    work, decorate = _one("chosen", "work")

    @decorate
    def pipeline() -> None:
        task = step(work(), "chosen", "work")
        k8s.add_node_selector(task, "node.kubernetes.io/instance-type", "p4d.24xlarge")
        k8s.add_node_selector(task, "zone", "1")
        k8s.add_toleration(task, operator="Exists")
        k8s.add_toleration(task, key="spot", operator="Exists", effect="NoSchedule")
        k8s.add_toleration(task, key="n/a", operator="Equal", value="true")
        many = [{"key": "cpus", "operator": "Gt", "values": ["32"]}, {"key": "ssd", "operator": "Exists"}]
        k8s.add_node_affinity(task, match_expressions=many)
        node = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
        k8s.add_node_affinity(task, match_fields=[node])
        zone = {"key": "zone", "operator": "NotIn", "values": ["a", "b"]}
        k8s.add_node_affinity(task, match_expressions=[zone], weight=1)
        k8s.add_node_affinity(task, match_expressions=[{"key": "old", "operator": "DoesNotExist"}], weight=100)

    return pipeline


AMOUNTS = """
name: amounts
defaults: {image: "registry.example.com/work:1"}
steps:
  small: {command: [small], cpu: {request: 100m, limit: 1.5}, memory: {request: 1500M, limit: 2G}}
  bounded: {command: [bounded], cpu: {limit: 2}, memory: {limit: 512Mi}}
  asked: {command: [asked], cpu: {request: 0.5}, memory: {request: 3Ti}}
"""


def amounts() -> Any:
    small, _ = _one("amounts", "small")
    bounded, _ = _one("amounts", "bounded")
    asked, decorate = _one("amounts", "asked")

    @decorate
    def pipeline() -> None:
        task = step(small(), "amounts", "small").set_cpu_request("100m").set_cpu_limit("1500m")
        task.set_memory_request("1500M").set_memory_limit("2G")
        step(bounded(), "amounts", "bounded").set_cpu_limit("2").set_memory_limit("512Mi")
        step(asked(), "amounts", "asked").set_cpu_request("500m").set_memory_request("3Ti")

    return pipeline


AGAIN = """
name: again
defaults: {image: "registry.example.com/work:1"}
steps:
  once: {command: [once], retry: 1}
  steady: {command: [steady], timeout: 90s, retry: {failures: 2, backoff: {start: 1m, factor: 1}}}
  short: {command: [short], retry: {failures: 4, backoff: 10s}, timeout: 2m, cache: true}
  bounded: {command: [bounded], timeout: 3d}
"""
TEN_YEARS = f"{3650 * 86400}s"
"""KFP counts from when the first pod was made, the wait for its node included, and no retry is to be cut off."""


def again() -> Any:
    once, _ = _one("again", "once")
    steady, _ = _one("again", "steady")
    short, _ = _one("again", "short")
    bounded, decorate = _one("again", "bounded")

    @decorate
    def pipeline() -> None:
        step(once(), "again", "once").set_retry(
            num_retries=1, backoff_duration="0s", backoff_factor=2, backoff_max_duration=TEN_YEARS
        )
        task = step(steady(), "again", "steady").set_retry(
            num_retries=2, backoff_duration="60s", backoff_factor=1, backoff_max_duration=TEN_YEARS
        )
        k8s.set_timeout(task, 90)
        task = step(short(), "again", "short").set_retry(
            num_retries=4, backoff_duration="10s", backoff_factor=2, backoff_max_duration=TEN_YEARS
        )
        k8s.set_timeout(task.set_caching_options(True), 120)
        k8s.set_timeout(step(bounded(), "again", "bounded"), 3 * 86400)

    return pipeline


MARKED = """
name: marked
labels: {team: nlp, cost: "007"}
defaults: {image: "registry.example.com/work:1", annotations: {example.com/since: "2026-01-01", on: "yes"}}
steps:
  work:
    command: [work]
    labels: {cost: "1e3", stage: "null"}
    annotations: {example.com/quote: "it's \\"so\\" 🚀: #1"}
"""


def marked() -> Any:
    work, decorate = _one("marked", "work")

    @decorate
    def pipeline() -> None:
        task = step(work(), "marked", "work", team="nlp", cost="1e3", stage="null")
        k8s.add_pod_label(task, "gpuflow.dev/team", "nlp")
        k8s.add_pod_annotation(task, "example.com/since", "2026-01-01")
        k8s.add_pod_annotation(task, "on", "yes")
        k8s.add_pod_annotation(task, "example.com/quote", 'it\'s "so" 🚀: #1')

    return pipeline


WORDS = """
name: odd-words
defaults: {image: "registry.example.com/work:1"}
params: {who: "nobody's \\"own\\" 🚀 \\\\ 5 $ 1e3"}
steps:
  say:
    command:
      [say, "", " ", "null", "1e3", "0o7", "yes", "~", "a\\tb\\nc", "it's", "\\"", "🚀", "#no", "- x", "{a}", "${HOME}",
       "$x", "{param: who}"]
    args: [{join: ["<", {param: who}, ">"]}, 5, 0.5]
    env: {EMPTY: "", NUMBER: "007", ON: "yes", LINES: "a\\nb", QUOTE: "'\\"", MOON: "🌙"}
"""


def words() -> Any:
    @dsl.container_component
    def say(who: str) -> dsl.ContainerSpec:
        odd = ["", " ", "null", "1e3", "0o7", "yes", "~", "a\tb\nc", "it's", '"', "🚀", "#no", "- x", "{a}", "${HOME}"]
        return dsl.ContainerSpec(
            image=IMAGE, command=["say", *odd, "$x", "{param: who}"], args=[f"<{who}>", "5", "0.5"]
        )

    @dsl.pipeline(name="odd-words")
    def pipeline(who: str = 'nobody\'s "own" 🚀 \\ 5 $ 1e3') -> None:
        task = step(say(who=who), "odd-words", "say")
        variables = {"EMPTY": "", "LINES": "a\nb", "MOON": "🌙", "NUMBER": "007", "ON": "yes", "QUOTE": "'\""}
        for key, value in variables.items():
            task.set_env_variable(key, value)

    return pipeline
