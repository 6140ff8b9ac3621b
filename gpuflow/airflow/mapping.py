"""A step whose values are not all there yet: `task(STEP).expand(lr=[…])`, in the words of Airflow's own `@task`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from airflow.sdk import BaseOperator

from gpuflow.airflow.references import combinations
from gpuflow.errors import Finding, GpuflowError, Where, fail
from gpuflow.spec.building import caller


class Maker(Protocol):
    """A step that is to become a task."""

    @property
    def name(self) -> str: ...

    @property
    def more(self) -> Mapping[str, Any]: ...

    def operator(self, values: Mapping[str, Any], mapped: Sequence[str] = (), items: Any = None) -> Any: ...

    def given(self, values: Mapping[str, Any], where: Where) -> Any: ...


class OpenTask(BaseOperator):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """Keeps the place of a task in its DAG until `expand` gives it the values that are missing.

    Airflow loads no DAG with one that is left: a forgotten value is an import error, as everywhere.
    """

    def __init__(self, *, maker: Maker, values: Mapping[str, Any], missing: Sequence[str], where: Where, **kwargs: Any):
        super().__init__(**kwargs)
        self.maker, self.values, self.missing, self.where = maker, values, missing, where

    def expand(self, **lists: Any) -> Any:
        """One copy for each item; of several lists, one for each combination."""
        if not lists:
            raise fail("GF178", "expand() was given nothing to map over", where=caller(), hint="pass a list")
        later = {name: value for name, value in lists.items() if hasattr(value, "iter_references")}
        if later and len(lists) > 1:
            text = f"{', '.join(sorted(lists))}: a step maps over one list that is known only in the run, not several"
            hint = "let one task return all combinations, and pass it to expand_kwargs"
            raise fail("GF163", text, where=caller(), hint=hint)
        for name, value in lists.items():
            if name not in later and not isinstance(value, list | tuple | dict):
                raise fail("GF182", f'"{name}" is {value!r}, which is not a list', where=caller(), hint="pass a list")
        if later:
            ((name, value),) = later.items()
            return self._made(list(lists), value.map(lambda one: {name: one}))
        return self._made(list(lists), combinations({name: list(value) for name, value in lists.items()}))

    def expand_kwargs(self, rows: Any) -> Any:
        """One copy for each map of values: a list of them, or the value of a task that returns such a list."""
        if hasattr(rows, "iter_references"):
            return self._made(list(self.missing), rows)
        maps = list(rows)
        wrong = next((row for row in maps if not isinstance(row, Mapping)), None)
        if wrong is not None or not maps:
            text = f"expand_kwargs takes a list of maps, not {wrong!r}" if maps else "expand_kwargs was given no map"
            raise fail("GF182", text, where=caller(), hint='write [{"lr": 0.1}, {"lr": 0.2}]')
        names = sorted({name for row in maps for name in row})
        for row in maps:
            if sorted(row) != names:
                lacking = sorted(set(names) - set(row))[0]
                text = f'"{lacking}" is missing in {dict(row)!r}'
                raise fail("GF178", text, where=caller(), hint="give every copy one")
        return self._made(names, maps)

    def partial(self, **values: Any) -> Any:
        """The same task with more of its values."""
        twice = sorted(set(values) & set(self.values))
        if twice:
            raise fail("GF178", f'"{twice[0]}" is given twice', where=caller(), hint="give it once")
        self._leave()
        return self.maker.given({**self.values, **values}, self.where)

    def _made(self, names: list[str], items: Any) -> Any:
        twice = sorted(set(names) & set(self.values))
        if twice:
            raise fail("GF178", f'"{twice[0]}" is given twice', where=caller(), hint="give it once")
        self._leave()
        return self.maker.operator(self.values, names, items)

    def _leave(self) -> None:
        """Make room in the DAG for the task that takes this one's place."""
        del self.dag.task_dict[self.task_id]
        self.task_group._remove(self)

    def resolve_template_files(self) -> NoReturn:
        """Asked of every task when a DAG is loaded."""
        raise GpuflowError(
            Finding(
                "GF178",
                f'the step uses "{name}", but no value is given for it',
                self.where,
                f"pass {name}=…, or call .expand({name}=[…])",
            )
            for name in self.missing
        )

    def execute(self, context: Any) -> NoReturn:
        """Where a DAG is run without being loaded."""
        self.resolve_template_files()


def open_task(maker: Maker, values: Mapping[str, Any], missing: Sequence[str], where: Where) -> OpenTask:
    """A place for the task, in the DAG and the group that are open now."""
    place = {key: maker.more[key] for key in ("dag", "task_group") if key in maker.more}
    return OpenTask(maker=maker, values=values, missing=missing, where=where, task_id=maker.name, **place)
