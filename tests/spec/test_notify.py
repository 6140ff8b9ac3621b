"""Whom a run tells: what can be said, and what is refused before it reaches an engine.

Tests gpuflow/site/model.py and gpuflow/spec/notify.py.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.site.model import alerts_of
from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
STEPS = "\nsteps: {a: {image: 'i:1', command: [x]}}\n"


def written(notify: str) -> Pipeline:
    return loads(f"{HEAD}notify: {notify}{STEPS}", "p.yaml")


@pytest.mark.parametrize(
    ("notify", "code", "words"),
    [
        ("[{slack: {}}]", "GF382", "with which right"),
        ("[{slack: {authorization: {secret: s, key: k}}}]", "GF382", "needs the channel"),
        ("[{slack: {channel: 'a b', connection: c}}]", "GF382", "not a Slack channel"),
        ("[{slack: {channel: '{{x}}', connection: c}}]", "GF382", "not a Slack channel"),
        ("[{slack: {url: https://hooks.slack.com/x}}]", "GF116", "mapping is expected"),
        ("[{webhook: {}}]", "GF382", "where to post"),
        ("[{webhook: {url: ftp://x}}]", "GF382", "not an address"),
        ("[{webhook: {url: 'https://x/{{y}}'}}]", "GF382", "not an address"),
        ("[{webhook: {url: 'https://x:99999/'}}]", "GF382", "not an address"),
        ("[{webhook: {url: 'https://user:hunter2@x.com/'}}]", "GF381", "user or a password"),
        ("[{webhook: {url: 'https://hooks.slack.com/services/T/B/x'}}]", "GF381", "it is a secret"),
        ("[{webhook: {url: 'https://x.com/a?token=abc'}}]", "GF381", 'after "token="'),
        ("[{webhook: {url: 'https://x.com/a?v=1&api-key=abc'}}]", "GF381", 'after "api-key="'),
        ("[{webhook: {url: 'https://x.com/a?sv=1.0&sig=abc'}}]", "GF381", 'after "sig="'),
        ("[{webhook: {url: 'https://discordapp.com/api/webhooks/1/x'}}]", "GF381", "it is a secret"),
        ("[{webhook: {url: https://x, headers: {Authorization: Bearer abc}}}]", "GF381", '"Authorization" is a secret'),
        ("[{webhook: {url: https://x, headers: {X-Api-Key: abc}}}]", "GF381", '"X-Api-Key" is a secret'),
        ("[{webhook: {url: https://x, headers: {X-Auth-Token: abc}}}]", "GF381", '"X-Auth-Token" is a secret'),
        ("[{webhook: {url: https://x, headers: {'a b': c}}}]", "GF382", "not the name of a header"),
        ('[{webhook: {url: https://x, headers: {a: "x\\ny"}}}]', "GF382", "not the value of a header"),
        ("[{pagerduty: {}}]", "GF382", "integration key"),
        ("[{pagerduty: {routing_key: abcdef}}]", "GF116", "mapping is expected"),
        ("[{mail: {to: []}}]", "GF382", "nobody"),
        ('[{mail: {to: ["a@b.c\\nBcc: d@e.f"]}}]', "GF382", "not a mail address"),
        ("[{mail: {to: a@b.c}, slack: {connection: c}}]", "GF128", "exactly one"),
        ("[{mail: {to: a@b.c}, on: []}]", "GF382", "never sent"),
        ("[{mail: {to: a@b.c}, on: late}]", "GF115", "not one of"),
        ("[{mail: {to: a@b.c, connection: '{{ x }}'}}]", "GF382", "Airflow connection"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(notify: str, code: str, words: str) -> None:
    with pytest.raises(GpuflowError) as refusal:
        written(notify)
    (finding,) = refusal.value.findings
    assert (finding.code, finding.where.line) == (code, 4) and words in finding.message
    assert finding.hint or code == "GF128"
    assert "hunter2" not in finding.render() and "services/T/B" not in finding.render()


def test_a_document_is_written_back_as_it_was_said() -> None:
    pipeline = written(
        "[{webhook: {url: https://x/y, headers: {X-Team: nlp, Authorization: {secret: s, key: k}}}, on: success}, "
        "{pagerduty: {connection: c, severity: critical}}]"
    )
    assert loads(to_yaml(pipeline), "q.yaml") == pipeline
    assert pipeline.notify is not None and [alert.channel for alert in pipeline.notify] == ["webhook", "pagerduty"]


def test_nobody_is_not_the_same_as_nothing_said() -> None:
    silent, open_ended = written("[]"), loads(HEAD + STEPS, "p.yaml")
    assert silent != open_ended
    assert loads(to_yaml(silent), "q.yaml") == silent and "notify: []" in to_yaml(silent)


def test_the_sites_alerts_come_after_the_pipelines_own_and_can_be_unsaid() -> None:
    own = written("[{mail: {to: a@b.c}}]").notify
    of_site = written("[{slack: {connection: c}}, {mail: {to: a@b.c}}]").notify
    assert own is not None and of_site is not None
    site = Site(name="s", notify=of_site)
    assert alerts_of(loads(HEAD + STEPS, "p.yaml"), site) == of_site
    assert alerts_of(written("[]"), site) == ()
    assert alerts_of(written("[{mail: {to: a@b.c}}]"), site) == (own[0], of_site[0]), "one that both say is sent once"


def test_a_sub_pipeline_tells_nobody_by_itself() -> None:
    inner = "{name: q, notify: [{mail: {to: a@b.c}}], steps: {b: {image: 'i:1', command: [y]}}}"
    with pytest.raises(GpuflowError, match="GF187"):
        loads(f"{HEAD}steps: {{sub: {{pipeline: {inner}}}}}\n", "p.yaml")


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_no_text_reaches_an_engine_that_it_would_read_as_its_own(url: str, header: str, channel: str) -> None:
    """Whatever is accepted holds no tag, no line break and no control character."""
    for notify in (
        [{"webhook": {"url": f"https://x/{url}", "headers": {"X-A": header}}}],
        [{"slack": {"channel": channel, "connection": "c"}}],
    ):
        try:
            pipeline = written(json.dumps(notify))
        except GpuflowError:
            continue
        for alert in pipeline.notify or ():
            texts = [alert.slack.channel] if alert.slack else [alert.webhook.url, *alert.webhook.headers.values()]  # type: ignore[union-attr]  # it is there in this case
            assert all(text and "{" not in text and text.isprintable() and text.isascii() for text in texts if text)


def test_an_address_may_ask_for_what_is_no_secret() -> None:
    text = "[{webhook: {url: 'https://x.com/a?channel=ml&keys=3&token='}}]"
    assert loads(
        f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nnotify: {text}\nsteps: {{a: {{image: i, command: [x]}}}}"
    )
