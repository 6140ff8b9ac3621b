"""The small tasks around the pods: listing items, making and deleting a run's volumes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, conf
from airflow.sdk import BaseOperator
from kubernetes.client.exceptions import ApiException

from gpuflow.airflow.attempts import LOST_WORKERS
from gpuflow.airflow.limits import skip_unless_due
from gpuflow.airflow.references import Context, Value, as_text, combinations


class ListItems(BaseOperator):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """Lists the items of a fan-out that are only known in the run; those whose condition is false are left out.

    `distinct`: equal items are refused, because what belongs to an item is found by its value.

    :param for_each: the lists by name, each a list or a value that is one in the run.
    :param when: a condition for each item.
    :param within: the tasks that listed the items around this fan-out.
    :param keys: the parts of those items that count here.
    :param distinct: refuse equal items, because what belongs to an item is found by its value.
    :param retries: tries for workers that die.
    :param kwargs: arguments of Airflow's BaseOperator, such as `task_id`.
    """

    template_fields: Sequence[str] = ()
    ui_color = "#f0f0f0"

    def __init__(
        self,
        *,
        for_each: Mapping[str, Any] | None = None,
        when: Value | bool | None = None,
        within: Sequence[str] = (),
        keys: Sequence[str] = (),
        distinct: bool = False,
        retries: int = LOST_WORKERS,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, **kwargs)
        self.for_each, self.when, self.within, self.keys = for_each or {}, when, within, keys
        self.distinct = distinct

    def execute(self, context: Context) -> list[dict[str, Any]]:
        items = [
            {**around, **own}
            for around in self._outer_items(context)
            for own in combinations({name: self._source(name, context, around) for name in self.for_each})
        ]
        if self.when is not None:
            items = [item for item in items if self._evaluate(self.when, context, item)]
        most = conf.getint("core", "max_map_length", fallback=1024)
        if len(items) > most:
            raise AirflowFailException(
                f"the fan-out has {len(items):,} items; this Airflow maps over {most:,} at most ([core] max_map_length)"
            )
        if not items:
            raise AirflowSkipException("there is no item to run")
        if self.distinct:
            _refuse_duplicates(items)
        return items

    def _outer_items(self, context: Context) -> list[dict[str, Any]]:
        """The items around this fan-out: those of the first list that every other list still has."""
        if not self.within:
            return [{}]
        lists = [context["ti"].xcom_pull(task_ids=[name], key="return_value")[0] or [] for name in self.within]
        seen = [[{key: item[key] for key in self.keys} for item in items] for items in lists]
        return [around for around in seen[0] if all(around in others for others in seen[1:])]

    def _source(self, name: str, context: Context, around: Mapping[str, Any]) -> Any:
        source = self.for_each[name]
        values = self._evaluate(source, context, around)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise AirflowFailException(f'the fan-out over "{name}" needs a list; {source!r} is {values!r}')
        return values

    @staticmethod
    def _evaluate(given: Any, context: Context, item: Mapping[str, Any]) -> Any:
        # A condition looks for the item at its task.
        return given.value({**context, "task": SimpleNamespace(item=item)}) if isinstance(given, Value) else given


def _refuse_duplicates(items: Sequence[Mapping[str, Any]]) -> None:
    texts = Counter(", ".join(f"{key}={as_text(value)}" for key, value in item.items()) for item in items)
    if (twice := next((text for text, count in texts.items() if count > 1), None)) is not None:
        raise AirflowFailException(
            f"the fan-out contains the item {twice} twice: both would share checkpoints, counts and outputs; "
            "give every item a unique value, for example by adding a number"
        )


class Mark(BaseOperator):  # type: ignore[misc]  # as above
    """The beginning or the end of a sub-pipeline. It returns when that was, in seconds since 1970.

    :param when: a condition; the task, and what waits for it, is skipped when it is false.
    :param item: the fan-out item of a mapped mark.
    :param retries: tries for workers that die.
    :param kwargs: arguments of Airflow's BaseOperator, such as `task_id`.
    """

    template_fields: Sequence[str] = ()
    ui_color = "#f0f0f0"

    def __init__(
        self,
        *,
        when: Value | bool | None = None,
        item: Mapping[str, Any] | None = None,
        retries: int = LOST_WORKERS,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, **kwargs)
        self.when, self.item = when, item

    def execute(self, context: Context) -> float:
        skip_unless_due(self, context)
        return time.time()


class _Claim(BaseOperator):  # type: ignore[misc]  # as above
    """What `_Claim` is made of.

    :param name: the claim, for example `claim("data")`.
    :param namespace: where it is made; the connection's namespace unless given.
    :param kubernetes_conn_id: the connection to the cluster.
    :param in_cluster: use the account of the pod that Airflow runs in.
    :param cluster_context: the context of the kubeconfig.
    :param config_file: a kubeconfig.
    :param retries: tries for workers that die.
    :param kwargs: arguments of Airflow's BaseOperator, such as `task_id`.
    """

    template_fields: Sequence[str] = ()

    def __init__(
        self,
        *,
        name: Value,
        namespace: str | None = None,
        kubernetes_conn_id: str | None = "kubernetes_default",
        in_cluster: bool | None = None,
        cluster_context: str | None = None,
        config_file: str | None = None,
        retries: int = LOST_WORKERS,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, **kwargs)
        self.name, self.namespace, self.kubernetes_conn_id = name, namespace, kubernetes_conn_id
        self.in_cluster, self.cluster_context, self.config_file = in_cluster, cluster_context, config_file

    def _api_and_namespace(self) -> tuple[Any, str]:
        hook = KubernetesHook(
            conn_id=self.kubernetes_conn_id,
            in_cluster=self.in_cluster,
            cluster_context=self.cluster_context,
            config_file=self.config_file,
        )
        return hook.core_v1_client, self.namespace or hook.get_namespace() or "default"


class MakeClaim(_Claim):
    """Creates a volume claim for one run.

    :param size: how large, for example `100Gi`.
    :param access: the access mode.
    :param storage_class: the storage class; the cluster's default unless given.
    :param kwargs: what `DeleteClaim` takes: `name`, `namespace`, `kubernetes_conn_id`, …
    """

    def __init__(
        self, *, size: str, access: str = "ReadWriteOnce", storage_class: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.size, self.access, self.storage_class = size, access, storage_class

    def execute(self, context: Context) -> str:
        api, namespace = self._api_and_namespace()
        name: str = self.name.value(context)
        spec: dict[str, Any] = {"accessModes": [self.access], "resources": {"requests": {"storage": self.size}}}
        if self.storage_class is not None:
            spec["storageClassName"] = self.storage_class
        labels = {"gpuflow.dev/pipeline": context["dag_run"].dag_id[:63]}
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }
        try:
            api.create_namespaced_persistent_volume_claim(namespace, body)
        except ApiException as answer:
            if answer.status != 409:  # made by an earlier try
                raise
        return name


class DeleteClaim(_Claim):
    """Deletes a run's volume claim."""

    def execute(self, context: Context) -> None:
        api, namespace = self._api_and_namespace()
        try:
            api.delete_namespaced_persistent_volume_claim(self.name.value(context), namespace)
        except ApiException as answer:
            if answer.status != 404:
                raise
