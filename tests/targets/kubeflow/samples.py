"""Pipelines that use what the hand-written twins cannot: kfp.dsl has no way to write them."""

from __future__ import annotations

CLAIMS = """
name: with-claims
defaults: {image: "registry.example.com/work:1"}
params: {rows: 5}
claims:
  scratch: {size: 10Gi, storage_class: fast, access: ReadWriteMany}
  cache: {size: 1Gi, storage_class: slow}
steps:
  fill: {command: [fill, {param: rows}], volumes: {/scratch: {new_claim: scratch}}}
  sort:
    command: [sort]
    volumes:
      /tmp/sort: {ephemeral: {size: 50Gi, storage_class: fast, labels: {for: sorting}}}
      /tmp/rest: {ephemeral: {size: 1Gi, access: ReadWriteOncePod, annotations: {a/b: c}}}
  use:
    needs: [fill]
    command: [use, {item: part}]
    for_each: {part: [1, 2]}
    volumes: {/scratch: {new_claim: scratch, sub_path: parts}, /cache: {new_claim: cache}}
exit:
  keep: {command: [keep], volumes: {/scratch: {new_claim: scratch}}}
  tell: {command: [tell], on: failure}
"""

CROSSED = """
name: crossed
defaults: {image: "registry.example.com/work:1"}
params: {models: {type: json, default: [small, large]}, limit: 3}
steps:
  cell:
    command: [cell, {item: model}, {item: fold}]
    for_each: {model: {param: models}, fold: {range: {start: 1, stop: 4}}}
    parallel: 2
    when: item.fold > 1 and item.model != 'huge'
  pair:
    command: [pair, {item: left}, {item: right}]
    for_each: {left: [1, 2], right: [a, b]}
    when: item.left == 1 or params.limit in [3, 4]
"""

LOGIC = """
name: logic
defaults: {image: "registry.example.com/work:1"}
params: {region: eu, count: 4, rate: {type: float, default: 0.5}, deploy: true}
steps:
  judge: {command: [judge], outputs: {score: float, best: int, good: bool}}
  ship:
    command: [ship]
    when: >-
      (steps.judge.score >= 0.9 or steps.judge.best > 3)
      and not (params.region in ['us', "o'er"]) and steps.judge.good
  after-ship: {command: [after], needs: [ship]}
  compare:
    command: [compare]
    when: params.count > 2.5 and params.rate < 1 and params.region not in ['ap']
"""

SUBS = """
name: subs
defaults: {image: "registry.example.com/work:1"}
params: {sizes: {type: json, default: [1, 2]}}
steps:
  plan: {command: [plan], outputs: {options: json, note: json}}
  read: {command: [read, {output: plan.note}]}
  each:
    for_each: {size: {param: sizes}}
    parallel: 1
    pipeline:
      name: inside
      defaults: {image: "registry.example.com/work:1"}
      params: {size: {type: int}, files: {type: json, default: [x]}, options: {type: json}}
      steps:
        make: {command: [make, {param: size}, {param: options}], outputs: {total: int}}
        read: {command: [read, {item: file}], for_each: {file: {param: files}}}
      outputs: {total: {output: make.total}}
    params: {size: {item: size}, files: [p, q], options: {output: plan.options}}
  sum: {command: [sum, {output: each.total}]}
"""

WORDS = """
name: words
defaults: {image: "registry.example.com/work:1"}
params: {user: me}
steps:
  say:
    command: [say, "{{workflow.name}}", "{{=sprig.env('HOME')}}", "a { b", "$(HOME) $$ ${X}"]
    args: [{join: ["{", {param: user}, "}"]}]
    env:
      PLAIN: "{{ x }} {{$.inputs}}"
      WHO: {join: ["user=", {param: user}]}
    working_dir: /srv/app
  write:
    script:
      run: |
        import json
        print(json.dumps({"a": {"b": {}}}), "{{not a template}}")
      interpreter: [python3]
"""

ARTIFACTS = """
name: artifacts
defaults: {image: "registry.example.com/work:1"}
params: {bucket: models}
steps:
  train:
    command: [train]
    outputs:
      model: {type: file, path: /out/model.pt, uri: {join: ["s3://", {param: bucket}, "/", {run: id}, "/model.pt"]}}
    checkpoint: {path: /checkpoints, store: {join: ["s3://", {param: bucket}]}, every: 10m}
    retry: {failures: 1}
  test: {command: [test, --model, {output: train.model}]}
"""

TIMED = """
name: timed
description: every night
schedule: {cron: "30 2 * * mon-fri", catch_up: true, suspended: true}
defaults: {image: "registry.example.com/work:1"}
params: {day: {type: string}, region: {type: string, enum: [eu, us], default: eu}}
steps:
  train: {command: [work, {param: day}], spot: allow}
"""

SAMPLES = {
    "claims": CLAIMS,
    "crossed": CROSSED,
    "logic": LOGIC,
    "subs": SUBS,
    "words": WORDS,
    "artifacts": ARTIFACTS,
    "timed": TIMED,
}
