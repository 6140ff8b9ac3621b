"""Finding 17: a secret in plain text is said by every command that reads the pipeline, and nothing else is.

Tests gpuflow/core/secret_text.py and gpuflow/spec/rules/remarks.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuflow.cli.main import main
from gpuflow.core.secret_text import is_secret_name, is_secret_value, passwords_in, secret_kind_in, tokens_in
from gpuflow.spec.loading import load
from gpuflow.spec.rules.remarks import exposed_secrets

SECRET = "hunter2-is-long"
EXPOSED = f"""\
apiVersion: gpuflow/v1
kind: Pipeline
name: shown
params:
  api_token: {{type: string, default: {SECRET}}}
defaults: {{image: i}}
steps:
  train:
    command: [train, "--db=postgres://me:{SECRET}@db/x"]
    gpu: a100-80gb
    env: {{DB_PASSWORD: {SECRET}, HF_TOKEN: {{param: api_token}}}}
    checkpoint: {{path: /ckpt, store: "s3://KEY:{SECRET}@bucket/x"}}
    outputs: {{model: {{type: directory, uri: "s3://KEY:{SECRET}@bucket/model"}}}}
    sidecars: [{{name: helper, image: h, command: [h], env: {{PGPASSWORD: {SECRET}}}}}]
  script: {{script: "curl https://me:{SECRET}@example.com"}}
exit:
  bye: {{command: [bye], env: {{SLACK_API_KEY: {SECRET}}}}}
"""
PLACES = [
    ("GF601", 'parameter "api_token"'),
    ("GF601", 'step "train": DB_PASSWORD is'),
    ("GF601", 'step "train": HF_TOKEN comes from a parameter'),
    ("GF601", 'step "train", helper: PGPASSWORD'),
    ("GF602", 'step "train": command'),
    ("GF602", 'step "train": checkpoint.store'),
    ("GF602", 'step "train": the uri of output model'),
    ("GF602", 'step "script": script'),
    ("GF601", 'step "bye": SLACK_API_KEY'),
]


@pytest.mark.parametrize(
    "name",
    [
        "DB_PASSWORD",
        "PGPASSWORD",
        "MYSQL_PWD",
        "DB_PASS",
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_APIKEY",
        "githubToken",
        "CLIENT_SECRET",
        "SSH_PRIVATE_KEY",
        "SSH_PASSPHRASE",
        "AZURE_STORAGE_KEY",
        "GOOGLE_CREDENTIALS",
        "password",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "PAD_TOKEN",
        "EOS_TOKEN",
        "TOKENIZER",
        "KEY_FILE",
        "DB_PASSWORD_FILE",
        "TOKEN_PATH",
        "SORT_KEY",
        "AWS_ACCESS_KEY_ID",
        "SECRET_NAME",
        "PASSWORDLESS",
        "PWD",
        "PASS",
        "FIRST_PASS",
        "KEYBOARD",
        "MONKEY",
        "KEY",
        "SECRETS_DIR",
        "API_KEY_ID",
        "MAX_TOKEN",
        "NUM_TOKEN",
        "IMAGE_PULL_SECRET",
        "TLS_SECRET",
        "LR",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text", ["hunter2", "AKIA/ab+cd==", "/Ab1/xyZ9", "12345678", "s.abcdef", "/Ab1.xyZ9", "/9j/4AAQSkZJRg"]
)
def test_texts_that_may_be_secrets(text: str) -> None:
    assert is_secret_value(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "true", "0", "$(DB_PASSWORD)", "$TOKEN", "${TOKEN}", "<token>", "changeme", "/run/secrets/token", "***"),
        *("/gcp/serviceAccountKey.json", "/run/secrets/HF_TOKEN", "~/.ssh/id.pem", "./Keys/ci.key"),
    ],
)
def test_texts_that_are_none(text: str) -> None:
    assert not is_secret_value(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("s3://KEY:SECRET@bucket", ["SECRET"]),
        ("a postgres://u:p4ss@h/x b", ["p4ss"]),
        ("redis://:p4ss@h", ["p4ss"]),
        ("abfs://container@account.dfs.core.windows.net/x", []),
        ("ssh://git@example.com/x", []),
        ("postgres://u:$(DB_PASSWORD)@h", []),
        ("https://u:${TOKEN}@h", []),
        ("https://example.com:8080/a@b", []),
        ("apptainer run docker://alpine:3.20@sha256:0123", []),
        ("time 10:20 me@example.com", []),
    ],
)
def test_passwords_in_addresses(text: str, found: list[str]) -> None:
    assert list(passwords_in(text)) == found


TOKENS = (
    "ghp_" + "a1B2" * 9, "github_pat_" + "a1B2" * 9, "glpat-" + "a1B2" * 5, "hf_" + "a1B2" * 9, "AKIA" + "Q3EG" * 4,
    "AIza" + "a1-_B" * 7, "xoxb-1234567890-abc", "sk-proj-" + "a1B2" * 9, "npm_" + "a1B2" * 9,
)  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_are_known_by_their_form(token: str) -> None:
    for text in (token, f"curl -H 'Authorization: Bearer {token}' x", f"TOKEN={token}"):
        assert list(tokens_in(text)) == [token]
        assert secret_kind_in(text) == "an access token"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", "a private key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "a private key"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----", "a private key"),
        ("mysql --password hunter2 -h db", "a password as an option"),
        ("mysql --db-password='hunter2'", "a password as an option"),
        ("gpg --passphrase=hunter2", "a password as an option"),
        ("-----BEGIN PUBLIC KEY-----", None),
        ("-----BEGIN CERTIFICATE-----", None),
        ("mysql --password $DB_PASSWORD", None),
        ('mysql --password "$(cat /run/secrets/db)"', None),
        ("mysql --password=${DB_PASSWORD}", None),
        ("docker login --password-stdin", None),
        ("x --password --host db", None),
        ("x --password-file /etc/p", None),
        ("x --password {{inputs.parameters.p}}", None),
        ("x --eos-token hf_end --hf_home /x", None),
        ("AKIAIOSFODNN7EXAMPLE", None),
        ("sk-learn-contrib and task_hf_model", None),
        ("the hash 0123456789abcdef0123456789abcdef01234567", None),
    ],
)
def test_secrets_known_by_their_form_and_nothing_else(text: str, kind: str | None) -> None:
    assert secret_kind_in(text) == kind


def test_a_secret_by_its_form_is_said_wherever_it_stands_and_never_repeated(tmp_path: Path) -> None:
    token = TOKENS[0]
    (tmp_path / "p.yaml").write_text(
        f"""\
