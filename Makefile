# Tool versions are pinned here and nowhere else.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 60s
export CGO_CFLAGS = -Wno-deprecated-declarations
BIN = bin

.PHONY: all build check test race golden fuzz bench gpu clean

all: build check test

build:
	go build -o $(BIN)/lowerdump ./cmd/lowerdump

# Format, vet, import rules, and builds without cgo for all but cuda and what needs it.
check:
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || (echo "gofmt -w the files above"; exit 1)
	go vet ./...
	go test -run TestImports .
	CGO_ENABLED=0 go build ./...
	@if command -v staticcheck >/dev/null; then staticcheck ./...; else echo "staticcheck is not installed: go install $(STATICCHECK)"; fi

test:
	go test ./...

race:
	go test -race -short ./...

# Rewrites the want sections of golden cases; read every changed line.
golden:
	go test ./passes ./lower ./ir/fx ./lower/cudagen -run 'Golden' -update
	go test ./cmd/lowerdump -run 'Scripts' -update

# Every target in turn; crashers land in the package's testdata/fuzz.
fuzz:
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sed 's|/[^/]*:func | |' | sort | while read dir name; do \
		echo "== $$dir $$name"; go test $$dir -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) || exit 1; done

bench:
	go test -run '^$$' -bench . -benchtime 3x ./ir ./ir/fx ./sim ./internal/sched ./internal/pack ./passes

# Builds the GPU tests and benchmarks; run them on a machine with GPUs.
gpu:
	go test -c -o $(BIN)/cuda.test ./cuda
	go test -c -o $(BIN)/nccl.test ./cuda/nccl
	go test -c -ldflags=-extldflags=-Wl,-z,lazy -o $(BIN)/nvml.test ./cuda/topo/nvml
	go test -c -o $(BIN)/device.test ./cuda/device
	go test -c -o $(BIN)/lt.test ./cuda/lt
	go test -c -o $(BIN)/cudnn.test ./cuda/cudnn
	go build -o $(BIN)/gpubench ./internal/gpubench
	go build -o $(BIN)/lowerdump ./cmd/lowerdump

clean:
	rm -rf $(BIN)
