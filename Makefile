# Ferry. `make` sets up and carries the default job all the way; `make test` sets up and runs the tests; `make help` says the rest.

# Own data. Only make's own arguments count: NAME and TEST are in many an environment.
OWN := DATA VALIDATION TEST TEXT LABEL NONE_LABEL NAME
$(foreach name,$(OWN),$(if $(filter command,$(origin $(name))),,$(eval $(name) :=)))
SPACE := $(subst ,, )
# The last two parts of a path, in one word: data/my mails/train.csv makes my_mails-train.
in_one_word = $(subst $(SPACE),_,$(patsubst %/,%,$(1)))
parent = $(filter-out . ..,$(notdir $(patsubst %/,%,$(dir $(1)))))
# Empty where the path ends in no name: . or .. or /
last = $(filter-out . ..,$(basename $(filter-out . ..,$(notdir $(1)))))
last_two = $(if $(call last,$(1)),$(if $(call parent,$(1)),$(call parent,$(1))-)$(call last,$(1)),data)

CONFIG ?= $(if $(DATA),,pipeline/configs/default.toml)
RUN ?= runs/$(if $(DATA),$(call last_two,$(call in_one_word,$(DATA))),$(basename $(notdir $(CONFIG))))
VERSION ?= 1.0.0
ARTIFACTS ?= artifacts
PROVIDERS ?= cpu
PROFILE ?= cpu
PRECISIONS ?=
ORT ?= gpu
PYTHON ?=
RESTART ?=

ifeq ($(and $(filter 1,$(words $(ORT))),$(filter gpu cpu,$(ORT))),)
$(error ORT must be gpu or cpu; got '$(ORT)')
endif
ifneq ($(filter-out 1,$(RESTART)),)
$(error RESTART must be 1 or empty; got '$(RESTART)')
endif
$(foreach name,$(if $(DATA),,CONFIG) RUN VERSION ARTIFACTS PROVIDERS PROFILE,$(if $(strip $($(name))),,$(error $(name) must not be empty)))
# The shell reads these from its environment, so no quote or space in them is syntax.
export CONFIG RUN VERSION ARTIFACTS PROFILE PYTHON $(OWN)

option = $(if $($(2)),--$(1) "$$$(2)")
OWN_DATA = $(call option,data,DATA) $(call option,validation,VALIDATION) $(call option,test,TEST) $(call option,text,TEXT) $(call option,label,LABEL) $(call option,none-label,NONE_LABEL)

VENV := .venv
FERRY := $(VENV)/bin/ferry
PIP_INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
READY := $(VENV)/.ready-$(ORT)
READY_DEV := $(VENV)/.ready-$(ORT)-dev
# What ours is measured against needs other versions of shared libraries.
VENV_PEERS := .venv-bench
READY_PEERS := $(VENV_PEERS)/.ready
BENCH := build/bench

.DEFAULT_GOAL := all
.PHONY: all help setup setup-dev train export verify package test test-slow kill-test sabotage check lint baseline \
	tolerance gpu-check bench bench-quick clean
.SILENT:

all: package

help:
	echo 'make              set up, then train, export, verify and package the default job'
	echo 'make test         set up, then run the tests'
	echo
	echo 'make train        train the model that CONFIG describes           -> RUN/train'
	echo 'make export       TorchScript, ONNX and .pt2                       -> RUN/export'
	echo 'make verify       prove each equal to PyTorch                      -> RUN/verify'
	echo 'make package      one versioned folder of proven files             -> ARTIFACTS/<name>/VERSION'
	echo 'make baseline     a linear model on the same data, for comparison'
	echo 'make check        ruff, mypy --strict and the tests'
	echo 'make test-slow    the tests that take minutes: two million rows, 20,000 strings, ten kills'
	echo 'make kill-test    kill a training ten times at random, and compare its weights with an unbroken one'
	echo 'make sabotage     plant every fault in good artifacts and see each refused; 100 good ones accepted'
	echo 'make tolerance    measure what the limits of verify rest on           -> benchmarks/results/tolerance.json, .png'
	echo 'make gpu-check    prove every precision on an NVIDIA GPU and time it  -> benchmarks/results/gpu-<device>.json'
	echo 'make bench        speed on the CPU against Optimum, Hugging Face and others, all in one run'
	echo '                                                                    -> benchmarks/results/cpu.json, .md, .png'
	echo 'make bench-quick  the same in two minutes, with less of everything  -> build/bench/quick'
	echo 'make setup        only the environment, in .venv'
	echo 'make clean        remove .venv and what tests built; runs/ and artifacts/ stay'
	echo
	echo 'DATA=FILE         own data, a file or folder: CSV, TSV, JSONL, Parquet, CoNLL; without CONFIG, the settings for it'
	echo 'VALIDATION=FILE   own validation data, else a share of DATA;   TEST=FILE   likewise'
	echo 'TEXT=… LABEL=…    columns of DATA, else guessed;   NONE_LABEL=…   label of rows that fit no class'
	echo "NAME=…            name of the artifact, else the configuration's or the data's"
	echo "RESTART=1         discard an interrupted training, which make otherwise resumes"
	echo "CONFIG=FILE       configuration of the run      [$$CONFIG]"
	echo "RUN=FOLDER        folder of the run             [$$RUN]"
	echo "VERSION=X.Y.Z     version of the artifact       [$$VERSION]"
	echo "ARTIFACTS=FOLDER  where artifacts appear        [$$ARTIFACTS]"
	echo 'PROVIDERS="…"     where ONNX Runtime must run   [$(PROVIDERS)]   (cpu, cuda)'
	echo 'PROFILE=…         what the ONNX file is for      [$(PROFILE)]   (cpu, cuda, web, portable)'
	echo 'PRECISIONS="…"    ONNX files beside float32      [$(PRECISIONS)]   (fp16, int8)'
	echo 'ORT=gpu|cpu       which ONNX Runtime to install [$(ORT)]   (gpu runs on the CPU too; cpu is the small one)'
	echo 'PYTHON=FILE       a Python 3.11, 3.12 or 3.13   [found on PATH]'