apiVersion: gpuflow/v1
kind: Pipeline
name: shown
params: {{who: {{type: string, default: {token}}}, word: {{type: string, default: w}}}}
defaults: {{image: i}}
steps:
  words: {{command: [db, --password, {SECRET}]}}
  given: {{command: [db, --password, {{param: word}}, train]}}
  noted: {{command: [a], annotations: {{docs: "https://me:{SECRET}@example.com", t: {token}}}}}
  plain: {{command: [a], env: {{X: {token}, HF_TOKEN: {token}}}}}
  key: {{script: "echo '-----BEGIN PRIVATE KEY-----'"}}
"""
    )
    findings = list(exposed_secrets(load(tmp_path / "p.yaml")))
    assert sorted((each.code, each.message.partition(" in plain text")[0]) for each in findings) == [
        ("GF601", 'step "key": script holds a private key'),
        ("GF601", 'step "noted": annotations holds an access token'),
        ("GF601", 'step "plain": HF_TOKEN is written'),
        ("GF601", 'step "plain": X holds an access token'),
        ("GF601", 'step "words": command holds a password as an option'),
        ("GF601", 'the default of parameter "who" holds an access token'),
        (
            "GF602",
            'step "noted": annotations holds an address with a password, which everybody sees who may see the run',
        ),
    ]
    assert not [each for each in findings if token in each.render() or SECRET in each.render()]


def test_every_place_is_named_and_no_message_repeats_the_secret(tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(EXPOSED)
    findings = list(exposed_secrets(load(tmp_path / "shown.yaml")))
    for code, words in PLACES:
        (found,) = (each for each in findings if each.code == code and each.message.startswith(words))
        assert found.severity == "warning"
        assert found.where.line
        assert "secret:" in (found.hint or "")
    assert len(findings) == len(PLACES)
    assert not any(SECRET in each.render() for each in findings)


def test_references_to_secrets_and_settings_of_models_raise_no_alarm(tmp_path: Path) -> None:
    (tmp_path / "quiet.yaml").write_text(
        """\
apiVersion: gpuflow/v1
kind: Pipeline
name: quiet
params: {token: {type: string, default: <eos>}}
steps:
  train:
    image: i
    command: [train, "postgres://me:$(DB_PASSWORD)@db"]
    env:
      DB_PASSWORD: {secret: db, key: password}
      HF_TOKEN: {config_map: c, key: t}
      TOKENIZERS_PARALLELISM: "false"
      KEY_FILE: /etc/keys/id
      GOOGLE_APPLICATION_CREDENTIALS: /var/run/gcp.json
      PAD_TOKEN: "[PAD]"
      API_TOKEN: "$(DB_PASSWORD)"
"""
    )
    assert list(exposed_secrets(load(tmp_path / "quiet.yaml"))) == []


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "FILE"],
        ["validate", "FILE", "--format", "json"],
        ["show", "FILE"],
        ["demand", "FILE"],
        ["compile", "FILE", "--target", "airflow", "-o", "OUT"],
        ["compile", "FILE", "--target", "airflow", "--format", "json"],
        ["check", "FILE", "--cluster", "CLUSTER", "--namespace", "nlp"],
        ["airflow", "pools", "FILE"],
        ["argo", "semaphores", "FILE", "--name", "gpus"],
    ],
    ids=lambda words: " ".join(words),
)
def test_every_command_that_reads_a_pipeline_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (tmp_path / "shown.yaml").write_text(EXPOSED)
    cluster = Path(__file__).parents[2] / "docs" / "examples" / "quota" / "cluster"
    named: dict[str, Any] = {"FILE": tmp_path / "shown.yaml", "OUT": tmp_path / "out.py", "CLUSTER": cluster}
    code = main([str(named.get(word, word)) for word in words])
    said = "".join(capsys.readouterr())
    assert "GF601" in said
    assert "GF602" in said
    assert words[0] == "check" or code == 0


def test_a_password_in_the_site_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.yaml").write_text(
        f"apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\nruntime: {{state: s3://K:{SECRET}@b}}\n"
    )
    (tmp_path / "p.yaml").write_text(
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps: {a: {image: i, command: [a]}}\n"
    )
    assert main(["validate", str(tmp_path / "p.yaml"), "--site", str(tmp_path / "site.yaml")]) == 0
    said = capsys.readouterr().err
    assert "GF602 runtime.state of the site holds an address with a password" in said
    assert SECRET not in said
