"""Twins about groups inside groups: loops in loops, conditions in loops, loops in conditions, under exit steps."""

from typing import Any, NamedTuple

from kfp import dsl

from tests.targets.kubeflow.twins.hand import IMAGE, step, supervised


def _plain(name: str, *words: str) -> Any:
    """A component without inputs."""

    def body() -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=[name, *words])

    body.__name__ = name.replace("-", "_")
    return dsl.container_component(body)


LOOPS = """
name: loops
defaults: {image: "registry.example.com/work:1"}
params: {models: {type: json, default: [s, l]}, folds: {type: json, default: [1, 2]}}
steps:
  cell: {command: [cell, {item: model}, {item: fold}], for_each: {model: {param: models}, fold: {param: folds}}}
"""


def loops() -> Any:
    @dsl.container_component
    def cell(model: str, fold: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["cell", model, fold])

    @dsl.pipeline(name="loops")
    def pipeline(models: list = ["s", "l"], folds: list = [1, 2]) -> None:  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
        with dsl.ParallelFor(folds) as fold, dsl.ParallelFor(models) as model:
            step(cell(model=model, fold=fold), "loops", "cell")

    return pipeline


FOUND_AND_FIXED = """
name: found-and-fixed
defaults: {image: "registry.example.com/work:1"}
steps:
  list: {command: [list], outputs: {files: json}}
  read:
    command: [read, {item: file}, {item: part}]
    for_each: {file: {output: list.files}, part: [1, 2]}
    parallel: 3
"""


