"""*Rendered Templates* of a task, field by field, under the names that KubernetesPodOperator has.

Airflow shows the attributes that `template_fields` names, after it has rendered them. Nothing in a step's pod may be
rendered as a template, so these attributes get their values from the filled pod, for as long as Airflow looks, and get
back what they were before the task begins: the stock operator would add them to the pod a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.airflow.step_pods import StepPods

MAIN = {
    "image": "image",
    "cmds": "command",
    "arguments": "args",
    "env_vars": "env",
    "env_from": "envFrom",
    "container_resources": "resources",
    "volume_mounts": "volumeMounts",
}
"""Attributes of the stock operator, and fields of the main container."""
SPEC = {"node_selector": "nodeSelector", "tolerations": "tolerations", "volumes": "volumes"}
METADATA = {"labels": "labels", "annotations": "annotations"}


class RenderedPod(StepPods):
    """Shows the pod that is about to be made."""

    _hidden: dict[str, Any] | None = None

    def _do_render_template_fields(self, parent: Any, template_fields: Any, *more: Any, **named: Any) -> None:
        super()._do_render_template_fields(parent, template_fields, *more, **named)
        if parent is self and hasattr(self.template, "serialize") and self._hidden is None:
            # Not by assignment: Airflow takes that for a change of the DAG. Read by parts: Airflow cuts long fields.
            shown = shown_fields(self.template.serialize(), self.namespace)
            self._hidden = {name: self.__dict__.get(name) for name in (*shown, "template_fields")}
            self.__dict__ |= {**shown, "template_fields": (*shown, *template_fields)}

    def hide(self) -> None:
        """Give the attributes back, before a pod is made."""
        hidden, self._hidden = self._hidden, None
        for name, value in (hidden or {}).items():
            if name == "template_fields" and value is None:
                self.__dict__.pop(name, None)  # that of the class
            else:
                self.__dict__[name] = value


def shown_fields(pod: Mapping[str, Any], namespace: str | None) -> dict[str, Any]:
    """The fields of a pod as Airflow shows them; those that the pod does not have are left out."""
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    main = (spec.get("containers") or [{}])[0]
    found = {"namespace": namespace or metadata.get("namespace")}
    for part, fields in ((main, MAIN), (spec, SPEC), (metadata, METADATA)):
        found |= {name: part.get(field) for name, field in fields.items()}
    return {name: value for name, value in found.items() if value}
