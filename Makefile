# The two commands: make demo, make test. Everything else is for those who work on Orca.
SHELL := /bin/sh
PY := .venv/bin/python
MANIFESTS := pyproject.toml uv.lock $(wildcard */pyproject.toml services/*/pyproject.toml deploy/*/pyproject.toml)

.PHONY: demo test check lint types imports generated generate up bench simulate chaos clean

.venv/.ready: $(MANIFESTS) scripts/environment.sh
	@scripts/environment.sh

demo: .venv/.ready  ## run the whole path once on this machine and show the bill
	@$(PY) -m orca_embedded.demo

test: .venv/.ready  ## run every test
	$(PY) -m pytest $(ARGS)

check: lint types imports generated  ## what CI checks besides the tests

lint: .venv/.ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/.ready
	.venv/bin/mypy

imports: .venv/.ready
	.venv/bin/lint-imports

generated: .venv/.ready
	$(PY) -m orca_schemas.generate --check
	$(PY) scripts/env_example.py --check

generate: .venv/.ready  ## write the generated files anew
	$(PY) -m orca_schemas.generate
	$(PY) scripts/env_example.py

up: .venv/.ready  ## run the embedded stack in the foreground
	.venv/bin/orca up

SEEDS ?= 200
simulate: .venv/.ready  ## run the deterministic simulation: make simulate SEEDS=1000
	$(PY) -m tests.simulation --seeds $(SEEDS)

chaos: .venv/.ready  ## the long chaos run on the real stack
	$(PY) -m pytest tests/chaos --long -q

BENCHES := submit_to_placed log takeover
bench: .venv/.ready  ## every benchmark, one JSON object each
	for bench in $(BENCHES); do $(PY) bench/$$bench.py --json || exit 1; done

clean:
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache
