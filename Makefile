# medevac: every command a developer needs. `make` alone lists them.
# Needs Python >= 3.11 (with venv) and make; everything else comes locked into .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?=
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)
BIN := .venv/bin
READY := .venv/.ready
RUN := $(BIN)/python -m
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header

# What pytest is given, by cost. Two files at a time everywhere: most of what isn't computed is waited for.
TWO := -n 2 --dist loadfile
FAST := tests/unit tests/contracts
FULL := tests/workflow tests/replay tests/integration tests/deploy --ignore=tests/integration/kubernetes
LAST := tests/acceptance
# Against a real API server: `make test-kubernetes`. Most of it waits, so two control planes go beside each other.
REAL := $(if $(KUBECONFIG),,-n 2 --dist loadfile) tests/integration/kubernetes

# What people see and command by; `make test` runs it too.
PEOPLE := tests/integration/console tests/integration/slack tests/integration/paging tests/acceptance/test_campaigns.py \
	tests/acceptance/test_stop.py

# AGAIN=1 (set by .ci/run): what failed is asked once more, by itself; both answers are printed, and the last one counts.
# A fault fails twice; a test that a busy machine broke is seen, and passes. `make test` by itself takes the first answer.
define pytest
	@$(RUN) pytest $(1) || { status=$$?; [ "$(AGAIN)" = 1 ] && [ $$status = 1 ] || exit $$status; \
	    printf '\n\033[1m== UNSTEADY, if it passes now\033[0m\n'; \
	    $(RUN) pytest --last-failed --last-failed-no-failures none --maxfail 5 $(filter-out $(TWO),$(1)); }
endef

heading = @printf '\n\033[1m== %s\033[0m\n' "$(1)"

.PHONY: help
help:  ## Lists these commands
	@awk -F ':.*## ' '/^[a-z.-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo DEMO_SEED=7   other nodes, order and failures"
	@echo "  make demo DEMO_KILL=1   kill -9 the worker in mid-drain and watch it resume"
	@echo "  make demo DEMO_EXIT=1   end by itself, with the status a separate process derived"

.PHONY: setup
setup: $(READY)  ## Makes .venv from requirements.lock (every download checked against its hash)
	@$(BIN)/python -c '' 2>/dev/null || { rm -f $(READY); $(MAKE) --no-print-directory $(READY); }

$(READY): requirements.lock pyproject.toml
	@set -e; \
	fit='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
	if ! $(BIN)/python -c "$$fit" 2>/dev/null; then \
	    for candidate in $(PYTHONS); do \
	        if "$$candidate" -c "$$fit" 2>/dev/null; then python="$$candidate"; break; fi; \
	    done; \
	    if [ -z "$${python:-}" ]; then \
	        echo "medevac needs Python 3.11 or newer with its venv module; tried: $(PYTHONS)." >&2; \
	        echo "Install one (Debian and Ubuntu: apt-get install python3 python3-venv) or name it: make setup PYTHON=/path/to/python3.12" >&2; \
	        exit 1; \
	    fi; \
	    "$$python" -m venv --clear .venv; \
	fi; \
	echo "Installing locked dependencies into .venv (about a minute the first time) ..."; \
	$(RUN) pip install --quiet --no-input --disable-pip-version-check --require-hashes -r requirements.lock; \
	$(RUN) pip install --quiet --no-input --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	touch $(READY)

.PHONY: demo
demo: setup  ## Starts the embedded stack with a simulated fleet and heals three real faults, live
	@exec $(BIN)/medevac up --demo

.PHONY: test
test: static  ## Everything that needs no optional service; stops at the first failure
	$(call heading,unit and contract tests)
	$(call pytest,$(TWO) $(FAST))
	$(call heading,workflow - replay - integration - deployment tests)
	$(call pytest,$(TWO) $(FULL))
	$(call heading,acceptance tests)
	$(call pytest,$(TWO) $(LAST))

.PHONY: control-plane
control-plane: setup  ## Builds a Kubernetes control plane into the user's cache, once, for the tests (needs Go; 5 to 15 minutes)
	@$(RUN) tests.control_plane.build

.PHONY: test-kubernetes
test-kubernetes: $(if $(KUBECONFIG),setup,control-plane)  ## The cluster adapter on a real API server (KUBECONFIG=FILE takes a test cluster of yours)
	$(call heading,kubernetes tests)
	$(call pytest,$(REAL))

