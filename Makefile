# The commands of this project. `make help` lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TYPESCRIPT := tests/clients/typescript
# the tests wait more than they compute
PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

# Debian ships venv in a package of its own; where we may, install it. The locked files
# are complete, so nothing is left to resolve: older pips would look past the pin of a
# package that another asks for with an extra.
$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Penstock needs Python 3.11 or newer; set PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3-venv; } || { echo "Install python3-venv first: apt-get install python3-venv"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(READY) ## Create the virtual environment with locked dependencies

.PHONY: demo
demo: $(READY) ## Import a practice provider with four workers, one of them killed
	@$(BIN)/penstock demo

.PHONY: services
services: $(READY) ## Find or install the servers that the tests need
	@$(BIN)/python -m tests.services

.PHONY: test
test: $(READY) services ## Run every test
	@$(BIN)/pytest --numprocesses=$(PROCESSES) --dist=worksteal

.PHONY: quick
quick: $(READY) ## Run the unit tests only
	@$(BIN)/pytest --numprocesses=auto tests/unit

.PHONY: soak
soak: $(READY) .venv-bench/.ready $(TYPESCRIPT)/node_modules/.ready services ## Run the long tests: more seeds, more kills
	@$(BIN)/pytest -m slow --timeout=3600

# Whom we are measured against has an environment of its own.
.venv-bench/.ready: requirements/bench.txt
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/bench.txt
	@touch $@

# What generates and checks a client in TypeScript, with the Node.js of that environment.
$(TYPESCRIPT)/node_modules/.ready: $(TYPESCRIPT)/package-lock.json .venv-bench/.ready
	@PATH="$(CURDIR)/.venv-bench/bin:$$PATH" npm --prefix $(TYPESCRIPT) ci --ignore-scripts --loglevel=error
	@touch $@

.PHONY: bench
bench: $(READY) .venv-bench/.ready ## Measure; ONLY="--small jobs": that one, in seconds
	@$(BIN)/python -m bench $(ONLY)

.PHONY: lint
lint: $(READY) ## Check format, lint, import rules, dead code, dependencies
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/vulture
	@$(BIN)/deptry src

.PHONY: types
types: $(READY) ## Check types
	@$(BIN)/mypy

.PHONY: format
format: $(READY) ## Format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(READY) ## Write the generated reference pages and dashboards
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m deploy.grafana.generate

.PHONY: lock
lock: ## Compile requirements/*.txt anew, with hashes and without an index
	@bash requirements/compile

.PHONY: cover
cover: $(READY) services
	@$(BIN)/pytest --numprocesses=$(PROCESSES) --dist=worksteal --cov --cov-report=term

.PHONY: check
check: lint types cover ## What CI runs: the tests with coverage
