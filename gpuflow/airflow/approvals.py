"""A task that asks a person; few DAGs ask, and the others need not import Airflow's part of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.exceptions import HITLRejectException, HITLTimeoutError
from airflow.providers.standard.operators.hitl import ApprovalOperator

from gpuflow.airflow import limits
from gpuflow.airflow.limits import skip_unless_due
from gpuflow.airflow.references import Context, Value


class Approve(ApprovalOperator):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """Waits for a person to approve. A rejection or a timeout is a failure, and Airflow does not ask again.

    :param message: what the person is asked.
    :param when: a condition; nobody is asked when it is false.
    :param item: the fan-out item of a mapped approval.
    :param deadlines: until when the sub-pipelines around it must be done.
    :param kwargs: arguments of Airflow's ApprovalOperator, such as `response_timeout`.
    """

    template_fields: Sequence[str] = ()
    response_timeout: timedelta | None

    def __init__(
        self,
        *,
        message: str,
        when: Value | bool | None = None,
        item: Mapping[str, Any] | None = None,
        deadlines: Sequence[limits.deadline] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(subject=message, fail_on_reject=True, **kwargs)
        self.message, self.when, self.item, self.deadlines = message, when, item, deadlines

    @property
    def label(self) -> str:
        """The name of a mapped approval's item."""
        return ", ".join(f"{key}={value}" for key, value in (self.item or {}).items())

    def execute(self, context: Context) -> Any:
        skip_unless_due(self, context)
        if (ends := limits.first_deadline(self.deadlines, context)) is not None:
            left = timedelta(seconds=ends[0] - time.time())
            if left <= timedelta(0):
                raise AirflowFailException(ends[1].sentence())
            self.response_timeout = min(left, self.response_timeout or left)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        try:
            return super().execute_complete(context, event)
        except HITLRejectException:
            raise AirflowFailException(f"refused: {self.message}") from None
        except HITLTimeoutError:
            raise AirflowFailException(f"nobody answered within {self.response_timeout}: {self.message}") from None
