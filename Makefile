.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
# One thread each: two torch threads beside another busy process can be 50 times slower than one.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.PHONY: help lab test unit notebooks execute lint bench picture classroom

help:      ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/: *[^#]*## */: /'

# Made anew only when what is to be installed has changed.
$(READY): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -r requirements.txt
	touch $(READY)

lab: $(READY)      ## open JupyterLab on the notebooks (extra arguments: make lab ARGS="--no-browser")
	cd notebooks && ../$(BIN)/jupyter lab $(ARGS)

test: unit notebooks      ## everything that CI runs: unit tests, doctests, shape checks, notebooks

unit: $(READY)      ## unit tests, doctests and shape checks
	$(BIN)/python -m pytest -n 2 --dist loadscope

notebooks: $(READY)      ## run every notebook and compare its saved outputs
	$(BIN)/python -m pytest -o addopts= -o testpaths= -n 2 --dist loadscope \
		--nbval --nbval-current-env --nbval-cell-timeout=300 notebooks

execute: $(READY)      ## run the notebooks in place and keep the new outputs (one: NOTEBOOKS=...)
	$(BIN)/python tools/run_notebooks.py $(or $(NOTEBOOKS),notebooks/*.ipynb)

lint: $(READY)      ## ruff on code and notebooks
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

bench: $(READY)      ## speed against torch, as ratios in one run (two threads)
	OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 $(BIN)/python benchmarks/speed.py

picture: $(READY)      ## draw the README's picture again
	$(BIN)/python tools/draw_picture.py

classroom: $(READY)      ## copies for students and teachers; grades (SUBMISSIONS=folder) in build/classroom
	$(BIN)/python tools/classroom.py make
	$(if $(SUBMISSIONS),$(BIN)/python tools/classroom.py grade "$(SUBMISSIONS)" --out build/classroom/grades.csv)
