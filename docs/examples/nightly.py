"""The nightly pipeline in Python; it says exactly what nightly.yaml says.

Not on Kubeflow as it is: schedule.timezone, termination_grace. Its clock has one time zone, its pods 30 s to stop.
"""

from gpuflow import Pipeline, gpu, mig

with Pipeline(
    "nightly",
    description="Fetch, tokenize, train on two GPUs, evaluate on MIG slices, deploy when it is good enough",
    schedule={"cron": "0 0 * * *", "timezone": "Europe/Berlin"},
    defaults={
        "image": "registry.example.com/nlp/train:1.4",
        "labels": {"team": "nlp"},
        "cpu": 2,
        "memory": "8Gi",
    },
) as pipeline:
    lr = pipeline.param("lr", float, default=2e-5, min=0)
    suites = pipeline.param("suites", list, default=["mmlu", "gsm8k", "humaneval"])
    fetch = pipeline.step(
        "fetch",
        ["python", "fetch.py", "--from", "s3://corpus/daily", "--to", "s3://staging/raw"],
        env={
            "AWS_ACCESS_KEY_ID": {"secret": "object-store", "key": "access"},
            "AWS_SECRET_ACCESS_KEY": {"secret": "object-store", "key": "secret"},
        },
        retry={"any": 3, "backoff": "1m"},
    )
    tokenize = pipeline.step(
        "tokenize",
        ["python", "tokenize.py", "--from", "s3://staging/raw", "--to", "s3://staging/tokens"],
        needs=fetch,
        cpu=8,
        memory="32Gi",
        outputs={"shards": int},
    )
    train = pipeline.step(
        "train",
        ["torchrun", "--nproc-per-node=2", "train.py", "--lr", lr, "--shards", tokenize.outputs.shards],
        gpu=gpu("a100-80gb", 2),
        cpu=16,
        memory="200Gi",
        shm="16Gi",
        retry={"failures": 1, "interruptions": 20, "backoff": {"start": "30s", "factor": 2, "max": "10m"}},
        checkpoint={"path": "/checkpoints", "store": "s3://models/nightly", "every": "auto", "keep": 2, "grace": "90s"},
    )
    evaluate = pipeline.step(
        "evaluate",
        ["python", "evaluate.py", "--suite", {"item": "suite"}, "--model", "s3://models/nightly"],
        needs=train,
        for_each={"suite": suites},
        parallel=2,
        mig=mig("1g.10gb", "a100-80gb"),
        outputs={"accuracy": float},
    )
    pipeline.step(
        "report",
        ["python", "report.py", "--scores", evaluate.outputs.accuracy],
        outputs={"accuracy": float},
    )
    pipeline.step(
        "deploy",
        ["python", "deploy.py", "--model", "s3://models/nightly"],
        when="steps.report.accuracy > 0.9",
    )
    pipeline.exit_step("notify", ["python", "notify.py", "--run", {"run": "id"}], on="failure")
