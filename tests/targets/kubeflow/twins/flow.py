"""Twins about how steps hang together: parameters, outputs, conditions, fan-outs, exits, sub-pipelines."""

from typing import Any, NamedTuple

from kfp import dsl

from tests.targets.kubeflow.twins.hand import IMAGE, step, supervised

HELLO = """
name: hello
defaults: {image: "registry.example.com/work:1"}
steps:
  greet: {command: [echo, hello], cpu: 500m, memory: {request: 1Gi, limit: 2Gi}}
"""


def hello() -> Any:
    @dsl.container_component
    def greet() -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["echo", "hello"])

    @dsl.pipeline(name="hello")
    def pipeline() -> None:
        task = step(greet(), "hello", "greet")
        task.set_cpu_request("500m").set_cpu_limit("500m").set_memory_request("1Gi").set_memory_limit("2Gi")

    return pipeline


PARAMS = """
name: typed
description: one parameter of each kind
defaults: {image: "registry.example.com/work:1"}
params:
  text: {type: string}
  count: 3
  rate: {type: float, default: 0.5, description: learning rate}
  flag: true
  names: {type: json, default: [a, b]}
  options: {type: json, default: {depth: 4}}
steps:
  show:
    command: [show, {param: text}, {param: count}, {param: rate}, {param: flag}, {param: names}, {param: options}]
    args: [{join: ["--to=", {param: text}, "/", {param: count}]}]
"""


def params() -> Any:
    @dsl.container_component
    def show(text: str, count: int, rate: float, flag: bool, names: list, options: dict) -> dsl.ContainerSpec:  # type: ignore[type-arg]  # kfp's own annotations
        return dsl.ContainerSpec(
            image=IMAGE, command=["show", text, count, rate, flag, names, options], args=[f"--to={text}/{count}"]
        )

    @dsl.pipeline(name="typed", description="one parameter of each kind")
    def pipeline(
        text: str,
        count: int = 3,
        rate: float = 0.5,
        flag: bool = True,
        names: list = ["a", "b"],  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
        options: dict = {"depth": 4},  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
    ) -> None:
        """One parameter of each kind.

        Args:
            rate: learning rate
        """
        step(show(text=text, count=count, rate=rate, flag=flag, names=names, options=options), "typed", "show")

    return pipeline


CHAIN = """
name: chain
defaults: {image: "registry.example.com/work:1"}
steps:
  first: {command: [work, "1"]}
  left: {command: [work, "2"], needs: [first]}
  right: {command: [work, "3"], needs: [first]}
  last: {command: [work, "4"], needs: [left, right]}
"""


def chain() -> Any:
    def work(name: str, word: str) -> Any:
        def body() -> dsl.ContainerSpec:
            return dsl.ContainerSpec(image=IMAGE, command=["work", word])

        body.__name__ = name
        return dsl.container_component(body)

    @dsl.pipeline(name="chain")
    def pipeline() -> None:
        first = step(work("first", "1")(), "chain", "first")
        left = step(work("left", "2")(), "chain", "left").after(first)
        right = step(work("right", "3")(), "chain", "right").after(first)
        step(work("last", "4")(), "chain", "last").after(left, right)

    return pipeline


HANDOVER = """
name: handover
defaults: {image: "registry.example.com/work:1"}
steps:
  prepare: {command: [prepare], outputs: {shards: int, note: string}}
  train: {command: [train, --shards, {output: prepare.shards}, {output: prepare.note}]}
"""


