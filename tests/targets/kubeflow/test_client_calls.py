"""The client calls in the header are calls that kfp's client accepts."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kfp
import pytest
import yaml

from gpuflow.cli.main import main
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow.client_calls import run_calls
from tests.targets.kubeflow.compiling import HEAD, compiled

BODY = (
    'name: nightly\n{top}params: {{day: {{type: string}}, size: 3}}\nsteps: {{work: {{image: "i:1", command: [w]}}}}\n'
)


def calls(top: str = "") -> list[str]:
    return run_calls(loads(HEAD + BODY.format(top=top)), Site.load("nvidia"), "nightly.yaml", "team-a")


def keywords(line: str) -> dict[str, object]:
    call = ast.parse(line).body[0].value  # type: ignore[attr-defined]  # the statement is known
    return {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}


@pytest.mark.parametrize("top", ["", 'schedule: "30 2 * * 1-5"\n'])
def test_every_call_fits_the_clients_own_signature(top: str) -> None:
    for line in calls(top):
        call = ast.parse(line).body[0].value  # type: ignore[attr-defined]  # the statement is known
        method = getattr(kfp.Client, call.func.attr)
        inspect.signature(method).bind(None, *call.args, **{word.arg: word.value for word in call.keywords})


class Server:
    """The server behind kfp's own client: remembers what is created, and has one pipeline."""

    def __init__(self, versions: tuple[str, ...] = ()) -> None:
        self.created: dict[str, Any] = {}
        self.versions = [SimpleNamespace(display_name=name, pipeline_version_id=f"id-of-{name}") for name in versions]

    def experiment_service_list_experiments(self, **_: Any) -> Any:
        return SimpleNamespace(experiments=[])

    def pipeline_service_list_pipelines(self, **_: Any) -> Any:
        return SimpleNamespace(pipelines=[SimpleNamespace(pipeline_id="p-1")])

    def pipeline_service_list_pipeline_versions(self, **_: Any) -> Any:
        return SimpleNamespace(pipeline_versions=self.versions)

    def experiment_service_create_experiment(self, experiment: Any) -> Any:
        self.created["experiment"] = experiment
        return SimpleNamespace(experiment_id="e-1")

    def run_service_create_run(self, run: Any) -> Any:
        self.created["run"] = run
        return SimpleNamespace(run_id="r-1")

    def recurring_run_service_create_recurring_run(self, recurring_run: Any) -> None:
        self.created["recurring run"] = recurring_run


def pasted(text: str, server: Server) -> dict[str, Any]:
    """What the server is asked for when the lines in an artifact's header are run with kfp's own client."""
    client = object.__new__(kfp.Client)
    client._uihost, client._context_setting = "http://kfp", {"namespace": ""}
    for api in ("_experiment_api", "_pipelines_api", "_run_api", "_recurring_run_api"):
        setattr(client, api, server)
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.endswith((" with:", " after:")))
    program = [line.removeprefix("#   ") for line in lines[start + 1 :] if line.startswith("#   ")]
    exec("\n".join(program), {"client": client, "next": next})
    return server.created


