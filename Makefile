# Every target does all its set-up: `make demo` and `make test` are the only commands a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow test-all lint types fmt tiny audited seeds picture screens fuzz poisoning clean bench-peers

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "waggledance needs Python 3.11 or newer; name one: make PYTHON=python3.12 demo")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)  ## language models alone and together, on this machine, in three minutes
	$(BIN)/waggle demo --page

test: $(READY)  ## the quick tests
	$(BIN)/python -m pytest

test-slow: $(READY)  ## the slow tests alone
	$(BIN)/python -m pytest -m slow

test-all: $(READY)  ## all tests, the slow ones too
	$(BIN)/python -m pytest -m 'slow or not slow'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright

fmt: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

audited: $(READY)  ## audits every task source again, for the table that ships
	$(BIN)/waggle audit --all --json | $(BIN)/python -m json.tool > src/waggledance/tasks/audited.json.new
	mv src/waggledance/tasks/audited.json.new src/waggledance/tasks/audited.json

tiny: $(READY)  ## makes the shipped tiny model again
	$(BIN)/python scripts/make_tiny_model.py

seeds: $(READY)  ## the demo on ten seeds, for the table in dev/LOG.md
	$(BIN)/python scripts/demo_seeds.py

bench-peers: $(READY)  ## the reference round beside TRL and gensyn-genrl; builds what it needs, 20 minutes
	$(BIN)/python benchmarks/peers/run.py

picture: $(READY)  ## the picture in the README
	rm -rf runs/picture
	$(BIN)/waggle demo --seed 1 --dir runs/picture
	cp runs/picture/curves.png docs/demo.png

screens: $(READY)  ## the pictures of terminal and page (needs Chromium)
	rm -rf runs/eight-models
	$(BIN)/waggle demo --seed 1 --dir runs/eight-models
	$(BIN)/python scripts/screens.py runs/eight-models

fuzz: $(READY)  ## a million messages at every door, guided by coverage, in an environment of its own
	test -x .venv-fuzz/bin/python || $(PYTHON) -m venv .venv-fuzz
	.venv-fuzz/bin/python -m pip install --quiet --constraint constraints.txt atheris msgspec cryptography
	.venv-fuzz/bin/python tests/fuzz.py -runs=1000000 -max_len=2048

poisoning: $(READY)  ## a planted habit in a swarm, without the gate and with it
	$(BIN)/python scripts/poisoning.py

clean:
	rm -rf .venv .venv-fuzz .pytest_cache .ruff_cache .hypothesis build dist
