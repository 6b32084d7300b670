# The front door. Every verb first installs what it lacks, then does its work.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600

# $(call compile,preset[,options]): configure quietly and build.
compile = cmake --preset $(1) --log-level=WARNING >/dev/null && \
	cmake --build --preset $(1) -j $(JOBS) $(2)

# ThreadSanitizer cannot map its shadow under a high-entropy address layout.
fixed_layout = setarch "$$(uname -m)" -R

export MODEL SERVERS BUCKET MINUTES RATE ENGINE PORT

.PHONY: build install wheel deb release test test-all check demo bench fuzz tsan style format docs dashboard clean help

# Where `make install` puts things; DESTDIR before it, for packagers.
PREFIX ?= /usr/local

build:  ## build the command line tool: build/wisp
	@tools/setup.sh build
	@$(call compile,release,--target wisp wisp_make_pair)
	@ln -sfn release/bin/wisp build/wisp

install:  ## the command, its manual and completion, headers and library, into PREFIX (/usr/local)
	@tools/setup.sh build
	@$(call compile,release,--target wisp wisp_core wisp_pages)
	@cmake --install build/release --prefix $(PREFIX) --strip

wheel:  ## wheels for the Pythons of this machine, into build/dist
	@tools/setup.sh wheel
	@tools/wheel.sh

deb:  ## Debian packages wisp and libwisp-dev, into build/dist
	@tools/setup.sh deb
	@$(call compile,release,--target wisp wisp_core wisp_pages)
	@tools/deb.sh

release:  ## wheels, source package, deb, container context, SBOM and checksums, into build/dist
	@tools/setup.sh wheel
	@tools/setup.sh deb
	@tools/release.sh

# Tests labelled so run in test-all only; CONTRIBUTING.md says which and why.
left_out = -LE long

test:  ## style, release and sanitizer builds, their tests, threads under ThreadSanitizer
	@tools/setup.sh test
	@tools/check_style.sh
	@$(call compile,release)
	@ln -sfn release/bin/wisp build/wisp
	@$(call compile,asan)
	@tools/run_tests.sh "release asan" -j $(JOBS) $(left_out)
	@$(MAKE) --no-print-directory tsan
	@tools/untested.sh $(left_out)

test-all:  ## as test, and what takes long: every test under sanitizers, real engines, Xet's server
	@tools/setup.sh test-all
	@tools/frameworks.sh
	@tools/clang_tidy.sh --all
	@$(MAKE) --no-print-directory test left_out=

check:  ## the quick round: style, release build, tests neither slow nor long
	@tools/setup.sh test
	@tools/check_style.sh
	@$(call compile,release)
	@ln -sfn release/bin/wisp build/wisp
	@tools/run_tests.sh release -j $(JOBS) -LE 'slow|long'

# MODEL=folder SERVERS=2 BUCKET=s3://… MINUTES=5 RATE=3e-6 ENGINE=vllm PORT=8400
demo:  ## a policy learns Wordle while its weights travel through a bucket to rollout servers
	@tools/setup.sh $(if $(filter vllm,$(ENGINE)),demo-vllm,demo)
	@$(call compile,release,--target wisp wisp_native)
	@ln -sfn release/bin/wisp build/wisp
	@tools/demo.sh

bench: build  ## measure
	@tools/setup.sh bench
	@$(call compile,release,--target wisp_speed wisp_density wisp_slices wisp_bucket)
	@bench/run.sh

fuzz:  ## run every fuzz target for FUZZ_SECONDS (default 600) each
	@tools/setup.sh fuzz
	@$(call compile,fuzz)
	@tools/fuzz.sh $(FUZZ_SECONDS)

tsan:  ## the tests labelled parallel under ThreadSanitizer
	@tools/setup.sh test
	@$(fixed_layout) bash -c '$(call compile,tsan,--target parallel_tests)'
	@$(fixed_layout) tools/run_tests.sh tsan -j $(JOBS) -L parallel

style:  ## formatting, clang-tidy on what changed, the include law, ruff and mypy
	@tools/setup.sh style
	@tools/check_style.sh
	@tools/clang_tidy.sh

format:  ## rewrite the C++ files and the Python package in the house format
	@tools/setup.sh test
	@tools/check_style.sh --fix

docs:  ## the documents as a site, with a reference of the interfaces: build/docs/site/index.html
	@tools/setup.sh docs
	@tools/docs_site.py build/docs
	@NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --quiet --strict --config-file build/docs/mkdocs.yml

dashboard:  ## build the dashboard's page from its sources, with npm
	@tools/setup.sh dashboard
	@cd dashboard && PATH="$(CURDIR)/build/node-venv/bin:$$PATH" npm run --silent build

clean:  ## remove build/
	@rm -rf --one-file-system build

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
