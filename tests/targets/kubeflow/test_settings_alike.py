"""What many steps have alike is made once, and what differs stays apart.

Tests gpuflow/targets/kubeflow/pods.py.
"""

from __future__ import annotations

from typing import Any

from gpuflow.targets.kubeflow.pods import container_spec, executor_config
from tests.targets.kubeflow.compiling import documents


class Text(str):
    """A kind of str."""


def _pod(user: Any = 1000, value: str = "a", **more: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "work:1", "command": ["work"], "env": [{"name": "A", "value": value}], **more}
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [main], "securityContext": {"runAsUser": user}}}


def _container(**more: Any) -> Any:
    return container_spec(_pod(**more)["spec"]["containers"][0])


def test_what_is_alike_is_one_map_which_the_writer_of_yaml_writes_once() -> None:
    assert _container()["env"] is _container(image="work:1")["env"]
    assert executor_config(_pod(), {})["securityContext"] is executor_config(_pod(value="b"), {})["securityContext"]


def test_what_differs_stays_apart() -> None:
    said = [executor_config(_pod(imagePullPolicy=policy), {})["imagePullPolicy"] for policy in ("Always", "Never")]
    assert said == ["Always", "Never"]
    optional = [
        [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": flag}}}]
        for flag in (False, True, False)
    ]
    configs = [executor_config(_pod(env=env), {}) for env in optional]
    assert configs[0] == configs[2] != configs[1]


def test_a_kind_of_str_says_the_same() -> None:
    assert _container(value=Text("a")) == _container(value="a")
    assert executor_config(_pod(imagePullPolicy=Text("Always")), {}) == executor_config(
        _pod(imagePullPolicy="Always"), {}
    )


def test_a_brace_in_one_command_is_not_in_the_next() -> None:
    """The variable that stands for a brace is there where the command needs it, in whichever order steps come."""
    steps = "".join(
        f"  {name}: {{image: work, env: {{A: a}}, command: {command}}}\n"
        for name, command in {"a": "[work]", "b": "[work, '{{x}}']", "c": "[work]"}.items()
    )
    spec, *_ = documents(f"name: braces\nsteps:\n{steps}")
    executors = spec["deploymentSpec"]["executors"]
    names = {label: [entry["name"] for entry in each["container"]["env"]] for label, each in executors.items()}
    assert names == {"exec-a": ["A"], "exec-b": ["GPUFLOW_BRACE", "A"], "exec-c": ["A"]}
