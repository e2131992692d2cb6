# One command for each question; `make help` lists them. Every target sets up what it needs first:
# deploy/local/setup.sh costs nothing when there is nothing to do.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.SUFFIXES:

# The caller's Python settings must not reach our environments.
unexport PYTHONPATH PYTHONHOME

SETUP := deploy/local/setup.sh
BIN := .state/venv/bin
PYTHON_FILES := python tests deploy images nix

# make chat: UPSTREAM=http://host:8080 for a server of your own, MODEL=file.gguf for another
# model, SESSION=id to go on with one, SAY='…' for one message instead of a conversation, ARGS for any option of chat.py.
# MATTERMOST=https://chat.example.org, MATTERMOST_USERS=id,id and MATTERMOST_TOKEN=file: in Mattermost too, while it runs;
# MATTERMOST_CHANNELS=id,id and MATTERMOST_CA=file where they are needed.
CHAT := $(if $(UPSTREAM),--upstream="$$UPSTREAM") $(if $(MODEL),--model="$$MODEL") $(if $(SAY),--say="$$SAY") \
    $(if $(SESSION),--session="$$SESSION") $(if $(MATTERMOST),--mattermost="$$MATTERMOST") \
    $(if $(MATTERMOST_USERS),--mattermost-users="$$MATTERMOST_USERS") \
    $(if $(MATTERMOST_TOKEN),--mattermost-token="$$MATTERMOST_TOKEN") \
    $(if $(MATTERMOST_CHANNELS),--mattermost-channels="$$MATTERMOST_CHANNELS") \
    $(if $(MATTERMOST_CA),--mattermost-ca="$$MATTERMOST_CA") $(ARGS)
export UPSTREAM MODEL SAY SESSION MATTERMOST MATTERMOST_USERS MATTERMOST_TOKEN MATTERMOST_CHANNELS MATTERMOST_CA

# make test: TESTS=tests/unit/bxcore or any other argument of pytest. Without it two processes share what needs no process
# of its own, then what starts a gateway and all around it; the rest, containers above all, has the machine to itself.
SHARED_TESTS := tests/nix tests/property tests/structure tests/unit
PAIRED_TESTS := tests/contract/gateway tests/contract/mattermost $(sort $(wildcard tests/process/test_gatewayd*.py))
SINGLE_TESTS := tests/container tests/contract tests/process
PYTEST := $(BIN)/python -m pytest -q

# Tools that only the maintainer of the lock runs; not in the lock, since they would weigh on it.
POETRY := poetry==2.5.1 poetry-plugin-pypi-mirror==0.6.5
PIP_AUDIT := pip-audit==2.10.1

.PHONY: help chat appliance demo test gate checks bench fmt golden generate lock audit clean-tools clean-appliance
.PHONY: verify-model verify-mattermost verify-honcho verify-device

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

chat: ## does it run? talk with a real model (UPSTREAM=, MODEL=, SESSION=, SAY=, MATTERMOST=)
	@$(SETUP) $(if $(UPSTREAM),,model) $(if $(filter --no-tools,$(ARGS)),,'podman?')
	@exec $(BIN)/python deploy/local/chat.py $(CHAT)

appliance: ## does it run as on the appliance? each role in its container as its own user (as make chat)
	@$(SETUP) $(if $(UPSTREAM),,model) appliance
	@exec $(BIN)/python deploy/appliance/start.py $(CHAT)

demo: ## what does it do for me? a short story through real containers, with a scripted model
	@$(SETUP) podman
	@exec $(BIN)/python deploy/local/demo.py

test: ## is it right? everything that can run here
	@$(SETUP) model appliance node
ifdef TESTS
	@exec $(PYTEST) $(TESTS)
else
	@$(PYTEST) -n 2 --dist worksteal $(SHARED_TESTS)
	@$(PYTEST) -n 2 --dist worksteal $(PAIRED_TESTS)
	@exec $(PYTEST) $(SINGLE_TESTS) $(addprefix --ignore=,$(PAIRED_TESTS))
endif

gate: checks test ## may it land? checks, then the tests; offline once set up

