# Tool versions are pinned here and nowhere else.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 60s
export CGO_CFLAGS = -Wno-deprecated-declarations
BIN = bin

.PHONY: all build check test race soak golden fuzz bench gomlx gpu clean

all: build check test

build:
	go build -o $(BIN)/lowerdump ./cmd/lowerdump

# Format, vet, import rules, and types without cgo.
check:
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || (echo "gofmt -w the files above"; exit 1)
	go vet ./...
	go test -run 'TestImports|TestWithoutCgo' .
	@if command -v staticcheck >/dev/null; then staticcheck ./...; else echo "staticcheck is not installed: go install $(STATICCHECK)"; fi

test:
	go test ./...

race:
	go test -race -short ./...

# What closes, aborts, rejoins, dies or fails has one of these words in the name of its test, and
# may not fail once in COUNT runs: make soak COUNT=500, and RACE=-race COUNT=50.
ENDINGS = Abort|Again|AtTheEnd|Breaks|Broken|CallsHold|Cancel|Clos|Cut|Dead|Destroyed|Die|Ended|Ends|EveryMessage|Exit|Fail|Fault|Forgotten|Frozen|GiveBack|GivenUp|Gone|Importer|Interrupt|Join|Rejoin|Kill|Late|Leave|Left|Lives|Living|Lost|Malformed|Mismatch|Missing|NoAnswer|NoParent|OneErrorSet|Quarantine|ReverseOrder|RunsDry|SharedQueue|Signals|Silence|Stall|StopBefore|Stopped|Stuck|SystemCalls|Timeout|Told|Torn|Undo|Unusable|Unwilling
COUNT ?= 1
soak:
	go test $(RACE) -short -count=$(COUNT) -timeout=0 -run '$(ENDINGS)' ./internal/lifecycle ./runtime/... ./cuda/...
	go test $(RACE) -count=$(COUNT) -timeout=0 -run TestLinksFail ./runtime/host

# Rewrites the want sections of golden cases; read every changed line.
golden:
	go test ./passes ./lower ./ir/fx ./lower/cudagen -run 'Golden' -update
	go test ./cmd/lowerdump/cli -run 'Scripts' -update

# Every target in turn; crashers land in the package's testdata/fuzz.
fuzz:
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sed 's|/[^/]*:func | |' | sort | while read dir name; do \
		echo "== $$dir $$name"; go test $$dir -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) || exit 1; done

bench:
	go test -run '^$$' -bench . -benchtime 3x ./ir ./ir/fx ./sim ./internal/sched ./internal/pack ./passes/...

# A program of GoMLX to begin with, on this checkout: make -C CHECKOUT gomlx DIR=$PWD.
CONCERT = github.com/seed-ee968945/concert
gomlx:
	@test -n "$(DIR)" || (echo 'say where: make gomlx DIR=FOLDER'; exit 1)
	cd examples/gomlx && cp go.mod go.sum main.go opticks.txt "$(DIR)"
	cd "$(DIR)" && go mod edit -module=gpt -replace $(CONCERT)="$(CURDIR)" -replace $(CONCERT)/integrations/gomlx="$(CURDIR)/integrations/gomlx"

# Packs every GPU test, with what it reads, for a machine that has GPUs and neither Go nor
# this tree: tar xzf gpu.tar.gz && gpu/gputest -out results. See test/gputest.
GPU = $(BIN)/gpu
GPUTEST = go test -c -trimpath
gpu:
	rm -rf $(GPU) && mkdir -p $(GPU)
	$(GPUTEST) -ldflags='-s -w' -o $(GPU)/cuda.test ./cuda
	$(GPUTEST) -ldflags='-s -w' -o $(GPU)/nccl.test ./cuda/nccl
	$(GPUTEST) -ldflags='-s -w -extldflags=-Wl,-z,lazy' -o $(GPU)/nvml.test ./cuda/topo/nvml
	$(GPUTEST) -ldflags='-s -w' -o $(GPU)/device.test ./cuda/device
	$(GPUTEST) -ldflags='-s -w' -o $(GPU)/lt.test ./cuda/lt
	$(GPUTEST) -ldflags='-s -w' -o $(GPU)/wgmma.test ./cuda/wgmma
	$(GPUTEST) -ldflags='-s -w' -o $(GPU)/cudnn.test ./cuda/cudnn
	go build -trimpath -ldflags='-s -w' -o $(GPU)/gputest ./test/gputest
	go build -trimpath -ldflags='-s -w' -o $(GPU)/gpubench ./internal/gpubench
	go build -trimpath -ldflags='-s -w -extldflags=-Wl,-z,lazy' -o $(GPU)/lowerdump ./cmd/lowerdump
	git describe --always --dirty --abbrev=40 --match='' > $(GPU)/COMMIT
	mkdir -p $(GPU)/cuda/topo/nvml $(GPU)/cuda/nccl
	git ls-files testdata 'cuda/*/testdata/*' 'cuda/device/*.cu' go.mod | tar cf - -T - | tar xf - -C $(GPU)
	for d in cuda/device cuda/lt cuda/wgmma cuda/cudnn; do mkdir -p $(GPU)/$$d; done
	tar czf $(GPU).tar.gz -C $(BIN) gpu
	@ls -lh $(GPU).tar.gz

clean:
	rm -rf $(BIN)
