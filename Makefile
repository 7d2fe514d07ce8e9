# Everything here needs Linux, Python 3.11+, pip and make; `make` alone lists the targets.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
# More than there are cores: real hubs, kernels and time-outs are mostly waited for.
JOBS ?= $(shell echo $$(($$(nproc) + 2)))
# `make test` waits less, and each process collects all of its tests for itself.
FEWER = $(if $(filter file,$(origin JOBS)),$(shell echo $$(($$(nproc) + 1))),$(JOBS))
# What a new environment depends on: a change of these installs again, nothing else does.
PINS := pyproject.toml constraints.txt tools/set_up.py
# Says of which source the JupyterLab extension's bundle is.
BUNDLE := shared-data/share/jupyter/labextensions/gpulease/source.json

# A cluster waits most of the time, so three are tested at once, or two where memory is short: each
# takes 1.5 GiB, and what is tested in it as much.
CLUSTERS ?= $(shell awk '/^MemAvailable/ {print ($$2 > 10 * 1048576 ? 3 : 2)}' /proc/meminfo)
# The other Pythons that test-pythons runs.
PYTHONS ?= 3.13 3.14
# What meets the hub, with a whole round over HTTP.
HUB55 := tests/hub tests/service/test_who_is_asking.py tests/service/test_hubapi.py tests/service/test_further_hubs.py tests/service/test_several_hubs.py tests/end_to_end/test_check.py tests/end_to_end/test_two_hubs.py

# Bytecode is kept: the suite's many processes would compile the same files anew, half the time that
# collecting takes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help quick test-pythons setup setup-system setup-cluster demo frontend test test-frontend test-processes test-site texts test-hub55 test-frameworks test-corpus test-gpu test-cluster test-nightly test-images check reference bench docs clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready-%: $(PINS)
	@$(or $(PYTHON),python3) tools/set_up.py $*

# What JupyterLab loads: copied, since the package is installed in place.
$(VENV)/.ready-lab: $(BUNDLE) tools/frontend.py | $(VENV)/.ready-demo
	@$(BIN)/python tools/frontend.py install
	@touch $@

setup: $(VENV)/.ready-check $(VENV)/.ready-lab ## make the environment .venv with everything for work on gpulease

setup-system: ## as root on Debian: install Chromium, PostgreSQL, gcc and promtool for the tests that need them
	@tools/setup-system

setup-cluster: $(VENV)/.ready-test ## as root on Debian with Go: what test-cluster needs (10 to 30 minutes once)
	@tools/setup-cluster
	@$(BIN)/python -m testcluster build

demo: $(VENV)/.ready-demo $(VENV)/.ready-lab ## start a JupyterHub with gpulease here and print its address (Ctrl-C ends it)
	@$(BIN)/gpulease demo $(ARGS)

frontend: $(VENV)/.ready-demo ## build what is bundled after a change of labextension/ or pagelibs/ (Node is fetched where there is none)
	@$(BIN)/python tools/frontend.py build
	@$(BIN)/python tools/pagelibs.py build

test-frontend: $(VENV)/.ready-test $(VENV)/.ready-lab ## build the JupyterLab extension and what else is bundled anew, and compare
	@$(BIN)/python tools/frontend.py test
	@$(BIN)/python tools/pagelibs.py test

test: $(VENV)/.ready-test $(VENV)/.ready-lab ## run the suite, but for what the others below run (ARGS="-k name" for a part)
	@$(BIN)/python -m pytest -n $(FEWER) --dist loadscope --no-loadscope-reorder --ignore tests/browser --ignore tests/frameworks \
		-m "not processes and not browser and not site and not cluster and not frameworks" $(ARGS)

test-processes: $(VENV)/.ready-test $(VENV)/.ready-lab ## test with kernels, companions and servers as processes of their own
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder \
		-m "processes and not browser and not site and not cluster and not frameworks" $(ARGS)

test-site: $(VENV)/.ready-test $(VENV)/.ready-lab ## test whole sites, hub to kernels, and pages and JupyterLab in Chromium
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --no-loadscope-reorder -m "browser or site" $(ARGS)

test-hub55: $(VENV)/.ready-test ## test what meets the hub with the oldest JupyterHub and KubeSpawner that fit
	@$(or $(PYTHON),python3) tools/set_up_hub55.py
	@.venv-hub55/bin/python -m pytest -n $(JOBS) --dist loadscope $(HUB55) $(ARGS)

test-frameworks: $(VENV)/.ready-test ## test what people make with torch and its kin (an environment of its own, kept in ~/.cache)
	@PYTHONPATH="$$($(or $(PYTHON),python3) tools/set_up_frameworks.py)" $(BIN)/python -m pytest -n 2 --dist loadscope -m frameworks tests/frameworks $(ARGS)

test-corpus: $(VENV)/.ready-test ## run the notebooks of tests/corpus plainly and placed, and compare (hours; ARGS="pandas --json FILE" for a part)
	@PYTHONPATH="$$($(or $(PYTHON),python3) tools/set_up_frameworks.py)" $(BIN)/python -m tests.corpus $(ARGS)

test-gpu: ## test what needs a real GPU and gather facts of its driver, in under 10 minutes, with the Python that has torch; as JSON
	@$(or $(PYTHON),python3) tools/test_gpu.py $(ARGS)

test-cluster: $(VENV)/.ready-test ## run the tests that need Kubernetes, on clusters of their own
	@GPULEASE_CLUSTER=$${GPULEASE_CLUSTER:-own} $(BIN)/python -m pytest -m cluster \
		-n $(if $(GPULEASE_CLUSTER),0,$(CLUSTERS)) --dist loadscope --no-loadscope-reorder $(ARGS)

test-nightly: $(VENV)/.ready-test ## run what takes long: kill -9 of every part, many repeats, full sizes, new draws (an hour or more)
	@GPULEASE_NIGHTLY=1 GPULEASE_CLUSTER=$${GPULEASE_CLUSTER:-own} \
		$(BIN)/python -m pytest -m "nightly or hypothesis" $(ARGS)

test-images: ## as root on Debian: build the images of containers/ on stand-in bases and start their programs (minutes)
	@tools/test-images

texts: $(VENV)/.ready-check ## write new texts of the service's pages into the catalogues of their languages
	@$(BIN)/python tools/texts.py update

reference: $(VENV)/.ready-check ## write the tables of docs/reference from the code
	@$(BIN)/python tools/reference.py

check: $(VENV)/.ready-check ## format, lint, types, layers, translations; the same of the JupyterLab extension, with its unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/texts.py check
	$(BIN)/python tools/frontend.py check

bench: $(VENV)/.ready-bench ## measure what the README's figures come from (minutes)
	@$(BIN)/python -m benchmarks all $(ARGS)

quick: $(VENV)/.ready-check ## check what this branch changed: format, lint, types and the tests beside it (under two minutes)
	@$(BIN)/python tools/quick.py $(ARGS)

test-pythons: $(VENV)/.ready-test ## as root on Debian: the demo, the suite and the wheel on other Pythons, and one beside this (PYTHONS="3.13")
	@tools/test-pythons $(PYTHONS)

docs: $(VENV)/.ready-docs ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean: ## remove what these targets made here
	rm -rf $(VENV) .venv-hub55 site .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