setup: $(READY)
setup-dev: $(READY_DEV)

train: setup
	$(FERRY) train $(if $(CONFIG),--config "$$CONFIG") --run "$$RUN" $(OWN_DATA) $(if $(NAME),--name "$$NAME") $(if $(RESTART),--restart,--resume)

export: train
	$(FERRY) export --run "$$RUN" --profile "$$PROFILE" $(foreach precision,$(PRECISIONS),--precision '$(subst ','\'',$(precision))')

verify: export
	$(FERRY) verify --run "$$RUN" $(foreach provider,$(PROVIDERS),--provider '$(subst ','\'',$(provider))')

package: verify
	$(FERRY) package --run "$$RUN" --version "$$VERSION" --artifacts "$$ARTIFACTS"

baseline: setup-dev
	$(VENV)/bin/python -m pipeline.data.baseline $(OWN_DATA)

# Two processes, for a test runs on one thread; a file stays in one of them, for its fixtures.
test: setup-dev
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile

test-slow: setup-dev
	$(VENV)/bin/python -m pytest -m slow

kill-test: setup-dev
	$(VENV)/bin/python -m pytest -m slow tests/pipeline/test_interruption.py

sabotage: setup-dev
	$(VENV)/bin/python -m tests.sabotage

tolerance: setup
	$(VENV)/bin/python -m benchmarks.tolerance

gpu-check: setup
	$(VENV)/bin/python -m benchmarks.gpu_check

# Parts of an earlier run are not of this one.
bench: export $(READY_PEERS)
	rm -rf $(BENCH)/parts
	$(VENV)/bin/python -m benchmarks.inference --run "$$RUN"
	$(VENV)/bin/python -m benchmarks.training
	$(VENV)/bin/python -m benchmarks.report

bench-quick: setup $(READY_PEERS)
	rm -rf $(BENCH)/quick
	set --; if [ -f "$$RUN/export/export.json" ]; then set -- --run "$$RUN"; fi; \
	$(VENV)/bin/python -m benchmarks.inference --quick --parts $(BENCH)/quick/parts "$$@"
	$(VENV)/bin/python -m benchmarks.training --quick --parts $(BENCH)/quick/parts
	$(VENV)/bin/python -m benchmarks.report --parts $(BENCH)/quick/parts --results $(BENCH)/quick

lint: setup-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

check: lint test

clean:
	rm -rf $(VENV) .venv-examples $(VENV_PEERS) build *.egg-info

$(VENV)/bin/python:
	found=; \
	for python in $(if $(PYTHON),"$$PYTHON",python3 python3.13 python3.12 python3.11 python); do \
		if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Ferry needs Python 3.11, 3.12 or 3.13, and $(if $(PYTHON),$$PYTHON is none of them,none is on PATH). Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 2; \
	fi; \
	if ! "$$found" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$found can not make virtual environments. Install its venv module (Debian: apt-get install python3-venv), or name another: make PYTHON=…" >&2; exit 2; \
	fi; \
	echo "setting up $(VENV) with $$("$$found" --version); the first time takes some minutes" >&2; \
	"$$found" -m venv --clear $(VENV)

# The two ONNX Runtimes put their files in one place: the other is removed first.
$(READY): $(VENV)/bin/python pyproject.toml constraints.txt
	rm -f $(VENV)/.ready-*
	$(VENV)/bin/python -m pip uninstall --quiet --yes onnxruntime onnxruntime-gpu 2>/dev/null
	$(PIP_INSTALL) --editable '.[$(ORT)]'
	touch $@

# And the oldest runtimes that files are promised to run on.
$(READY_DEV): $(READY)
	$(PIP_INSTALL) --editable '.[$(ORT),dev]'
	$(VENV)/bin/python -m tests.oldest
	touch $@

$(READY_PEERS): $(VENV)/bin/python benchmarks/peers/requirements.txt
	echo 'setting up $(VENV_PEERS), what ours is measured against; the first time takes some minutes' >&2
	$(VENV)/bin/python -m venv --clear $(VENV_PEERS)
	$(VENV_PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
	touch $@
