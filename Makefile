# make demo    the main job on a generated campaign, into runs/demo/
# make test    the tests, but for the long studies (a quarter of an hour on two cores, half a minute more the first time)
# make test-all   all tests, long studies, Ray and PostgreSQL among them (half an hour)
# make check   format, lint, strict types, import arrows
# make docs    the pages of docs/ as a site, into site/; a warning is an error (half a minute)
# make notebooks   run the notebooks of docs/notebooks and keep what they print (a minute)
# make bench   the benchmarks (minutes to an hour; peers are installed into an environment of their own)
# make bench-frontier   one training for every budget against the exact optimum (half an hour)
# make bench-evaluation   coverage, certificate, ranking, and d3rlpy's evaluation beside ours (an hour and a half)
# make bench-claims   what is said of policies between features, against the truth (an hour)
# make bench-trust   what is certified on logs that hide something, against the truth (two hours)
# make bench-ledger   kill -9 under load, and records a second, on SQLite and PostgreSQL (half an hour)
# make bench-serve    HTTP beside a bare route, pacing over four weeks, kill -9 of real servers (an hour)
# make bench-experiment   looks, arm budgets and the speed of an analysis (half an hour)
# make pictures        pictures of all pages in runs/ into docs/images: wide, on a phone, dark, printed (needs chromium)
# make experiment      an A/B test from the plan to the verdict, behind a real server (minutes)
# make paper        every table and figure of the paper, its figures beside ours, into docs/paper.md (an hour)
# make paper-ab     its A/B test alone: BCQ with AIM-greedy against DIN with the linear program (a quarter of an hour)
# make bench-init     how often outlay init guesses the roles of columns right, over drawn logs and shapes (a quarter of an hour)
# make bench-input    2,000 mutated campaign files and logs: a result or one error, never a traceback (half an hour)
# make bench-public NEORL=PATH STARBUCKS=PATH COBS=PATH   on ground that others made (hours); without its path one is left out
# make public-logs   fifteen logs and more that others published: fetched, and from init to the verdict (an hour and a half)
# make bench-log-size   plan-log beside what evaluate then says of the log (seven minutes)
# make bench-game   the exact game on random models (minutes): tables and figures of docs/game.md

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.outlay
STAMP_ALL := .venv/.outlay-all
STAMP_DOCS := .venv/.outlay-docs

.PHONY: setup setup-all demo test test-all check format docs notebooks bench bench-claims bench-trust bench-evaluation bench-frontier bench-game bench-ledger bench-log-size bench-serve bench-experiment bench-init bench-input bench-public public-logs experiment paper paper-ab pictures clean

# What the demo and the tests need; the other targets add Ray, PostgreSQL, the type checker and the peers of some tests.
setup: $(STAMP)

setup-all: $(STAMP_ALL)

# uv takes a fifth of pip's time. Where it is not to be had, or the packages are where only pip looks, pip does it.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
INSTALL = install() { $(UV) --editable "$$1" 2>/dev/null || $(PIP) --no-compile --editable "$$1"; }; install

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "outlay needs Python 3.11 or newer; this is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	-$(PIP) uv 2>/dev/null

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[test]'
	touch $(STAMP)

$(STAMP_ALL): pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) '.[all]'
	touch $(STAMP) $(STAMP_ALL)

$(STAMP_DOCS): $(STAMP)
	$(INSTALL) '.[docs]'
	touch $(STAMP_DOCS)

docs: $(STAMP_DOCS)
	$(BIN)/mkdocs build --strict

notebooks: $(STAMP_DOCS)
	$(BIN)/python examples/notebooks.py

demo: setup
	$(BIN)/python examples/demo.py

pictures: setup
	$(BIN)/python examples/screenshots.py runs docs/images

PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder  # else files of a few long tests come last

test: setup
	$(PYTEST) -m "not slow"

# Workers of Ray wait for one another at every gradient step, so whatever runs beside them slows both down many times.
test-all: setup-all
	$(PYTEST) --ignore tests/cluster
	$(BIN)/python -m pytest tests/cluster

check: setup-all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python benchmarks/training_speed.py
	$(BIN)/python benchmarks/whole_job.py

bench-frontier: setup
	$(BIN)/python benchmarks/frontier_quality.py

bench-evaluation: setup
	$(BIN)/python benchmarks/evaluation_coverage.py
	$(BIN)/python benchmarks/evaluation_certificate.py
	$(BIN)/python benchmarks/evaluation_rare.py
	$(BIN)/python benchmarks/evaluation_ranking.py
	$(BIN)/python benchmarks/evaluation_peers.py

bench-trust: setup
	$(BIN)/python benchmarks/trust.py
	$(BIN)/python benchmarks/prepare_past.py

bench-claims: setup
	$(BIN)/python benchmarks/rich_claims.py

bench-ledger: setup-all
	$(BIN)/python benchmarks/ledger_crash.py
	$(BIN)/python benchmarks/ledger_speed.py

bench-serve: setup-all
	$(BIN)/python benchmarks/serve_speed.py --postgres
	$(BIN)/python benchmarks/serve_past.py --postgres
	$(BIN)/python benchmarks/pacing.py
	$(BIN)/python benchmarks/serve_crash.py

bench-experiment: setup
	$(BIN)/python benchmarks/experiment_budgets.py
	$(BIN)/python benchmarks/experiment_speed.py
	$(BIN)/python benchmarks/experiment_dependence.py
	$(BIN)/python benchmarks/experiment_looks.py

public-logs: setup
	$(BIN)/python examples/public_logs.py get
	$(BIN)/python examples/public_logs.py run

experiment: setup
	$(BIN)/python examples/experiment.py

paper: setup
	$(BIN)/python benchmarks/paper.py

paper-ab: setup
	$(BIN)/python examples/paper_ab.py

bench-init: setup
	$(BIN)/python benchmarks/init_roles.py

bench-input: setup
	$(BIN)/python benchmarks/mutated_input.py

bench-log-size: setup
	$(BIN)/python benchmarks/log_size.py

bench-game: setup
	$(BIN)/python benchmarks/random_games.py

# Paths of copies of the repositories that public_neorl.py, public_starbucks.py and public_cobs.py name; without one, the
# script is left out. Peers, and the data of OBP's wheel, come with the environment of the peers.
NEORL ?=
STARBUCKS ?=
COBS ?=

bench-public: setup
	$(if $(NEORL),$(BIN)/python benchmarks/public_neorl.py $(NEORL) --seeds 1 2 3,@echo 'NeoRL is left out: NEORL=PATH')
	$(if $(STARBUCKS),$(BIN)/python benchmarks/public_starbucks.py $(STARBUCKS),@echo 'Starbucks is left out: STARBUCKS=PATH')
	$(BIN)/python benchmarks/public_obp.py synthetic
	$(BIN)/python benchmarks/public_obp.py open-bandit --seeds 0 1 2 3 4 5 6 7 8 9
	$(if $(COBS),$(BIN)/python benchmarks/public_cobs.py $(COBS),@echo 'COBS is left out: COBS=PATH')
	$(BIN)/python benchmarks/public_worlds.py --worlds shop --users 20000
	$(BIN)/python benchmarks/public_worlds.py --worlds mild slow --users 50000 --seeds 1 2

clean:
	rm -rf .venv runs dist site