def found_and_fixed() -> Any:
    @dsl.container_component
    def list_(files: dsl.OutputPath(list)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        words = supervised("found-and-fixed", "list", {"files": ("json", files)}, "list")
        return dsl.ContainerSpec(image=IMAGE, command=words)

    @dsl.container_component
    def read(file: str, part: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["read", file, part])

    @dsl.pipeline(name="found-and-fixed")
    def pipeline() -> None:
        made = step(list_(), "found-and-fixed", "list")
        with (
            dsl.ParallelFor(made.outputs["files"], parallelism=3) as file,
            dsl.ParallelFor([1, 2], parallelism=1) as part,
        ):
            step(read(file=file, part=part), "found-and-fixed", "read")

    return pipeline


SOME_ITEMS = """
name: some-items
defaults: {image: "registry.example.com/work:1"}
params: {least: 2}
steps:
  fold: {command: [fold, {item: n}], for_each: {n: [1, 2, 3]}, when: item.n >= 2}
  named: {command: [named, {item: one}, {param: least}], for_each: {one: [a, b]}, when: item.one == 'b'}
"""


def some_items() -> Any:
    @dsl.container_component
    def fold(n: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["fold", n])

    @dsl.container_component
    def named(one: str, least: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["named", one, least])

    @dsl.pipeline(name="some-items")
    def pipeline(least: int = 2) -> None:
        with dsl.ParallelFor([1, 2, 3]) as n, dsl.If(n >= 2):
            step(fold(n=n), "some-items", "fold")
        with dsl.ParallelFor(["a", "b"]) as one, dsl.If(one == "b"):
            step(named(one=one, least=least), "some-items", "named")

    return pipeline


ALL_OR_NONE = """
name: all-or-none
defaults: {image: "registry.example.com/work:1"}
params: {deep: false, sizes: {type: json, default: [1]}}
steps:
  sweep:
    command: [sweep, {item: size}]
    for_each: {size: {param: sizes}}
    when: params.deep
    parallel: 2
"""


def all_or_none() -> Any:
    @dsl.container_component
    def sweep(size: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["sweep", size])

    @dsl.pipeline(name="all-or-none")
    def pipeline(deep: bool = False, sizes: list = [1]) -> None:  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
        with dsl.If(deep == True), dsl.ParallelFor(sizes, parallelism=2) as size:  # noqa: E712  # kfp builds the condition from it
            step(sweep(size=size), "all-or-none", "sweep")

    return pipeline


GUARDED = """
name: guarded
defaults: {image: "registry.example.com/work:1"}
params: {names: {type: json, default: [x]}, level: 1}
steps:
  prepare: {command: [prepare], outputs: {count: int}}
  each: {command: [each, {item: one}, {output: prepare.count}], for_each: {one: {param: names}}}
  many: {command: [many], when: steps.prepare.count > 3}
  low: {command: [low, {param: level}], when: params.level < 2}
exit:
  tell: {command: [tell, {param: level}]}
"""


def guarded() -> Any:
    @dsl.container_component
    def prepare(count: dsl.OutputPath(int)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        words = supervised("guarded", "prepare", {"count": ("int", count)}, "prepare")
        return dsl.ContainerSpec(image=IMAGE, command=words)

    @dsl.container_component
    def each(one: str, count: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["each", one, count])

    @dsl.container_component
    def low(level: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["low", level])

    @dsl.container_component
    def tell(level: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["tell", level])

    @dsl.pipeline(name="guarded")
    def pipeline(names: list = ["x"], level: int = 1) -> None:  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
        with dsl.ExitHandler(step(tell(level=level), "guarded", "tell")):
            made = step(prepare(), "guarded", "prepare")
            with dsl.ParallelFor(names) as one:
                step(each(one=one, count=made.outputs["count"]), "guarded", "each")
            with dsl.If(made.outputs["count"] > 3):
                step(_plain("many")(), "guarded", "many")
            with dsl.If(level < 2):
                step(low(level=level), "guarded", "low")

    return pipeline


COPIES = """
name: copies
defaults: {image: "registry.example.com/work:1"}
params: {sizes: {type: json, default: [1, 2]}}
steps:
  each:
    for_each: {size: {param: sizes}}
    parallel: 1
    pipeline:
      name: inside
      defaults: {image: "registry.example.com/work:1"}
      params: {size: {type: string}, word: hello}
      steps:
        make: {command: [make, {param: size}, {param: word}], outputs: {total: float}}
        test: {command: [test], needs: [make], when: params.word != 'quiet'}
      outputs: {total: {output: make.total}}
    params: {size: {item: size}}
  sum: {command: [sum, {output: each.total}]}
"""


def copies() -> Any:
    @dsl.container_component
    def make(size: str, word: str, total: dsl.OutputPath(float)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        words = supervised("inside", "make", {"total": ("float", total)}, "make", size, word)
        return dsl.ContainerSpec(image=IMAGE, command=words)

    @dsl.container_component
    def sum(totals: list) -> dsl.ContainerSpec:  # type: ignore[type-arg]  # kfp's own annotations
        return dsl.ContainerSpec(image=IMAGE, command=["sum", totals])

    Outputs = NamedTuple("Outputs", [("total", float)])  # noqa: UP014  # kfp reads it as a return annotation

    @dsl.pipeline(name="each")
    def each(size: str, word: str = "hello") -> Outputs:
        made = step(make(size=size, word=word), "inside", "make")
        with dsl.If(word != "quiet"):
            step(_plain("test")(), "inside", "test").after(made)
        return Outputs(total=made.outputs["total"])

    @dsl.pipeline(name="copies")
    def pipeline(sizes: list = [1, 2]) -> None:  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
        with dsl.ParallelFor(sizes, parallelism=1) as size:
            task = each(size=size).set_caching_options(False)
        step(sum(totals=dsl.Collected(task.outputs["total"])), "copies", "sum")

    return pipeline


MAPS = """
name: maps
defaults: {image: "registry.example.com/work:1"}
steps:
  try: {command: [try, {item: config}], for_each: {config: [{depth: 1, wide: true}, {depth: 2, wide: false}]}}
  rate: {command: [rate, {item: lr}], for_each: {lr: [0.5, 1, 2.5]}}
  turn: {command: [turn, {item: flag}], for_each: {flag: [true, false]}}
"""


def maps() -> Any:
    def try_(config: dict) -> dsl.ContainerSpec:  # type: ignore[type-arg]  # kfp's own annotations
        return dsl.ContainerSpec(image=IMAGE, command=["try", config])

    @dsl.container_component
    def rate(lr: float) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["rate", lr])

    @dsl.container_component
    def turn(flag: bool) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["turn", flag])

    @dsl.pipeline(name="maps")
    def pipeline() -> None:
        with dsl.ParallelFor([{"depth": 1, "wide": True}, {"depth": 2, "wide": False}]) as config:
            step(dsl.container_component(try_)(config=config), "maps", "try")
        with dsl.ParallelFor([0.5, 1, 2.5]) as lr:
            step(rate(lr=lr), "maps", "rate")
        with dsl.ParallelFor([True, False]) as flag:
            step(turn(flag=flag), "maps", "turn")

    return pipeline


KINDS = """
name: kinds
description: Kinds.
defaults: {image: "registry.example.com/work:1"}
params:
  size: s
  depth: {type: int, default: 2, description: how deep}
  note: ""
  rate: 1.0e-05
steps:
  make:
    command: [make, {param: size}, {param: depth}, {param: note}]
    outputs: {a: int, b: float, c: bool, d: string, e: json}
  read:
    command: [read, {output: make.a}, {output: make.b}, {output: make.c}, {output: make.d}, {output: make.e}]
    args: [{join: ["--rate=", {param: rate}]}]
  check: {command: [check], when: steps.make.c, needs: [read]}
  half: {command: [half], when: steps.make.b < 0.5}
outputs: {loss: {output: make.b}}
"""


def kinds() -> Any:
    @dsl.container_component
    def make(  # type: ignore[no-untyped-def]  # kfp's own annotations
        size: str,
        depth: int,
        note: str,
        a: dsl.OutputPath(int),  # type: ignore[valid-type]  # kfp's own annotations
        b: dsl.OutputPath(float),  # type: ignore[valid-type]  # kfp's own annotations
        c: dsl.OutputPath(bool),  # type: ignore[valid-type]  # kfp's own annotations
        d: dsl.OutputPath(str),  # type: ignore[valid-type]  # kfp's own annotations
        e: dsl.OutputPath(str),  # type: ignore[valid-type]  # kfp's own annotations
    ):
        outputs = {"a": ("int", a), "b": ("float", b), "c": ("bool", c), "d": ("string", d), "e": ("json", e)}
        return dsl.ContainerSpec(image=IMAGE, command=supervised("kinds", "make", outputs, "make", size, depth, note))

    @dsl.container_component
    def read(a: int, b: float, c: bool, d: str, e: str, rate: float) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["read", a, b, c, d, e], args=[f"--rate={rate}"])

    Outputs = NamedTuple("Outputs", [("loss", float)])  # noqa: UP014  # as people write it for kfp

    @dsl.pipeline(name="kinds")
    def pipeline(size: str = "s", depth: int = 2, note: str = "", rate: float = 1e-05) -> Outputs:
        """Kinds.

        Args:
            depth: how deep
        """
        made = step(make(size=size, depth=depth, note=note), "kinds", "make")
        got = {key: made.outputs[key] for key in "abcde"}
        reader = step(read(**got, rate=rate), "kinds", "read")
        with dsl.If(made.outputs["c"] == True):  # noqa: E712  # kfp builds the condition from it
            step(_plain("check")(), "kinds", "check").after(reader)
        with dsl.If(made.outputs["b"] < 0.5):
            step(_plain("half")(), "kinds", "half")
        return Outputs(loss=made.outputs["b"])

    return pipeline
