# Two commands matter: `make up` runs Concertina here, `make test` checks everything.
# Each sets up what it needs first (scripts/installer) and skips what has not changed.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON := .venv/bin/python
# The recipes replace their shell, so Ctrl-C and signals reach what runs.
SETUP := @exec sh scripts/bootstrap.sh

.PHONY: help up test bench bench-engine bench-trainer setup lint format migrations openapi locks clean demo-reset

help: ## Show this help
	@echo "Concertina: elastic training jobs on shared accelerator clusters"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "ARGS passes options on: make up ARGS=--no-demo, make test ARGS='-k accounting'."
	@echo "CONCERTINA_PORT, CONCERTINA_SANDBOX_PORT and CONCERTINA_REDIS_PORT choose other ports."

up: ## Set up and run Concertina in the foreground (Ctrl-C stops it)
	$(SETUP) up $(ARGS)

test: ## Set up and run every check and test
	$(SETUP) test $(ARGS)

bench: ## Measure the whole chain; figures go to .run/bench/chain.json
	$(SETUP) bench $(ARGS)

bench-engine: ## Measure the planner and simulate public traces; .run/bench/engine.json
	$(SETUP) bench-engine $(ARGS)

bench-trainer: ## Measure faults and resizes against torchrun and torchft; .run/bench/trainer.json
	$(SETUP) bench-trainer $(ARGS)

setup: ## Set up with the test tools, and run nothing
	$(SETUP) setup

lint: ## Linters, types, import rules, generated files: what `make test` does before the tests
	$(SETUP) lint

format: ## Format Python and the front end
	$(PYTHON) -m ruff check --fix --quiet .
	$(PYTHON) -m ruff format .
	cd frontend && npm run --silent format

migrations: ## Write the migrations that the models need
	$(PYTHON) manage.py makemigrations

openapi: ## Write docs/openapi.yaml and the dashboard's types from it
	$(PYTHON) manage.py spectacular --file docs/openapi.yaml --validate
	cd frontend && npm run --silent generate

locks: ## Lock the requirement files anew
	requirements/compile.sh

demo-reset: ## Forget all state of `make up` (.run/), so that the demo begins anew
	@exec $(PYTHON) -m controlplane.supervisor.reset $(ARGS)

clean: ## Remove what was built and installed; the state in .run/ stays
	rm -rf .venv .cache frontend/node_modules frontend/dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
