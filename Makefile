# Everything runs in .venv, which is made the first time with the versions of requirements.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
SEEDS ?= 1000
SEED ?=

.PHONY: demo test simulate mutants check lint types imports format bench lock clean

demo: $(VENV)/.ready  ## Run the main job: a real feed, four hosts, one killed, tables on Spark, and a proof.
	$(BIN)/python -m samples.flights $(ARGS)

test: $(VENV)/.ready  ## Run every test.
	$(BIN)/pytest -q $(ARGS)

check: lint types imports test  ## What CI runs.

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

imports: $(VENV)/.ready
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.ready
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format -q .

simulate: $(VENV)/.ready  ## Live through SEEDS seeds of the fleet, or through one SEED.
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

mutants: $(VENV)/.ready  ## Break the code on purpose, and see the tests notice.
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(VENV)/.ready  ## Measure; `make bench ARGS=failover` runs one.
	$(BIN)/python -m benchmarks $(ARGS)

lock:  ## Pin the newest versions that fit pyproject.toml.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-header --all-extras --group dev pyproject.toml -o requirements.txt

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.ready: requirements.txt pyproject.toml
	@PYTHON="$(PYTHON)" sh .ci/make-venv $(VENV)
	@touch $@
