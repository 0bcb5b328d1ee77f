# graft: two commands for a newcomer, `make demo` and `make test`; the rest for developers.

# Tools and peers, pinned.
STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PY_ONNX      := onnx==1.22.0
PY_NUMPY     := numpy==2.4.6
PY_ORT_OLD   := onnxruntime==1.22.0
PY_ORT_NEW   := onnxruntime==1.31.1
DEBIAN       := cmake g++ make libhwy-dev libeigen3-dev libgtest-dev clang-format python3 python3-venv npm

JOBS    ?= $(shell nproc)
BUILD   := $(CURDIR)/build
BIN     := $(CURDIR)/bin
CXX     ?= g++
ORT_INC := $(shell go list -m -f '{{.Dir}}' github.com/yalue/onnxruntime_go 2>/dev/null)

# Tests and benchmarks use the plugins just built, as they are.
export GRAFT_PLUGIN_PATH := $(BUILD)/plugins
export GRAFT_PLUGIN_UNVERIFIED := 1

.PHONY: all demo test bench lint setup runtime plugins graft go-test cxx-test sanitize peers fmt clean

all: graft

# Patches a real model, shows speed and equal answers.
demo: graft runtime
	@go build -o $(BIN)/demo ./cmd/demo
	@env -u GRAFT_PLUGIN_UNVERIFIED -u GRAFT_PLUGIN_PATH $(BIN)/graft plugin verify --quiet $(BIN)/plugins/*
	@env -u GRAFT_PLUGIN_UNVERIFIED -u GRAFT_PLUGIN_PATH $(BIN)/demo

# Every test: Go with the race detector, C++ plain and under sanitizers, conformance, peers.
test: graft runtime peers cxx-test sanitize go-test

# What this machine lacks of Debian's packages; needs root only when something is missing.
setup:
	@missing=""; for p in $(DEBIAN); do dpkg -s $$p >/dev/null 2>&1 || command -v $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing$$missing" >&2; \
	  sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq $$missing >/dev/null; \
	fi
	@go mod download

# The plugins, into build/plugins and beside the command.
plugins: setup
	@cmake -S . -B $(BUILD)/cmake -DCMAKE_BUILD_TYPE=Release -DGRAFT_ORT_INCLUDE=$$(go list -m -f '{{.Dir}}' github.com/yalue/onnxruntime_go) \
	  -DGRAFT_PLUGIN_OUTPUT=$(BUILD)/plugins >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }
	@cmake --build $(BUILD)/cmake -j$(JOBS) >>$(BUILD).log 2>&1 || { tail -50 $(BUILD).log; exit 1; }

graft: plugins
	@mkdir -p $(BIN)
	@go build -o $(BIN)/graft ./cmd/graft
	@rm -rf $(BIN)/plugins && cp -r $(BUILD)/plugins $(BIN)/plugins

# The pinned ONNX Runtime, into the user's cache.
runtime: graft
	@$(BIN)/graft doctor --fetch --quiet

# Python peers for the tests: an old and a new ONNX Runtime, and ONNX's conformance cases.
peers: $(BUILD)/peers/.done
$(BUILD)/peers/.done: Makefile tests/conformance/cases.py
	@mkdir -p $(BUILD)/peers
	@for v in old new; do \
	  if [ $$v = old ]; then ort=$(PY_ORT_OLD); else ort=$(PY_ORT_NEW); fi; \
	  python3 -m venv $(BUILD)/peers/$$v && $(BUILD)/peers/$$v/bin/pip install -q --disable-pip-version-check $$ort $(PY_NUMPY) $(PY_ONNX) || exit 1; \
	done
	@$(BUILD)/peers/new/bin/python tests/conformance/cases.py $(BUILD)/peers/cases
	@touch $@

cxx-test: plugins
	@ctest --test-dir $(BUILD)/cmake --output-on-failure -j$(JOBS)

sanitize: setup
	@cmake -S . -B $(BUILD)/sanitize -DCMAKE_BUILD_TYPE=RelWithDebInfo -DGRAFT_SANITIZE=ON -DGRAFT_ORT_INCLUDE=$$(go list -m -f '{{.Dir}}' github.com/yalue/onnxruntime_go) >$(BUILD).sanitize.log 2>&1 || { cat $(BUILD).sanitize.log; exit 1; }
	@cmake --build $(BUILD)/sanitize -j$(JOBS) >>$(BUILD).sanitize.log 2>&1 || { tail -50 $(BUILD).sanitize.log; exit 1; }
	@ctest --test-dir $(BUILD)/sanitize --output-on-failure -j$(JOBS)

go-test: graft runtime peers
	@go test -race -timeout 30m ./...
	@GOARCH=arm64 CGO_ENABLED=0 go build ./host/... ./cmd/...

# The figures of the README, measured; raw times under bench/results.
bench: graft runtime
	@go run ./bench

lint: setup
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -d $$(git ls-files '*.go'); exit 1; }
	@go vet ./...
	@go run $(STATICCHECK) ./...
	@clang-format --dry-run -Werror $$(git ls-files '*.h' '*.hpp' '*.c' '*.cc' '*.cpp')

fmt:
	@gofmt -w $$(git ls-files '*.go')
	@clang-format -i $$(git ls-files '*.h' '*.hpp' '*.c' '*.cc' '*.cpp')

clean:
	@rm -rf $(BUILD) $(BIN) $(BUILD).log $(BUILD).sanitize.log
