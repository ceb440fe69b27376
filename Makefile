# Every target sets up what it needs first; `make` alone lists them.
#
#   make demo                            from a fresh clone to a verified answer
#   make test ARGS="tests/kernels -x"    arguments for pytest
#   make setup PYTHON=/path/to/python3   another interpreter (3.10 to 3.13)

SHELL := bash
PYTHON ?=
ARGS ?=
BIN := .venv/bin
# The set-up notes there a Java that Spark would not find by itself.
RUN := . .venv/setup.env &&
PYTEST := $(RUN) $(BIN)/python -m pytest -n 2 --dist worksteal --durations 10

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all world bench-world check lint types rules docs site bench bench-peers clean
.NOTPARALLEL:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: ## install all that the other targets need into .venv (they do it themselves; PYTHON=... chooses the interpreter)
	@PYTHON="$(PYTHON)" tools/setup.sh

demo: setup ## join two streams on local Spark and verify the answer against a batch join
	@$(RUN) $(BIN)/braid demo $(ARGS)

test: setup ## run the quick tests, a few examples each (ARGS="tests/kernels -k name" for some of them)
	@$(PYTEST) $(ARGS)

test-all: setup ## run the slow tests as well, and more examples of all (ARGS="-m acceptance" for those of hours)
	@$(PYTEST) --slow $(ARGS)

# The cluster's tests come after the others, alone: they have time-outs. 5: what ARGS asks for is in the other half.
WORLD := $(RUN) $(BIN)/python -m pytest --world --durations 10 -rs

world: setup ## run the tests against real servers, then on a cluster whose parts die (fetches and starts what they need)
	@tools/world.sh
	@$(WORLD) tests/world --ignore tests/world/test_cluster.py -n 2 --dist loadfile $(ARGS) || [ $$? = 5 ]
	@$(WORLD) tests/world/test_cluster.py -n 0 -o faulthandler_timeout=1200 $(ARGS) || [ $$? = 5 ]

bench-world: setup ## rows a second from a Kafka topic with 12 partitions, beside the same rows from Parquet files
	@tools/world.sh
	@$(RUN) $(BIN)/python -m tests.world.bench $(ARGS)

check: ## ruff, mypy, the rules of the repository, the documentation's site and code blocks, examples (all of them, even if one fails)
	@$(MAKE) --no-print-directory --keep-going lint types rules docs

lint: setup ; $(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup ; $(BIN)/mypy && $(BIN)/mypy tools

rules: setup ; $(BIN)/python -m tools.rules

docs: setup ; $(BIN)/python -m tools.site && $(RUN) $(BIN)/python -m tools.docs

site: setup ## build the documentation's site into build/site
	@$(BIN)/python -m tools.site

bench: setup ## measure against Spark's built-in join; the table is also in build/bench.json
	@$(RUN) $(BIN)/braid bench $(ARGS)

bench-peers: setup ## the same joins, and Nexmark's, on Flink, Pathway, Bytewax, DuckDB and Polars (fetches them into .venv-peers)
	@tools/peers.sh
	@$(RUN) $(BIN)/braid bench peers --rounds 3 --plot build/peers.png $(ARGS)

clean: ## remove what was built, but not .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find src tests tools examples -name __pycache__ -type d -prune -exec rm -rf {} +
