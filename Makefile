# Everything runs in .venv, which is made the first time with the versions of requirements.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
JOBS ?= 2
WHICH ?= not nightly
SEEDS ?= 1000
SEED ?=
PATHS ?=
COUNT ?=

.DEFAULT_GOAL := help
.PHONY: help demo sample test simulate mutants check lint types imports format site bench sbom dist version lock clean

help:  ## Print the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.ready  ## Run the main job: a real feed, four hosts, one killed, tables on Spark, and a proof.
	$(BIN)/python -m samples.flights $(ARGS)

sample: $(VENV)/.ready  ## Run two hosts with ownership in Redis and checkpoints in Blob, on servers started here.
	PATH="$(CURDIR)/.venv/azurite/node_modules/.bin:$$PATH" $(BIN)/python -m samples.redis_and_blob $(ARGS)

test: $(VENV)/.ready  ## Run the tests of each change, JOBS of them at once; WHICH=nightly: the others.
	$(BIN)/pytest -q -n $(JOBS) --dist=loadgroup -m "$(WHICH)" \
		$(if $(filter nightly,$(firstword $(WHICH))),--timeout=3600) \
		--junitxml=build/tests.xml --durations=10 --durations-min=1 $(ARGS)

check: lint types imports test  ## Lint, types, imports and tests; .ci/run runs all that CI does.

lint: $(VENV)/.ready  ## Check style and format (ruff), and the workflows (zizmor).
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/zizmor --offline --quiet .github

types: $(VENV)/.ready  ## Check types (mypy, strict).
	$(BIN)/mypy

imports: $(VENV)/.ready  ## Check who imports whom (import-linter).
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.ready  ## Format, and apply safe fixes.
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format -q .

site: $(VENV)/.ready  ## Build the documentation site into build/site; any link that leads nowhere fails.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

simulate: $(VENV)/.ready  ## Simulate fleets: SEEDS of them, or the one of SEED.
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

mutants: $(VENV)/.ready  ## Break the code on purpose, by the list or COUNT times in PATHS; the tests must fail.
	$(BIN)/python -m tests.mutants $(PATHS) $(if $(SEED),--seed=$(SEED)) $(if $(COUNT),--count=$(COUNT)) $(ARGS)

bench: $(VENV)/.ready  ## Measure; `make bench ARGS=failover` runs one.
	$(BIN)/python -m benchmarks $(ARGS)

sbom: $(VENV)/.ready  ## Write the image's bill of materials (CycloneDX) into build/.
	$(BIN)/python -m tests.support.image build/image
	cp build/image/opt/changefeed/sbom.cdx.json build/

dist: $(VENV)/.ready  ## Build wheels and sdists, check their metadata, install them and try them.
	rm -rf dist
	$(BIN)/hatchling build -d dist
	cd emulator && ../$(BIN)/hatchling build -d ../dist
	$(BIN)/twine check --strict dist/*
	TEST_DIST=$(CURDIR)/dist $(BIN)/pytest -q tests/acceptance/test_packaging.py \
		tests/acceptance/test_emulator_wheel.py $(ARGS)

version:  ## Write VERSION into all that repeats it.
	$(BIN)/python -m tests.support.version $(VERSION)

lock:  ## Pin the newest versions that fit pyproject.toml.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
		--no-header --all-extras --group dev pyproject.toml emulator/pyproject.toml \
		--no-emit-package cosmos-emulator -o requirements.txt

clean:  ## Remove .venv and what tools have left.
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.ready: requirements.txt pyproject.toml emulator/pyproject.toml
	@PYTHON="$(PYTHON)" sh .ci/make-venv $(VENV)
	@touch $@