.PHONY: test-kills
test-kills: setup control-plane  ## Gateways, consumer and watcher killed in mid-delivery, 200 times over all; nothing lost, nothing doubled
	$(call heading,kills of what listens)
	@MEDEVAC_KILLS=44 $(RUN) pytest tests/integration/intake/test_killed.py
	@MEDEVAC_KILLS=70 $(RUN) pytest tests/integration/kubernetes/test_watcher_killed.py -k killed_watcher

.PHONY: test-providers
test-providers: setup  ## Every machine provider through the whole contract, and workers killed around each call (KILLS=100)
	$(call heading,provider contract)
	@$(RUN) pytest -n 2 --dist loadfile tests/contracts/test_simulated.py tests/providers -k "not Cluster and not Chat and not Checks and not Tickets"
	$(call heading,providers and kills)
	@PROVIDER_KILLS=$(or $(KILLS),100) $(RUN) pytest -n 2 tests/integration/providers
	$(call heading,machines that never boot)
	@MEDEVAC_REPLACED=50 $(RUN) pytest tests/acceptance/test_never_boots.py
	$(call heading,managed by Kubernetes - skipped without a control plane)
	@$(RUN) pytest tests/integration/kubernetes/test_managed.py

.PHONY: test-people
test-people: setup  ## What people command by: the console in a real browser (Debian: chromium), Slack, 10,000 raced votes (RACES=300), 5 × 20 stopped drains (in full CYCLES=100 INCIDENTS=200)
	$(call heading,people)
	@MEDEVAC_CAMPAIGNS=$(or $(CAMPAIGNS),100) $(RUN) pytest tests/unit/campaigns -s
	@MEDEVAC_RACES=$(or $(RACES),10000) STOP_CYCLES=$(or $(CYCLES),5) STOP_INCIDENTS=$(or $(INCIDENTS),20) $(RUN) pytest $(PEOPLE)

.PHONY: check
check: static  ## The quick part of `make test`: static checks, unit and contract tests
	$(call heading,unit and contract tests)
	$(call pytest,$(TWO) $(FAST))

.PHONY: static
static: setup  ## Format, lint, strict types and import contracts
	$(call heading,format)
	@$(BIN)/ruff format --check .
	$(call heading,lint)
	@$(BIN)/ruff check .
	$(call heading,strict types)
	@$(BIN)/mypy
	$(call heading,import contracts)
	@$(BIN)/lint-imports

.PHONY: format
format: setup  ## Rewrites the code as `make test` wants it
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench
bench: setup  ## Runs every benchmark that needs no Go (BENCH="name ..." for some); each prints a table and one line of JSON
	@set -e; for module in $(or $(BENCH),$(patsubst benchmarks/%.py,%,$(filter-out benchmarks/_% benchmarks/kubernetes.py,$(wildcard benchmarks/*.py)))); do \
	    printf '\n== %s\n' "$$module"; $(RUN) benchmarks.$$module; \
	done

.PHONY: bench-intake
bench-intake: setup  ## Only the intake's: events accepted per second, and one noisy node beside 20 others
	@$(RUN) benchmarks.intake

.PHONY: bench-kubernetes
bench-kubernetes: control-plane  ## Marks, drains and their API calls on a real API server (SIZES="--nodes 256 --pods 2000" for a quick one)
	@$(RUN) benchmarks.kubernetes $(SIZES)

.PHONY: bench-providers
bench-providers: setup  ## Only the providers': API calls per action, and 200 machines that reboot at once
	@$(RUN) benchmarks.providers

.PHONY: lock
lock: setup  ## Resolves pyproject.toml anew, for every platform, with hashes (LOCK="--upgrade" takes newer versions)
	@$(COMPILE) $(LOCK) --all-extras --output-file requirements.lock pyproject.toml
	@$(COMPILE) --constraints requirements.lock --extra kubernetes --extra senders --extra aws --extra redfish --extra slack --extra notify --output-file deploy/requirements.lock pyproject.toml
	@echo hatchling | $(COMPILE) --constraints requirements.lock --output-file deploy/build.lock -

.PHONY: clean
clean:  ## Removes caches and the demo's state; leaves .venv
	@rm -rf .medevac .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