checks: ## the gate without the tests: format, lint, types, contracts, lock, generated files, Nix
	@$(SETUP) model appliance gate
	@$(BIN)/ruff format --check -q $(PYTHON_FILES) || { echo "not formatted: make fmt rewrites it" >&2; exit 1; }
	@$(BIN)/ruff check -q $(PYTHON_FILES)
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo --cache-dir .state/cache/imports >.state/log/imports.log || { cat .state/log/imports.log; exit 1; }
	@$(BIN)/python nix/prune_lock.py --check poetry.lock
	@$(BIN)/python images/seccomp.py --check
	@$(BIN)/python -P -s deploy/generate.py --check
	@tests/nix/check.sh
	@echo "checks: format, lint, types, contracts, lock, generated files and Nix hold"

bench: ## how far from the limit? ratios side by side in one run
	@$(SETUP) model appliance
	@exec $(BIN)/python tests/bench/run.py $(ARGS)

fmt: ## rewrite formatting and the order of imports
	@$(SETUP)
	@$(BIN)/ruff check -q --select I --fix $(PYTHON_FILES)
	@$(BIN)/ruff format -q $(PYTHON_FILES)

golden: ## rewrite the frames that pin the wire; review the difference as a protocol change
	@$(SETUP)
	@exec $(BIN)/python tests/fixtures/make_wire.py

generate: ## rewrite generated files: the seccomp profile, nix/roles.json, deploy/quadlet/files
	@$(SETUP) gate
	@$(BIN)/python images/seccomp.py
	@exec $(BIN)/python -P -s deploy/generate.py

# Poetry is wanted here only, so it is no part of any other set-up. The plug-in lets it resolve
# through an index that serves nothing but package pages; it acts where POETRY_PYPI_MIRROR_URL is set.
lock: ## rewrite poetry.lock from pyproject.toml (needs the package index)
	@$(SETUP)
	@test -x .state/poetry/bin/poetry || { $(BIN)/python -m venv .state/poetry && \
	    .state/poetry/bin/pip install -qq $(POETRY); }
	@.state/poetry/bin/poetry lock
	@$(BIN)/python nix/prune_lock.py poetry.lock
	@$(SETUP)

audit: ## is a run-time package known to be vulnerable? (needs the package index)
	@$(SETUP)
	@test -x .state/pip-audit/bin/pip-audit || { $(BIN)/python -m venv .state/pip-audit && \
	    .state/pip-audit/bin/pip install -qq $(PIP_AUDIT); }
	@$(BIN)/python deploy/local/requirements.py poetry.lock main | sed 1,2d >.state/audit.txt
	@exec .state/pip-audit/bin/pip-audit --strict --disable-pip --require-hashes -r .state/audit.txt

clean-tools: ## take away the tools' images, containers and sample folders of this checkout
	@$(SETUP)
	@exec $(BIN)/python deploy/local/cleantools.py

clean-appliance: ## take away the images and containers of make appliance; what was said stays, and is named
	@$(SETUP)
	@exec $(BIN)/python deploy/appliance/clean.py

verify-model: ## does it hold against a real model server? (UPSTREAM= for yours)
	@$(SETUP) $(if $(UPSTREAM),,model)
	@exec $(BIN)/python -m pytest -q tests/contract/test_*.py

verify-mattermost: ## does it hold against a real Mattermost? (MATTERMOST_URL=, or MATTERMOST_BINARY= and MATTERMOST_DATABASE=)
	@$(SETUP)
	@exec $(BIN)/python tests/contract/gateway/verify.py

verify-honcho: ## does it hold against a real Honcho?
	@echo "There is no memoryd yet; the memory issue brings it and this check." >&2; exit 2

verify-device: ## does it hold on the appliance?
	@$(SETUP)
	@test -e /etc/boxmaker/roles.json || { echo "No appliance is installed here: docs/appliance.md and docs/other-linux.md" \
	    "tell how. It is looked for in /etc/boxmaker/roles.json." >&2; exit 2; }
	@BOXMAKER_HOME=$${BOXMAKER_HOME:-/var/lib/boxmaker} exec $(BIN)/python -P -s -m bxctl doctor
