"""Text that looks like a template is questioned once for each place, with the reference to write instead.

Tests gpuflow/spec/rules/remarks.py and gpuflow/spec/template_tags.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuflow
from gpuflow.core.errors import GpuflowError
from gpuflow.spec.canonical import digest, to_yaml
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import template_warnings
from gpuflow.spec.template_tags import looks_like_template, meaning_of_tag, tags_in
from gpuflow.spec.text import RUN_FIELDS, Literally, join, parse_text, text
from tests.cli.commands import EXAMPLES

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nparams: {lr: 1e-4, my_lr: 1e-3}\ndefaults: {image: i}\n"
A = "  a: {command: [a], outputs: {n: int}}\n"


def pipeline(step: str, more: str = "") -> Pipeline:
    return loads(f"{HEAD}{more}steps:\n{A}  b: {{needs: [a], {step}}}\n", "p.yaml")


def asked(step: str, more: str = "") -> list[tuple[str, str]]:
    found = list(template_warnings(pipeline(step, more)))
    assert {each.severity for each in found} <= {"warning"}
    return [(each.message, each.hint or "") for each in found]


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("--lr={{ params.lr }}", 'write {join: ["--lr=", {param: lr}]}; or {text:'),
        ("{{ params['lr'] }}", "write {param: lr}; or"),
        ("{{ dag_run.conf['lr'] }}", "write {param: lr}; or"),
        ("{{workflow.parameters.my-lr}}", "write {param: my_lr}; or"),
        ("{{inputs.parameters.lr}}", "write {param: lr}; or"),
        ("{{$.inputs.parameters['lr']}}", "write {param: lr}; or"),
        ("{{ params.other }}", "declare other under params; write {param: other}; or"),
        ("{{ run_id }}", "write {run: id}; or"),
        ("{{workflow.uid}}", "write {run: id}; or"),
        ("{{$.pipeline_job_uuid}}", "write {run: id}; or"),
        ("[[RunUUID]]", "write {run: id}; or"),
        ("{{tasks.a.outputs.parameters.n}}/x", 'write {join: [{output: a.n}, "/x"]}; or'),
        ("{{steps.a.outputs.result}}", "write {output: a.n}; or"),
        ("{{ ti.xcom_pull(task_ids='a', key='n') }}", "write {output: a.n}; or"),
        ("{{ task_instance.xcom_pull('a') }}", "write {output: a.n}; or"),
        ("{{tasks.a.outputs.parameters.m}}", 'declare m under outputs of step "a"; write {output: a.m}; or'),
        ("{{tasks.zz.outputs.parameters.m}}", "gpuflow has references instead of templates"),
        ("{{ run_id }} {{ mine }}", "write {run: id} for what has a reference; gpuflow has references"),
        ("{{ macros.ds_add(ds, 1) }}", "gpuflow has references instead of templates"),
        ("${{ secrets.TOKEN }}", "gpuflow has references instead of templates"),
        ("{% if x %}y{% endif %}", "gpuflow has references instead of templates"),
        ("{{=sprig.trim(' a ')}}", "gpuflow has references instead of templates"),
        ("{{channel:task=a;name=n;type=String;}}", "gpuflow has references instead of templates"),
        ("{{item}}", "gpuflow has references instead of templates"),
    ],
)
def test_the_reference_to_write_is_shown_where_there_is_one(words: str, instead: str) -> None:
    quoted = words.replace('"', '\\"')
    ((message, hint),) = asked(f'command: [x, "{quoted}"]')
    assert message.startswith('step "b": ')
    assert "in command is plain text to gpuflow: it reaches the program as it stands" in message
    assert hint.startswith(instead)
    assert '{text: "…"}' in hint


@pytest.mark.parametrize(
    ("tag", "field"),
    [
        ("{{ ds }}", "date"),
        ("{{ts}}", "logical_date"),
        ("{{ logical_date }}", "logical_date"),
        ("{{ data_interval_start }}", "interval_start"),
        ("{{ data_interval_end }}", "interval_end"),
        ("{{ti.try_number}}", "attempt"),
        ("{{workflow.name}}", "name"),
        ("{{workflow.scheduledTime}}", "logical_date"),
        ("[[ScheduledTime]]", "logical_date"),
        ("[[ScheduledTime.20060102]]", "logical_date"),
        ("{{$.pipeline_job_schedule_time_utc}}", "logical_date"),
        ("{{$.pipeline_job_create_time_utc}}", "logical_date"),
        ("{{ logical_date | ts }}", "logical_date"),
    ],
)
def test_a_fact_of_the_run_is_named_only_when_the_run_has_it(tag: str, field: str) -> None:
    assert meaning_of_tag(tag) == ("run", field)
    ((_, hint),) = asked(f'args: ["{tag}"], command: [x]')
    assert hint.startswith(f"write {{run: {field}}}; or" if field in RUN_FIELDS else "gpuflow has references")


@pytest.mark.parametrize(
    ("tag", "reference"),
    [
        ("{{ ts_nodash }}", 'logical_date, format: "%Y%m%dT%H%M%S"'),
        ("{{ data_interval_start | ds }}", 'interval_start, format: "%Y-%m-%d"'),
        ("{{ dag_run.logical_date|ds_nodash }}", 'logical_date, format: "%Y%m%d"'),
        ("{{ data_interval_end.strftime('%Y/%m') }}", 'interval_end, format: "%Y/%m"'),
        ("{{ logical_date.strftime('%-d') }}", None),
        ("{{ logical_date.strftime('') }}", None),
        ("{{ logical_date | tojson }}", None),
    ],
)
def test_a_date_of_airflow_keeps_its_format(tag: str, reference: str | None) -> None:
    ((_, hint),) = asked(f"args: ['{tag.replace(chr(39), chr(39) * 2)}'], command: [x]")
    assert hint.startswith("gpuflow has references" if reference is None else f"write {{run: {reference}}}; or")
    if reference is not None:
        loads(HEAD + f"schedule: '0 3 * * *'\nsteps: {{a: {{command: [x, {{run: {reference}}}]}}}}")


def test_the_item_of_a_fan_out() -> None:
    ((_, hint),) = asked('command: [x, "{{item}}"], for_each: {seed: [1]}')
    assert hint.startswith("write {item: seed}; or")
    ((_, hint),) = asked('command: [x, "{{item.seed}}"], for_each: {seed: [1], rate: [2]}')
    assert hint.startswith("write {item: seed}; or")
    ((_, hint),) = asked('command: [x, "{{item}}"], for_each: {seed: [1], rate: [2]}')
    assert hint.startswith("gpuflow has references")


@pytest.mark.parametrize(
    "words",
    [
        "docker inspect --format '{{.State.Status}}'",
        "{{- .Values.image -}}",
        "{{range .items}}{{.metadata.name}}{{end}}",
        "{{ $x }}",
        "{{ $.Values.x }}",
        "{{json .}}",
        "{{ if .Ok }}yes{{ else }}no{{ end }}",
        "if [[ -f /x && $a == b ]]; then",
        "{{}}",
        "a[[0]]",
        "date +{%Y-%m-%d}",
        "%{http_code}",
        '{"a":{"b":{"c":1}}}',
        "${HOME} $(date) {x}",
    ],
)
def test_text_for_other_programs_is_not_questioned(words: str) -> None:
    assert not looks_like_template(words)


def test_every_place_is_asked_about_once() -> None:
    tag = '"{{ x }} and {{ y }} {{ x }}"'
    step = (
        f"command: [x, {tag}], args: [{tag}], env: {{E: {tag}}}, image: {tag}, annotations: {{example.com/n: {tag}}}, "
        f"checkpoint: {{path: /c, store: {tag}}}, outputs: {{o: {{type: file, uri: {tag}}}}}, "
        f"init_containers: [{{name: h, image: i, command: [x, {tag}], env: {{F: {tag}}}}}]"
    )
    more = f"defaults: {{image: i, env: {{D: {tag}}}}}\n"
    text = f"{HEAD.replace('defaults: {image: i}', '')}{more}steps:\n{A}  b: {{{step}}}\n  c: {{command: [x]}}\n"
    # Where nothing can be compiled any more, it can still be asked about.
    for place in ("store", "uri"):
        text = text.replace(f"{place}: {tag}", f"{place}: 's3://x/{{{{ x }}}} and {{{{ y }}}}'")
    found = list(template_warnings(loads(text, "p.yaml")))
    places = [each.message.partition(" in ")[2].partition(" is plain")[0] for each in found]
    own = ["command", "args", "env.E", "image", "annotations.example.com/n", "checkpoint.store", "outputs.o.uri"]
    assert sorted(places) == sorted(["env.D", *own, "init_containers.command", "init_containers.env.F"])
    assert all("{{ x }} (and 1 more)" in each.message for each in found)
    assert len({each.where for each in found}) == len(found)


def test_defaults_of_parameters_data_locations_and_arguments_of_sub_pipelines() -> None:
    inner = "{apiVersion: gpuflow/v1, kind: Pipeline, name: q, params: {x: a, y: {type: json}}, "
    inner += "steps: {s: {image: i, command: [c]}}}"
    text = (
        HEAD.replace("lr: 1e-4", 'lr: 1e-4, day: "{{ ds }}"')
        + 'on_data: ["s3://b/{{ ds }}"]\nsteps:\n'
        + f'  t: {{params: {{x: "{{{{ ds }}}}", y: {{text: "{{{{ ds }}}}"}}}}, pipeline: {inner}}}\n'
    )
    said = loads(text)
    assert [each.message.partition(" is plain")[0] for each in template_warnings(said)] == [
        'parameter "day": {{ ds }} in the default',
        "on_data: {{ ds }}",
        'step "t": {{ ds }} in params.x',
    ]
    assert said.steps["t"].params["y"] == {"text": "{{ ds }}"}, "of type json it is the map that it was"
    meant = loads(text.replace('x: "{{ ds }}"', 'x: {text: "{{ ds }}"}'))
    assert [each.message for each in template_warnings(meant) if "params.x" in each.message] == []
    assert meant.steps["t"].params["x"] == "{{ ds }}"
    assert loads(to_yaml(meant)) == meant
    assert [e.message for e in template_warnings(loads(to_yaml(meant)))] == [
        e.message for e in template_warnings(meant)
    ]


def test_items_and_questions_to_people() -> None:
    ((message, hint),) = asked('command: [x], for_each: {day: [a, "{{ ds }}", "{{ ds }}"]}')
    assert "{{ ds }} in for_each.day is plain text to gpuflow: nothing fills it in" in message
    assert hint.startswith("no reference can stand here; or silence: [GF341]")
    ((message, _),) = asked('approval: "deploy {{ ds }}?"')
    assert "in approval is plain text" in message


def test_in_a_script_only_the_tags_of_engines_are_questioned() -> None:
    ((message, hint),) = asked('script: "echo {{ run_id }} {{ mine }} ${{ a }}"')
    assert "{{ run_id }} in script is plain text to gpuflow: the script receives it as it stands" in message
    assert hint.startswith("pass it as a variable, env: {NAME: {run: id}}, and use $NAME in the script; or silence:")
    assert asked('script: "{{ mine }} {{.State}} {% raw %} ${{ a }} [[ -f x ]] {{ cookiecutter.name }}"') == []


def test_text_that_is_meant_literally_is_not_questioned_and_means_the_same() -> None:
    plain, meant = (pipeline(f"command: [x, {words}]") for words in ('"{{ ds }}"', '{text: "{{ ds }}"}'))
    assert plain == meant
    assert digest(plain) == digest(meant)
    assert (len(list(template_warnings(plain))), list(template_warnings(meant))) == (1, [])
    glued = pipeline('command: [x, {join: [a, {text: "{{ x }}"}, b, {param: lr}, "{{ y }}"]}]')
    assert [each.message.split('"')[2].split(" in ")[0] for each in template_warnings(glued)] == [": {{ y }}"]
    for each in (plain, meant, glued):
        again = loads(to_yaml(each), "p.yaml")
        assert again == each
        assert to_yaml(again) == to_yaml(each)
        assert len(list(template_warnings(again))) == len(list(template_warnings(each)))


def test_the_mark_is_written_only_where_it_makes_a_difference() -> None:
    assert "text:" not in to_yaml(pipeline("command: [x, {text: plain}]"))
    assert "text:" in to_yaml(pipeline('command: [x, {text: "{{ ds }}"}]'))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.booleans(), st.text("{}%[]$. xdsE\n", max_size=8)), max_size=5))
def test_joined_parts_are_questioned_as_their_parts_are(parts: list[tuple[bool, str]]) -> None:
    """Marks survive joining, and the canonical form reads back as the same text with the same mark."""
    joined = join(*(text(words) if meant else words for meant, words in parts))
    assert joined == "".join(words for _, words in parts)
    assert isinstance(joined, str)
    if any(looks_like_template(words) for meant, words in parts if not meant):
        assert not isinstance(joined, Literally)
    assert parse_text({"join": [{"text": w} if m else w for m, w in parts]}) == joined
    for tag in tags_in(joined):
        assert joined[tag.start : tag.end] == tag.text


@pytest.mark.parametrize("value", ["{text: {param: lr}}", "{text: [a]}", "{text: null}"])
def test_text_takes_plain_text(value: str) -> None:
    with pytest.raises(GpuflowError, match="GF142"):
        pipeline(f"command: [x, {value}]")


def test_in_python() -> None:
    with gpuflow.Pipeline("p", defaults={"image": "i"}) as p:
        p.step("a", ["x", gpuflow.text("{{ ds }}"), "{{ ds }}"])
    assert len(list(template_warnings(p))) == 1
    (finding,) = gpuflow.compile(p, "airflow").findings
    assert (finding.code, finding.severity) == ("GF341", "warning")
    with pytest.raises(TypeError):
        gpuflow.text(3)  # type: ignore[arg-type]  # what nobody should pass, or a table of options


def test_no_example_is_questioned() -> None:
    for path in sorted(EXAMPLES.glob("*.yaml")):
        assert list(template_warnings(load(path))) == []


def test_a_file_that_is_nearly_named_is_suggested_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "train.yaml").write_text("")
    (tmp_path / "pipelines" / "whole-of-it.json").write_text(f"{HEAD}steps: {{a: {{pipeline: trian.yaml}}}}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GpuflowError) as one:
        load("pipelines/tran.yaml")
    assert one.value.findings[0].hint == 'did you mean "pipelines/train.yaml"?'
    with pytest.raises(GpuflowError) as other:
        load("pipelines/whole-of-it.json")
    assert other.value.findings[0].hint == 'did you mean "train.yaml"?', "as the document would name it"
    monkeypatch.chdir(tmp_path / "pipelines")
    with pytest.raises(GpuflowError) as beside:
        load("tran.yaml")
    assert beside.value.findings[0].hint == 'did you mean "train.yaml"?'
