# Everything runs in .venv, which `make setup` makes. No target needs root, Docker, Node or a cluster.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup run quick test attacks versions lint docs agent bench chaos storm long crash soak clean

setup: $(VENV)/.installed

# What running Rota needs, which takes seconds. The tools of its tests come with `make test`.
$(VENV)/.runs: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Rota needs Python 3.11 or newer; say make PYTHON=... run")'
	@echo "Setting Rota up in $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed: $(VENV)/.runs
	@echo "Installing the tools of the tests in $(VENV), which takes a minute or two …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

run: $(VENV)/.runs
	@$(BIN)/python examples/demo

# What needs no process, no socket and no disk beyond a temporary folder: in memory, on a clock that jumps.
quick: setup
	$(BIN)/python -m pytest -m quick -n 2 -q

# Most tests wait for processes of their own: three at a time take two processors little more than half as long as one.
# Bytecode beforehand: boxes cannot write it, and servers may not, and compile what they import each time.
test: setup
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# What attackers tried, as whoever you are; and as root also as an ordinary user. `make test` has the first of it.
attacks: setup
	.ci/attacks

# The whole suite on the lowest and on the highest supported Python of this machine, a smoke test on those between.
versions:
	.ci/versions --whole

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	$(BIN)/python docs/generate.py

# The static agent, which will run commands in pods. Nothing else needs a C compiler.
agent:
	$(MAKE) -C agent

bench: setup
	$(BIN)/python -m bench.store --quick
	$(BIN)/python -m bench.fields --quick
	$(BIN)/python -m bench.objects --quick
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m bench.engine --quick
	$(BIN)/python -m bench.queue --quick
	$(BIN)/python -m bench.instances --quick
	$(BIN)/python -m bench.tasks --quick
	$(BIN)/python -m bench.claims --quick
	$(BIN)/python -m bench.functions --quick
	$(BIN)/python -m bench.schedules --quick
	$(BIN)/python -m bench.testing --quick

# Operators, pools, tasks and cells of which everything is killed again and again; .ci/run has a short form of it.
chaos: setup
	ROTA_HAND_OVERS=50 $(BIN)/python -m pytest tests/operators/test_hand_over.py
	ROTA_TURNS=60 $(BIN)/python -m pytest -rP tests/operators/test_turns.py
	ROTA_POOL_KILLS=200 $(BIN)/python -m pytest -rP tests/control/running/test_chaos.py
	ROTA_TASK_KILLS=200 $(BIN)/python -m pytest -rP tests/tasks/test_chaos.py
	ROTA_FLEET_FAULTS=50 $(BIN)/python -m pytest -rP tests/local/test_fleet.py
	ROTA_CLAIM_KILLS=100 ROTA_CLAIM_CLIENTS=64 $(BIN)/python -m pytest -rP tests/claims/test_chaos.py

# A hub and its cells in memory, under faults that are drawn, and with many cells; the suite has a short form of both.
storm: setup
	ROTA_LONG=1 $(BIN)/python -m pytest -n 2 tests/control/cells/test_storm.py tests/control/cells/test_scale.py

# The suite with what takes too long for every change, and with what is drawn by chance drawn anew.
long: setup
	ROTA_LONG=1 ROTA_FUZZ=all $(BIN)/python -m pytest -n 2 --dist loadfile

crash: setup
	$(BIN)/python -m bench.crash --kills 2000

# A server under calls, tasks, claims, ticks, deploys, watches and restarts: nothing that it keeps may grow for ever.
# The suite has two minutes of it.
MINUTES ?= 10
soak: setup
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --json soak.json

clean:
	$(MAKE) -C agent clean
	rm -rf $(VENV) $(VENV)-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist soak.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
