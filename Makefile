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
PYTHON_FILES := python tests deploy nix

# make chat: UPSTREAM=http://host:8080 for a server of your own, MODEL=file.gguf for another
# model, SAY='…' for one message instead of a conversation, ARGS for any option of chat.py.
CHAT := $(if $(UPSTREAM),--upstream "$$UPSTREAM") $(if $(MODEL),--model "$$MODEL") $(if $(SAY),--say "$$SAY") $(ARGS)
export UPSTREAM MODEL SAY

# make test: TESTS=tests/unit/bxcore or any other argument of pytest.
TESTS ?= tests

.PHONY: help chat test gate bench fmt golden generate lock audit
.PHONY: verify-model verify-mattermost verify-honcho verify-device

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

chat: ## does it run? talk with a real model (UPSTREAM=, MODEL=, SAY=)
	@$(SETUP) $(if $(UPSTREAM),,model)
	@exec $(BIN)/python deploy/local/chat.py $(CHAT)

test: ## is it right? everything that can run here
	@$(SETUP) model
	@exec $(BIN)/python -m pytest -q $(TESTS)

gate: ## may it land? format, lint, types, contracts, Nix, generated files, tests
	@$(SETUP) model gate
	@deploy/local/gate.sh
	@exec $(BIN)/python -m pytest -q

bench: ## how far from the limit? ratios side by side in one run
	@$(SETUP) model
	@exec $(BIN)/python tests/bench/run.py $(ARGS)

fmt: ## rewrite formatting and the order of imports
	@$(SETUP)
	@$(BIN)/ruff check -q --select I --fix $(PYTHON_FILES)
	@$(BIN)/ruff format -q $(PYTHON_FILES)

golden: ## rewrite the frames that pin the wire; review the difference as a protocol change
	@$(SETUP)
	@exec $(BIN)/python tests/fixtures/make_wire.py

generate: ## rewrite generated files
	@echo "Nothing is generated yet; the NixOS module's issue brings the role table and its files." >&2; exit 2

lock: ## rewrite poetry.lock from pyproject.toml (needs the package index)
	@$(SETUP)
	@exec deploy/local/lock.sh

audit: ## does a known vulnerability touch us? (needs the package index)
	@$(SETUP)
	@exec deploy/local/audit.sh

verify-model: ## does it hold against a real model server? (UPSTREAM= for yours)
	@$(SETUP) $(if $(UPSTREAM),,model)
	@exec $(BIN)/python -m pytest -q tests/contract

verify-mattermost: ## does it hold against a real Mattermost?
	@echo "There is no gatewayd yet; the Mattermost issue brings it and this check." >&2; exit 2

verify-honcho: ## does it hold against a real Honcho?
	@echo "There is no memoryd yet; the memory issue brings it and this check." >&2; exit 2

verify-device: ## does it hold on the appliance?
	@echo "There is no appliance yet; the NixOS module's issue brings it and this check." >&2; exit 2
