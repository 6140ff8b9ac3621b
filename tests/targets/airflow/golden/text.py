# Made by gpuflow 0.1.0 from text.yaml sha256:8a8638f7accc62c7 for site nvidia.
# Do not edit: change the source and compile again.

# gpuflow's operators build on this module. Imported here, a DAG processor loads it once, before it forks.
import airflow.providers.cncf.kubernetes.operators.pod  # noqa: F401
from airflow.sdk import DAG

from gpuflow.airflow import GpuPodOperator, Pod

SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

with DAG(
    dag_id="text",
    description='Text that looks like a program: {{ dag }} {% raw %} "quotes"',
    schedule=None,
    catchup=False,
    doc_md=(
        'Text that looks like a program: {{ dag }} {% raw %} "quotes"\n'
        "\n"
        "Made by gpuflow from `text.yaml`. Change that file, not this DAG."
    ),
    tags=["gpuflow"],
) as dag:
    print_ = GpuPodOperator(
        task_id="print",
        doc_md="{{ not rendered }}",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "text", "gpuflow.dev/step": "print"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "echo",
                            "{{ params.x }}",
                            "{% if %}",
                            "$$(HOME) $$$$",
                            "${HOME}",
                            'it\'s "quoted"',
                            "tab\tand\nnewline",
                            "ünï ✓",
                            "\u202e reversed",
                        ],
                        "env": [{"name": "TEXT", "value": "{{ ti }} \\ $$(PATH)"}],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="text.yaml",
    )
    script = GpuPodOperator(
        task_id="script",
        namespace="ml",
        template=Pod(
            {"labels": {"gpuflow.dev/pipeline": "text", "gpuflow.dev/step": "script"}},
            spec={
                "restartPolicy": "Never",
                "securityContext": SECURITY,
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "command": [
                            "sh",
                            "-c",
                            'f=$$(mktemp) && printf %s "$0" >"$f" && exec "$@" "$f"',
                            '# {{ nothing }} here is expanded: $$(date) $$$$ "quotes"\necho done\n',
                            "sh",
                        ],
                        "securityContext": CONTAINER_SECURITY,
                    },
                ],
            },
        ),
        source="text.yaml",
    )
