"""The twelve steps of finetune.yaml in Python; both load to the same pipeline.

Not on Kubeflow as it is: approval, sidecars and more. compile lists them, each with a way out.
"""

from pathlib import Path

from gpuflow import Pipeline, gpu, join, load

CORPUS = {"/corpus": {"new_claim": "corpus"}}
READ_CORPUS = {"/corpus": {"new_claim": "corpus", "read_only": True}}
PLAN = """\
import json, os, pathlib

# Nothing here is expanded: $HOME, $(date), {{ braces }} and "quotes" reach Python as they are.
out = pathlib.Path(os.environ["GPUFLOW_OUTPUTS"])
out.joinpath("languages").write_text(json.dumps(["de", "en", "fr"]))
out.joinpath("rows").write_text("1200000")
"""
RUN = {"run": "id"}
benchmark = load(Path(__file__).parent / "finetune-eval.yaml")


def object_store(key: str) -> dict[str, str]:
    """One half of the credentials."""
    return {"secret": "object-store", "key": key}


with Pipeline(
    "finetune",
    description="Fine-tune a language model every week, and publish it when people and numbers agree",
    labels={"cost-centre": "4711"},
    schedule={"cron": "30 2 * * 6", "timezone": "Europe/Berlin", "concurrency": "forbid"},
    parallel=24,
    deadline="2d",
    defaults={
        "image": "registry.example.com/nlp/finetune:2.1",
        "image_pull_policy": "IfNotPresent",
        "image_pull_secrets": ["registry"],
        "service_account": "finetune",
        "working_dir": "/workspace",
        "labels": {"team": "nlp"},
        "annotations": {"example.com/owner": "nlp-oncall"},
        "queue": "research",
        "cpu": 2,
        "memory": {"request": "6Gi", "limit": "8Gi"},
        "env": {"HF_HOME": "/cache", "RUN": RUN},
        "retry": {"any": 2, "backoff": "30s"},
    },
    claims={"corpus": {"size": "500Gi", "storage_class": "fast", "access": "ReadWriteMany"}},
) as p:
    base = p.param(
        "base",
        str,
        default="llama-3-8b",
        enum=["llama-3-8b", "llama-3-70b"],
        description="The model to start from",
    )
    epochs = p.param("epochs", int, default=3, min=1, max=10)
    p.param("threshold", float, default=0.9, min=0, max=1, description="Accuracy a model needs to be published")
    p.param("dry_run", bool, default=False)
    suites = p.param("suites", list, default=["mmlu", "gsm8k", "humaneval"], description="Benchmarks to run")
    release = p.param("release", str, default="weekly", description="Where the model is kept")

    plan = p.step(
        "plan",
        description="Look at the bucket and decide what there is to do",
        script={"interpreter": ["python3", "-u"], "run": PLAN},
        cache=True,
        outputs={"languages": list, "rows": {"type": int, "default": 0}},
    )
    download = p.step(
        "download",
        ["python", "download.py", "--source", {"item": "source"}, "--to", "/corpus"],
        description="One copy per source, from a fixed list",
        needs=plan,
        for_each={"source": ["wiki", "news", "code"]},
        parallel=2,
        env={
            "AWS_ACCESS_KEY_ID": object_store("access"),
            "AWS_SECRET_ACCESS_KEY": object_store("secret"),
            "MIRROR": {"config_map": "mirrors", "key": "eu", "optional": True},
        },
        env_from=[
            {"secret": "proxy", "optional": True},
            {"config_map": "download-settings", "prefix": "DL_"},
        ],
        volumes={**CORPUS, "/scratch": {"empty_dir": "50Gi"}},
        ephemeral_storage={"request": "55Gi", "limit": "60Gi"},
        init_containers=[
            {
                "name": "permissions",
                "image": "busybox:1.37",
                "command": ["sh", "-c", "touch /scratch/ready"],
                "volumes": {"/scratch": {"empty_dir": "50Gi"}},
            }
        ],
        timeout="3h",
        retry={
            "any": 5,
            "backoff": {"start": "10s", "factor": 3, "max": "5m"},
            "retryable_exit_codes": [1, 28, 56],
        },
    )
    tokenize = p.step(
        "tokenize",
        [
            *("python", "tokenize.py", "--language", {"item": "language"}),
            *("--in", "/corpus", "--vocabulary", "/etc/vocabulary"),
        ],
        description="One copy per language, known only when plan has run",
        needs=download,
        for_each={"language": plan.outputs.languages},
        parallel=8,
        cpu=8,
        memory="32Gi",
        volumes={**CORPUS, "/etc/vocabulary": {"config_map": "vocabulary", "read_only": True}},
        security={"user": 2000, "group": 2000, "fs_group": 2000, "read_only_root": True},
    )
    sweep = p.step(
        "sweep",
        ["python", "sweep.py", "--lr", {"item": "lr"}, "--seed", {"item": "seed"}, "--rows", plan.outputs.rows],
        description="Every combination of learning rate and seed, on shares of small GPUs",
        needs=tokenize,
        for_each={"lr": [1e-5, 2e-5, 5e-5], "seed": {"range": {"start": 1, "stop": 4}}},
        parallel=6,
        shared_gpu={"model": "l4", "by": "mps"},
        topology={"spread": "node"},
        spot="prefer",
        volumes={"/corpus": {"new_claim": "corpus", "read_only": True, "sub_path": "tokens"}},
        retry={"failures": 1, "interruptions": 5},
        outputs={"loss": float},
    )
    select = p.step(
        "select",
        ["python", "select.py", "--losses", sweep.outputs.loss],
        description="The fan-out's losses arrive as one list",
        security={"run_as_root": True},
        outputs={"lr": float, "worthwhile": bool},
    )
    train = p.step(
        "train",
        [
            *("torchrun", "--nproc-per-node=8", "train.py"),
            *("--base", base, "--epochs", epochs, "--lr", select.outputs.lr),
        ],
        args=["--bf16", "--cost", "$$ per $(HOUR)"],
        description="The long one, on eight GPUs of one machine, resumed after every interruption",
        when="steps.select.worthwhile and not params.dry_run",
        if_skipped="skip",
        gpu=gpu("a100-80gb", 8),
        cpu=64,
        memory="800Gi",
        shm="64Gi",
        volumes={
            **READ_CORPUS,
            "/cache": {"claim": "model-cache"},
            "/secrets": {"secret": "wandb", "read_only": True},
            "/ramdisk": {"memory": "16Gi"},
        },
        kubernetes={
            "resources": {"rdma/hca": 4},
            "node_selector": {"example.com/fabric": "infiniband"},
            "tolerations": [
                {"key": "example.com/reserved", "operator": "Equal", "value": "training", "effect": "NoSchedule"}
            ],
        },
        security={"add_capabilities": ["IPC_LOCK"]},
        priority={"pod": "training", "queue": "weekly"},
        spot={"mode": "prefer", "fallback_after": 5},
        termination_grace="2m",
        timeout="1d",
        retry={
            "failures": 1,
            "interruptions": 20,
            "backoff": {"start": "1m", "factor": 2, "max": "15m"},
            "final_exit_codes": [2, 64],
            "more_memory": {"factor": 1.5, "max": "1200Gi"},
        },
        checkpoint={
            "path": "/checkpoints",
            "store": join("s3://models/finetune/", release),
            "every": "20m",
            "keep": 3,
            "grace": "90s",
            "resume_env": "RESUME_FROM",
        },
        outputs={
            "model": {
                "type": "directory",
                "path": "/out/model",
                "uri": {"join": ["s3://models/", release, "/", RUN]},
            },
            "loss": float,
        },
    )
    quantize = p.step(
        "quantize",
        ["python", "quantize.py", "--model", train.outputs.model],
        description="Whichever of these GPUs is free",
        if_skipped="skip",
        gpu=gpu(any_of=["a100-80gb", "h100-80gb"]),
        memory="64Gi",
        outputs={"model": {"type": "directory", "uri": join("s3://models/", release, "/int8")}},
    )
    evaluate = p.step(
        "evaluate",
        description="Another pipeline as one step, once per benchmark",
        if_skipped="skip",
        for_each={"suite": suites},
        parallel=2,
        pipeline=benchmark,
        params={"suite": {"item": "suite"}, "model": quantize.outputs.model, "seeds": 3},
    )
    report = p.step(
        "report",
        ["python", "report.py", "--scores", evaluate.outputs.accuracy],
        if_skipped="skip",
        outputs={
            "accuracy": {"type": float, "default": 0},
            "card": {"type": "file", "path": "/out/card.md", "uri": {"join": ["s3://reports/", RUN, "/card.md"]}},
        },
    )
    smoke_test = p.step(
        "smoke-test",
        ["python", "client.py", "--server", "http://localhost:8000"],
        description="Any GPU with enough memory serves the model beside a small client",
        if_skipped="skip",
        gpu=gpu(memory="20Gi"),
        sidecars=[
            {
                "name": "server",
                "image": "registry.example.com/serving/vllm:0.9",
                "command": ["vllm", "serve"],
                "args": [quantize.outputs.model],
                "ports": [8000],
                "cpu": 4,
                "memory": "24Gi",
                "probes": {
                    "startup": {"http": {"path": "/health", "port": 8000}, "period": "10s", "failures": 60},
                    "liveness": {"tcp": 8000, "period": "30s", "timeout": "5s"},
                },
            }
        ],
        probes={"readiness": {"command": ["test", "-e", "/tmp/ready"], "delay": "5s"}},
    )
    approve = p.step(
        "approve",
        description="A person looks at the report",
        needs=[report, smoke_test],
        when="steps.report.accuracy >= params.threshold",
        if_skipped="skip",
        approval={"message": "Publish the new model?", "timeout": "12h"},
    )
    p.step(
        "publish",
        ["python", "publish.py", "--release", release, "--model", quantize.outputs.model],
        needs=approve,
        when="params.base in ['llama-3-8b', 'llama-3-70b'] and steps.train.loss < 2.5",
        if_skipped="skip",
    )
    p.exit_step("notify", ["python", "notify.py", "--run", RUN, "--accuracy", report.outputs.accuracy], on="always")
    p.exit_step("page", ["python", "page.py", "--team", "nlp"], on="failure")
    p.exit_step("tidy", ["python", "tidy.py", "--keep", "3"], on="success")