def _prepare(name: str) -> Any:
    @dsl.container_component
    def prepare(shards: dsl.OutputPath(int), note: dsl.OutputPath(str)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        outputs = {"note": ("string", note), "shards": ("int", shards)}
        return dsl.ContainerSpec(image=IMAGE, command=supervised(name, "prepare", outputs, "prepare"))

    return prepare


def handover() -> Any:
    @dsl.container_component
    def train(shards: int, note: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["train", "--shards", shards, note])

    @dsl.pipeline(name="handover")
    def pipeline() -> None:
        made = step(_prepare("handover")(), "handover", "prepare")
        step(train(shards=made.outputs["shards"], note=made.outputs["note"]), "handover", "train")

    return pipeline


GATE = """
name: gate
defaults: {image: "registry.example.com/work:1"}
params: {region: eu, count: 4, deploy: true}
steps:
  prepare: {command: [prepare], outputs: {shards: int, note: string}}
  many: {command: [many], when: steps.prepare.shards > 10}
  close: {command: [close], when: params.region == 'eu'}
  four: {command: [four], when: params.count != 4}
  ship: {command: [ship, {param: region}], when: params.deploy}
"""


def gate() -> Any:
    def plain(name: str) -> Any:
        def body() -> dsl.ContainerSpec:
            return dsl.ContainerSpec(image=IMAGE, command=[name])

        body.__name__ = name
        return dsl.container_component(body)

    @dsl.container_component
    def ship(region: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["ship", region])

    @dsl.pipeline(name="gate")
    def pipeline(region: str = "eu", count: int = 4, deploy: bool = True) -> None:
        made = step(_prepare("gate")(), "gate", "prepare")
        with dsl.If(made.outputs["shards"] > 10):
            step(plain("many")(), "gate", "many")
        with dsl.If(region == "eu"):
            step(plain("close")(), "gate", "close")
        with dsl.If(count != 4):
            step(plain("four")(), "gate", "four")
        with dsl.If(deploy == True):  # noqa: E712  # kfp builds the condition from it
            step(ship(region=region), "gate", "ship")

    return pipeline


FIXED_FAN = """
name: fixed-fan
defaults: {image: "registry.example.com/work:1"}
steps:
  fold: {command: [fold, {item: seed}], for_each: {seed: [x, y, z]}, parallel: 2}
  count: {command: [count, {item: n}], for_each: {n: {range: 3}}}
"""


def fixed_fan() -> Any:
    @dsl.container_component
    def fold(seed: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["fold", seed])

    @dsl.container_component
    def count(n: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["count", n])

    @dsl.pipeline(name="fixed-fan")
    def pipeline() -> None:
        with dsl.ParallelFor(["x", "y", "z"], parallelism=2) as seed:
            step(fold(seed=seed), "fixed-fan", "fold")
        with dsl.ParallelFor([0, 1, 2]) as n:
            step(count(n=n), "fixed-fan", "count")

    return pipeline


MATRIX = """
name: matrix
defaults: {image: "registry.example.com/work:1"}
steps:
  cell: {command: [cell, {item: row}, {item: column}], for_each: {row: [a, b], column: [x, y]}, parallel: 3}
"""


def matrix() -> Any:
    @dsl.container_component
    def cell(row: str, column: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["cell", row, column])

    @dsl.pipeline(name="matrix")
    def pipeline() -> None:
        cells = [{"row": row, "column": column} for column in ("x", "y") for row in ("a", "b")]
        with dsl.ParallelFor(cells, parallelism=3) as item:
            step(cell(row=item.row, column=item.column), "matrix", "cell")

    return pipeline


GATHER = """
name: gather
defaults: {image: "registry.example.com/work:1"}
params: {suites: {type: json, default: [mmlu, gsm8k]}}
steps:
  evaluate:
    command: [evaluate, {item: suite}]
    for_each: {suite: {param: suites}}
    parallel: 4
    outputs: {score: float}
  mean: {command: [mean, {output: evaluate.score}]}
"""


def gather() -> Any:
    @dsl.container_component
    def evaluate(suite: str, score: dsl.OutputPath(float)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        words = supervised("gather", "evaluate", {"score": ("float", score)}, "evaluate", suite, item=f"suite={suite}")
        return dsl.ContainerSpec(image=IMAGE, command=words)

    @dsl.container_component
    def mean(scores: list) -> dsl.ContainerSpec:  # type: ignore[type-arg]  # kfp's own annotations
        return dsl.ContainerSpec(image=IMAGE, command=["mean", scores])

    @dsl.pipeline(name="gather")
    def pipeline(suites: list = ["mmlu", "gsm8k"]) -> None:  # type: ignore[type-arg]  # noqa: B006  # kfp's defaults
        with dsl.ParallelFor(suites, parallelism=4) as suite:
            task = step(evaluate(suite=suite), "gather", "evaluate")
        step(mean(scores=dsl.Collected(task.outputs["score"])), "gather", "mean")

    return pipeline


FOUND = """
name: found
defaults: {image: "registry.example.com/work:1"}
steps:
  list: {command: [list], outputs: {files: json}}
  read: {command: [read, {item: file}], for_each: {file: {output: list.files}}}
"""


def found() -> Any:
    @dsl.container_component
    def list_(files: dsl.OutputPath(list)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        return dsl.ContainerSpec(image=IMAGE, command=supervised("found", "list", {"files": ("json", files)}, "list"))

    @dsl.container_component
    def read(file: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["read", file])

    @dsl.pipeline(name="found")
    def pipeline() -> None:
        made = step(list_(), "found", "list")
        with dsl.ParallelFor(made.outputs["files"]) as file:
            step(read(file=file), "found", "read")

    return pipeline


ENDING = """
name: ending
defaults: {image: "registry.example.com/work:1"}
params: {channel: ops}
steps:
  work: {command: [work, {param: channel}]}
exit:
  tell: {command: [tell, {param: channel}]}
"""


def ending() -> Any:
    @dsl.container_component
    def work(channel: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["work", channel])

    @dsl.container_component
    def tell(channel: str) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["tell", channel])

    @dsl.pipeline(name="ending")
    def pipeline(channel: str = "ops") -> None:
        with dsl.ExitHandler(step(tell(channel=channel), "ending", "tell")):
            step(work(channel=channel), "ending", "work")

    return pipeline


NESTED = """
name: nested
defaults: {image: "registry.example.com/work:1"}
params: {size: 2}
steps:
  inner:
    pipeline:
      name: inside
      defaults: {image: "registry.example.com/work:1"}
      params: {size: {type: int}, word: hello}
      steps:
        make: {command: [make, {param: size}, {param: word}], outputs: {total: int}}
      outputs: {total: {output: make.total}}
    params: {size: {param: size}, word: hi}
  use: {command: [use, {output: inner.total}]}
"""


def nested() -> Any:
    @dsl.container_component
    def make(size: int, word: str, total: dsl.OutputPath(int)) -> dsl.ContainerSpec:  # type: ignore[valid-type]  # kfp's own annotations
        words = supervised("inside", "make", {"total": ("int", total)}, "make", size, word)
        return dsl.ContainerSpec(image=IMAGE, command=words)

    @dsl.container_component
    def use(total: int) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(image=IMAGE, command=["use", total])

    Outputs = NamedTuple("Outputs", [("total", int)])  # noqa: UP014  # kfp reads it as a return annotation

    @dsl.pipeline(name="inner")
    def inner(size: int, word: str = "hello") -> Outputs:
        made = step(make(size=size, word=word), "inside", "make")
        return Outputs(total=made.outputs["total"])

    @dsl.pipeline(name="nested")
    def pipeline(size: int = 2) -> None:
        task = inner(size=size, word="hi").set_caching_options(False)
        step(use(total=task.outputs["total"]), "nested", "use")

    return pipeline
