"""Files of other tools that can be said as pipelines, with most of what can be said in them."""

from __future__ import annotations

from gpuflow.core import yaml_tree
from gpuflow.formats.documents import documents_of
from gpuflow.importing.pipelines import ImportResult, import_document
from gpuflow.readers import Library
from gpuflow.site import Site

SITE = Site.load("nvidia")

WORKFLOW = """apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata:
  name: nightly
  annotations: {workflows.argoproj.io/description: Every night}
spec:
  schedules: ["0 2 * * *"]
  timezone: Europe/Berlin
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 2
  workflowSpec:
    entrypoint: main
    onExit: tell
    parallelism: 4
    activeDeadlineSeconds: 3600
    serviceAccountName: runner
    podGC: {strategy: OnPodCompletion}
    ttlStrategy: {secondsAfterCompletion: 600}
    arguments:
      parameters:
      - {name: model-name, value: small}
      - {name: sizes, value: '["1", "2"]'}
    volumes:
    - name: data
      persistentVolumeClaim: {claimName: data}
    volumeClaimTemplates:
    - metadata: {name: scratch}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: 10Gi}}
    templates:
    - name: main
      dag:
        tasks:
        - name: Prepare
          template: prepare
          arguments: {parameters: [{name: model, value: "{{workflow.parameters.model-name}}"}]}
        - name: train
          template: train
          depends: Prepare
          arguments:
            parameters:
            - {name: rows, value: "n={{tasks.Prepare.outputs.parameters.row-count}}"}
            - {name: size, value: "{{item}}"}
          withParam: "{{workflow.parameters.sizes}}"
        - name: report
          template: report
          depends: train.Succeeded
          when: "{{tasks.Prepare.outputs.parameters.row-count}} != 0"
          arguments: {parameters: [{name: title, value: "of {{tasks.Prepare.outputs.parameters.row-count}}"}]}
        - {name: look, template: approve, depends: report}
    - name: prepare
      inputs: {parameters: [{name: model}]}
      outputs:
        parameters:
        - {name: row-count, valueFrom: {path: /tmp/rows, default: "0"}}
      script:
        image: python:3.12
        command: [python]
        source: |
          print("{{inputs.parameters.model}}")
    - name: train
      inputs: {parameters: [{name: rows}, {name: size}]}
      metadata: {labels: {team: nlp}}
      retryStrategy: {limit: "2", retryPolicy: Always, backoff: {duration: 30s, factor: "2"}}
      activeDeadlineSeconds: 600
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      initContainers:
      - {name: fetch, image: busybox, command: [wget, "http://example/{{inputs.parameters.rows}}"]}
      sidecars:
      - {name: log, image: busybox, command: [tail, -f, /dev/null], securityContext: {runAsUser: 5}}
      container:
        image: train:1
        command: [python, train.py]
        args: ["--rows={{inputs.parameters.rows}}", "--size", "{{inputs.parameters.size}}", "$(HOME_DIR)"]
        env:
        - {name: HOME_DIR, value: /home}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        envFrom: [{configMapRef: {name: settings}}]
        resources:
          requests: {cpu: 2, memory: 4Gi}
          limits: {memory: 8Gi, nvidia.com/gpu: 1}
        volumeMounts:
        - {name: data, mountPath: /data, readOnly: true}
        - {name: scratch, mountPath: /scratch}
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 5}
        securityContext: {readOnlyRootFilesystem: true}
      podSpecPatch: '{"enableServiceLinks": false}'
    - name: report
      inputs: {parameters: [{name: title}]}
      steps:
      - - name: draw
          template: say
          arguments: {parameters: [{name: text, value: "{{inputs.parameters.title}} {{item}}"}]}
          withSequence: {start: "1", end: "3"}
      - - name: send
          template: say
          arguments: {parameters: [{name: text, value: "{{item.to}}"}]}
          withItems: [{to: a}, {to: b}]
    - name: approve
      suspend: {}
    - name: say
      inputs: {parameters: [{name: text}]}
      container: {image: busybox, command: [echo], args: ["{{inputs.parameters.text}}"]}
    - name: tell
      steps:
      - - name: cheer
          template: say
          when: "{{workflow.status}} == Succeeded"
          arguments: {parameters: [{name: text, value: ok}]}
"""

JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels: {kueue.x-k8s.io/queue-name: gpus}
spec:
  suspend: true
  completions: 4
  parallelism: 2
  completionMode: Indexed
  backoffLimit: 1
  activeDeadlineSeconds: 7200
  ttlSecondsAfterFinished: 60
  template:
    metadata:
      labels: {team: nlp}
    spec:
      restartPolicy: Never
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
      containers:
      - name: train
        image: train:1
        command: [python, train.py, "--shard", "$(JOB_COMPLETION_INDEX)"]
        resources:
          limits: {nvidia.com/gpu: 2, memory: 64Gi}
        volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes:
      - name: shm
        emptyDir: {medium: Memory}
"""

KFP = """components:
  comp-say:
    executorLabel: exec-say
    inputDefinitions:
      parameters:
        text: {parameterType: STRING}
    outputDefinitions:
      parameters:
        length: {parameterType: NUMBER_INTEGER}
  comp-loop:
    dag:
      tasks:
        again:
          cachingOptions: {}
          componentRef: {name: comp-say}
          inputs:
            parameters:
              text: {componentInputParameter: each}
          taskInfo: {name: again}
    inputDefinitions:
      parameters:
        each: {parameterType: STRING}
deploymentSpec:
  executors:
    exec-say:
      container:
        image: busybox
        command: [say, "{{$.inputs.parameters['text']}}", "{{$.outputs.parameters['length'].output_file}}"]
        resources:
          cpuLimit: 2.0
          accelerator: {type: nvidia.com/gpu, count: "1"}
pipelineInfo: {name: talk}
root:
  dag:
    tasks:
      say:
        cachingOptions: {enableCache: true}
        componentRef: {name: comp-say}
        inputs:
          parameters:
            text: {componentInputParameter: greeting}
        taskInfo: {name: say}
      loop:
        componentRef: {name: comp-loop}
        dependentTasks: [say]
        parameterIterator:
          itemInput: each
          items: {raw: '["a", "b"]'}
        taskInfo: {name: loop}
  inputDefinitions:
    parameters:
      greeting: {defaultValue: hello, parameterType: STRING}
schemaVersion: 2.1.0
sdkVersion: kfp-2.14.6
---
platforms:
  kubernetes:
    deploymentSpec:
      executors:
        exec-say:
          nodeSelector:
            labels: {nvidia.com/gpu.product: NVIDIA-L4}
          podMetadata:
            labels: {team: nlp}
"""

SAMPLES = {"workflow": WORKFLOW, "job": JOB, "kfp": KFP}


def import_text(text: str, file: str = "x.yaml") -> ImportResult:
    """The first object of a text, imported."""
    return import_trees(yaml_tree.parse_all(text, file), file)


def import_trees(trees: list[object], file: str = "x.yaml") -> ImportResult:
    """The same, of documents that are parsed."""
    documents = documents_of(trees, file)
    return import_document(documents[0], Library(tuple(documents)), SITE)