NIGHTLY = """
name: nightly
schedule: {cron: "30 2 * * 1-5", catch_up: true, suspended: true}
params: {size: 3}
defaults: {service_account: trainer}
steps: {work: {image: "i:1", command: [w, {param: size}]}}
"""


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The artifact, in the folder where its header is run."""
    monkeypatch.chdir(tmp_path)
    text = compiled(NIGHTLY, namespace="team-a")
    Path("nightly.yaml").write_text(text)
    return text


def test_the_pasted_header_makes_the_recurring_run_of_the_schedule(nightly: str) -> None:
    created = pasted(nightly, Server())
    assert (created["experiment"].display_name, created["experiment"].namespace) == ("nightly", "team-a")
    made = created["recurring run"]
    assert (made.experiment_id, made.display_name, made.service_account) == ("e-1", "nightly", "trainer")
    assert (made.trigger.cron_schedule.cron, made.no_catchup, made.mode) == ("0 30 2 * * 1-5", False, "DISABLE")
    assert made.max_concurrency == 1
    assert made.pipeline_spec["pipeline_spec"]["pipelineInfo"]["name"] == "nightly"
    assert made.pipeline_spec["platform_spec"]["platforms"]["kubernetes"]


def test_the_pasted_header_starts_one_run_where_there_is_no_schedule(nightly: str) -> None:
    created = pasted(compiled(NIGHTLY.replace("schedule:", "#")), Server())
    assert set(created) == {"experiment", "run"}
    assert created["run"].pipeline_spec["pipeline_spec"]["pipelineInfo"]["name"] == "nightly"


@pytest.mark.parametrize(("source", "kind"), [(NIGHTLY, "recurring run"), (NIGHTLY.replace("schedule:", "#"), "run")])
def test_the_pasted_header_of_resources_runs_the_very_version_that_was_applied(source: str, kind: str) -> None:
    text = compiled(source, form="crd")
    _, version = yaml.safe_load_all(text)
    name = version["spec"]["displayName"]
    made = pasted(text, Server(("nightly-of-yesterday", name)))[kind].pipeline_version_reference
    assert (made.pipeline_id, made.pipeline_version_id) == ("p-1", f"id-of-{name}")


def test_cron_gets_the_seconds_that_kfp_reads_first() -> None:
    assert keywords(calls('schedule: "30 2 * * 1-5"\n')[1])["cron_expression"] == "0 30 2 * * 1-5"
    assert keywords(calls('schedule: "30 2 * * 7"\n')[1])["cron_expression"] == "0 30 2 * * 0"


def test_what_a_schedule_says_is_in_the_call() -> None:
    line = calls("schedule: {cron: '0 3 * * *', catch_up: true, suspended: true, concurrency: allow}\n")[1]
    given = keywords(line)
    assert (given["no_catchup"], given["enabled"], given["max_concurrency"]) == (False, False, 10)
    assert keywords(calls("schedule: '0 3 * * *'\n")[1])["max_concurrency"] == 1


def test_every_parameter_stands_in_the_call_and_those_that_a_run_must_give_are_left_to_fill_in() -> None:
    assert 'params={"day": ..., "size": 3}' in calls()[1]


def test_defaults_of_every_type_are_written_so_that_python_reads_them_back() -> None:
    body = """
name: typed
params:
  text: {type: string, default: 'a "quote" and a \\ {brace}'}
  flag: true
  rate: 2.0e-5
  many: {type: json, default: [a, {b: [1, null]}]}
steps: {work: {image: "i:1", command: [w]}}
"""
    pipeline = loads(HEAD + body)
    (_, run) = run_calls(pipeline, Site.load("nvidia"), "typed.yaml", None)
    call = ast.parse(run).body[0].value  # type: ignore[attr-defined]  # the statement is known
    given = ast.literal_eval(next(word.value for word in call.keywords if word.arg == "params"))
    assert given == {name: param.default for name, param in pipeline.params.items()}


def test_the_file_that_the_user_named_is_the_one_that_the_header_runs(tmp_path: Path) -> None:
    source = tmp_path / "source.yaml"
    source.write_text(HEAD + NIGHTLY.lstrip())
    for output, named in ((tmp_path / "mine.yaml", "mine.yaml"), (f"{tmp_path}/compiled/", "nightly.yaml")):
        assert main(["compile", str(source), "--target", "kubeflow", "-o", str(output)]) == 0
        written = tmp_path / "mine.yaml" if named == "mine.yaml" else tmp_path / "compiled" / named
        assert f'pipeline_package_path="{named}"' in written.read_text()


def test_the_header_says_how_the_client_is_made() -> None:
    assert "# First, once: client = kfp.Client(host=...)" in compiled(NIGHTLY)
    site = Site.load("nvidia")
    at = site.model_copy(
        update={
            "engines": {
                **site.engines,
                "kubeflow": site.engine("kubeflow").model_copy(update={"url": "https://kfp.example.com/"}),
            }
        }
    )
    assert '# First, once: client = kfp.Client(host="https://kfp.example.com")' in compiled(NIGHTLY, site=at)


def test_a_service_account_that_all_steps_share_is_given_to_the_run() -> None:
    body = BODY.format(top="defaults: {service_account: trainer}\n")
    (_, run) = run_calls(loads(HEAD + body), Site.load("nvidia"), "p.yaml", None)
    assert 'service_account="trainer"' in run
