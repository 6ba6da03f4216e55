# Each target sets itself up: it needs Python 3.11, 3.12 or 3.13 and make, nothing else.
#
#   make demo        train a first policy on a shipped dataset and show what came of it
#   make test        lint and the tests, each of some seconds at most; types are checked beside the tests
#   make test-long   the tests that take longer, alone: documents that train, kills, a browser; continuous integration runs both
#   make test-all    every test, those of many minutes too
#   make lint        ruff and the strict type checker
#   make test-gpu    the tests that need a GPU, alone; without one they skip
#   make test-faults the tests that kill nodes, drivers and servers of a local cluster, alone; REPEAT=10 of them one after another
#   make gpu-bundle  build/gpu-bundle: those tests and benchmarks/gpu.py with all they need, for a machine with torch and no network
#                    (GPU_PYTHON=3.12 is that machine's Python)
#   make benchmark   benchmark-fidelity, -speed, -data and -learning, beside d3rlpy and PFRL; they take minutes to hours and write
#                    to benchmarks/results
#   make docs        the documents as a site, in build/site, with an environment of its own
#   make peer        the environment that d3rlpy, PFRL, Minari and JAX run in (or name one's interpreter in D3RAY_PEER_PYTHON)
#
#   make test INDEX=https://host/simple   a package index to look at beside pip's own
#   make test TESTS=tests/data            a part of the tests
#   make test WORKERS=0                   the tests in one process, to debug them
#   make test D3RAY_TEST_DATA=FOLDER      with recorded data of other projects, for the tests that read it

INDEX ?=
TESTS ?= tests
WORKERS ?= 2
REPEAT ?= 1
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_VENV ?= .venv-docs
PEER_VENV ?= .venv-peer
GPU_PYTHON ?= 3.12
PEER := $(if $(D3RAY_PEER_PYTHON),,$(PEER_VENV)/.installed)
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

# One thread per process: the tests run side by side, and sums in one order are the same sums everywhere.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-long lint style types test-all test-gpu gpu-bundle test-faults docs peer benchmark benchmark-fidelity benchmark-speed benchmark-data benchmark-learning clean
.DEFAULT_GOAL := test

demo: $(INSTALLED)
	$(BIN)/d3ray demo

# The type checker is one process of a minute, and tests wait now and then for a Ray to start: it goes on meanwhile.
test: style
	@$(MAKE) --no-print-directory types & types=$$!; $(PYTEST) $(TESTS); tests=$$?; wait $$types && exit $$tests

test-long: $(INSTALLED)
	$(PYTEST) -m "long and not slow" $(TESTS)

lint: style types

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	mkdir -p .venv/types && ln -sfn ../.. .venv/types/d3ray  # what imports it by its name finds it there
	$(BIN)/basedpyright --pythonpath $(BIN)/python

test-all: lint
	$(PYTEST) -m "" $(TESTS)

test-gpu: $(INSTALLED)
	$(BIN)/python -m pytest -m gpu $(TESTS)

gpu-bundle: $(INSTALLED)
	$(BIN)/python benchmarks/gpu_bundle.py --python $(GPU_PYTHON) $(if $(INDEX),--index $(INDEX))

test-faults: $(INSTALLED)
	@for round in $$(seq $(REPEAT)); do \
	    echo "round $$round of $(REPEAT)" && $(BIN)/python -m pytest -m "" tests/faults || exit 1; \
	done

docs: $(DOCS_VENV)/.installed
	$(DOCS_VENV)/bin/python docs/site/build.py

peer: $(PEER)

benchmark: benchmark-fidelity benchmark-speed benchmark-data benchmark-learning

benchmark-fidelity: $(INSTALLED) $(PEER)
	$(BIN)/python benchmarks/fidelity.py

benchmark-speed: $(INSTALLED) $(PEER)
	$(BIN)/python benchmarks/speed.py

benchmark-data: $(INSTALLED) $(PEER)
	$(BIN)/python benchmarks/data.py

benchmark-learning: $(INSTALLED) $(PEER)
	$(BIN)/python benchmarks/learning.py

# The site is built without d3ray being installed: the extra's packages are all it takes.
$(DOCS_VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet -c constraints.txt $(if $(INDEX),--extra-index-url $(INDEX)) \
	    $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	touch $@

# d3rlpy asks for an older gymnasium than ours, so it has a place of its own, and PFRL gets on with it there (it imports packaging,
# which it does not ask for); torch and NumPy are the ones that we run with.
$(PEER_VENV)/.installed: $(INSTALLED)
	$(BIN)/python -m venv $(PEER_VENV)
	$(PEER_VENV)/bin/python -m pip install --quiet $(if $(INDEX),--extra-index-url $(INDEX)) \
	    $$(grep -E '^(torch|numpy|h5py|pyarrow|pillow|mujoco|imageio)==' constraints.txt) d3rlpy==2.8.1 pfrl==0.4.0 packaging \
	    'minari[arrow,hdf5]==0.5.4' jax==0.10.2 optax==0.2.8
	touch $@

clean:
	rm -rf $(VENV) $(DOCS_VENV) $(PEER_VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@for python in python3.11 python3.12 python3.13 python3 python; do \
	    if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	        echo "$$python -m venv $(VENV)" && exec $$python -m venv $(VENV); \
	    fi; \
	done; \
	echo "d3ray needs Python 3.11, 3.12 or 3.13, and python3 is none of them; install one (Debian: python3-venv) and try again." >&2; \
	exit 1

# The stamp stands for an installation that is as pyproject.toml and constraints.txt say.
$(INSTALLED): $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt $(if $(INDEX),--extra-index-url $(INDEX)) -e '.[test]'
	touch $@
