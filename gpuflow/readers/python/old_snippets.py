"""Arguments of old examples that today's operators refuse or, worse, pass over: the GPU is never asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpuflow.errors import Finding, Where

OLD_KEYS = ("limit_gpu", "limit_memory", "limit_cpu", "request_memory", "request_cpu", "request_gpu")
"""Keys of the `resources` that operators took before provider version 5."""
NEW = (
    'write container_resources=k8s.V1ResourceRequirements(limits={"nvidia.com/gpu": "1"}, …); '
    "resources= no longer reaches the pod"
)


def old_snippets(tree: ast.Module, file: str) -> Iterator[Finding]:
    """GF751: what the file asks for in words that no operator understands any more."""
    named = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not _is_pod_operator(node.func):
            continue
        for each in node.keywords:
            value = named.get(each.value.id, each.value) if isinstance(each.value, ast.Name) else each.value
            if each.arg == "resources" and (old := _old_keys(value)):
                where = Where(file, each.value.lineno, each.value.col_offset + 1)
                said = ", ".join(old)
                yield Finding("GF751", f"resources= with {said} is an old spelling that asks for nothing", where, NEW)


def _old_keys(value: ast.expr) -> list[str]:
    if isinstance(value, ast.Dict):
        names = [key.value for key in value.keys if isinstance(key, ast.Constant)]
    elif isinstance(value, ast.Call):
        names = [each.arg for each in value.keywords]
    else:
        return []
    return [str(name) for name in names if name in OLD_KEYS]


def _is_pod_operator(node: ast.expr) -> bool:
    """`KubernetesPodOperator(…)`, `.partial(…)` of it, `@task.kubernetes(…)`."""
    if isinstance(node, ast.Attribute):
        return node.attr.endswith("PodOperator") or node.attr == "kubernetes" or _is_pod_operator(node.value)
    return isinstance(node, ast.Name) and node.id.endswith("PodOperator")
