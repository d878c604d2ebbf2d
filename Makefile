# make test is what a change must pass; make verify is all there is; make help lists all.

GO       ?= go
FUZZTIME ?= 5s
STRESS   ?= 60s
SOAK     ?= 30m
# SHORT=-short makes the short form of a part, as make test runs it.
SHORT    ?=
# How long a package may take: a hang is a failure with a dump of the goroutines. Its long form takes some minutes.
TIMEOUT  ?= $(if $(SHORT),10m,60m)
export GO FUZZTIME

# Prints a line per package; at the end which tests were skipped and why, which failed, and how many there were.
GOTESTSUM = bin/gotestsum-v1.13.0
# make vet has looked at the code, and stacks need no DWARF. Compilers that collect less garbage take a fifth less time.
GOTEST    = $(GOTESTSUM) --format pkgname -- -count=1 -vet=off -ldflags=-w '-toolexec=env GOGC=400' -timeout $(TIMEOUT)
LINTER    = bin/golangci-lint-v2.5.0
APIDIFF   = bin/apidiff-v0.0.0-20261113113407-e3970619a1a4
DLV       = bin/delve-v1.27.2/dlv

# No test may be skipped for want of a package that the target has installed. Other packages decide by themselves: a test
# that needs one runs where the package happens to be here, and is skipped where it is not.
export GORUN_TEST_REQUIRE_PEERS := $(shell scripts/deps --installed $(if $(SHORT),test,verify))

# What has concurrency within one process: the race detector sees no more.
RACED = . ./accel/... ./internal/auth/... ./internal/eventset ./internal/join ./internal/pmi ./internal/procs ./internal/ring \
	./internal/stdio ./launcher ./pml ./transport/...

GCC = $(shell command -v gcc)

# What has no part of its own. With -short the tests that the race part runs are run there only.
UNIT  = $(filter-out %/internal/guard %/internal/reach %/testkit/netns %/testkit/netns/hostrun %/testkit/hcakit \
	%/testkit/cudakit %/testkit/vm $(if $(and $(SHORT),$(GCC)),$(shell $(GO) list $(RACED))), $(shell $(GO) list ./...))

# Where the tag verbs changes a file, or what a file uses: the others have been vetted without it.
OF_VERBS = $(shell grep -rlE --include='*.go' '^//go:build.*verbs|"github.com/gorun-mpi/mpi/transport/verbs"' . | \
	xargs -n1 dirname | sort -u)
OF_CUDA = $(shell grep -rlE --include='*.go' '^//go:build.*cuda' . | xargs -n1 dirname | sort -u)

# With -short the standard library goes without cgo in all parts, so that it is compiled once, and what vet needs is
# compiled with all tags at once, but for ucx and ofi, whose headers may be missing. The files that a tag takes out are
# compiled by another part.
NOCGO = netgo,osusergo
ALL   = verbs,pmix,cuda
ifdef SHORT
export GOFLAGS := $(shell $(GO) env GOFLAGS) -tags=$(NOCGO)
endif

.DEFAULT_GOAL = build
.PHONY: build help test bare verify deps deps-verify vet cross arm64 unit e2e peers page examples race guard \
	guard-rewrite fuzz stress hosts k8s verbs ucx ofi rdma lint pauses soak soak-shm soak-hosts soak-verbs soak-gpu soak-stall \
	soak-recovery bench compare compare-quick softhca softcuda clean api api-baseline release

build:           ## builds everything
	$(GO) build ./...

help:            ## what make can do
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | while IFS='	' read -r t h; do printf '%-15s %s\n' "$$t" "$$h"; done

test: deps       ## what a change must pass
	@# Two parts at a time, the longest first: while tests of one sleep, the other has the cores. By the time of vet
	@# most of what it needs is compiled.
	$(MAKE) -j2 --keep-going --no-print-directory SHORT=-short race unit guard verbs vet api

bare:            ## README's two commands in a fresh Debian root, as CI runs them; BARE='make verify' runs that there
	scripts/bare $(BARE)

verify: deps-verify  ## all there is: two hours on 2 cores
	$(MAKE) --keep-going --no-print-directory vet api cross arm64 unit guard race verbs ucx ofi fuzz stress hosts k8s rdma

deps:            ## installs the Debian packages of make test as root, names them otherwise
	scripts/deps test

deps-verify:     ## the same for make verify: Open MPI, MPICH, Slurm, QEMU, Chromium
	scripts/deps verify

vet: export GOGC = 400
vet:             ## gofmt and go vet
	@files=$$(gofmt -l $$(find . -name '*.go' -not -path './.*')) && [ -z "$$files" ] || { echo "gofmt: $$files"; exit 1; }
ifneq ($(and $(SHORT),$(GCC)),)
	CGO_ENABLED=1 $(GO) vet -tags $(ALL),guest,$(NOCGO) ./...
else
	$(GO) vet ./...
	if command -v gcc >/dev/null; then export CGO_ENABLED=1; \
		$(GO) vet -tags verbs $(OF_VERBS) && $(GO) vet -tags verbs,guest ./transport/verbs && \
		$(GO) vet -tags cuda $(OF_CUDA) && $(GO) vet -tags pmix ./internal/bootstrap/...; fi
endif

cross:           ## builds and vets for every system, without cgo
	@set -e; for target in linux/amd64 linux/arm64 darwin/arm64; do \
		export CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/}; \
		echo "build and vet $$target"; $(GO) build ./...; $(GO) vet ./...; done

# Emulated, a process has no process_vm_readv, no seccomp and no limits, and computes 20 times slower: the tests of
# transport/shm alone, TestTable and most tests of package mpi that count on the first or take minutes are left out.
# Package mpi runs here over RunLocal's loop and over shm.
ARM64     = GOARCH=arm64 CGO_ENABLED=0 GORUN_TEST_EMULATOR=qemu-aarch64-static $(GOTEST) -short -exec qemu-aarch64-static
ARM64_MPI = ^(TestTruth|TestRandomPrograms|TestLayout|TestSplit|TestCart|TestPersistent|TestProbe|TestSendrecv|TestShared|$\
	TestReductionsGive|TestRank)
ifeq ($(shell command -v qemu-aarch64-static),)
arm64: ; @echo "$@: skipped, since it needs qemu-user-static"
else
arm64: $(GOTESTSUM)  ## pure packages, the engine and package mpi on arm64, which QEMU emulates
	$(ARM64) -skip '^TestTable$$' ./collectives ./eager ./internal/board ./internal/cpuset ./internal/eventset \
		./internal/frames ./internal/layout ./internal/place ./internal/reduce ./internal/ring ./internal/settings \
		./internal/wire ./pml ./rendezvous ./tagmatch ./transport/loop
	$(ARM64) -run '$(ARM64_MPI)' .
endif

unit: $(GOTESTSUM) $(APIDIFF) $(if $(SHORT),,$(DLV))  ## the tests of all packages, but for the parts below
	$(GOTEST) $(SHORT) -skip '^TestHosts' $(UNIT)
ifneq ($(and $(SHORT),$(GCC)),)
	@# Tests that prove less under the race detector.
	tests=$$(scripts/unraced $(RACED)) && CGO_ENABLED=1 $(GOTEST) $(SHORT) -tags $(ALL),$(NOCGO) -skip /verbs $$tests
endif
	@# Only a program that is linked statically is copied to other hosts.
	CGO_ENABLED=0 $(GOTEST) $(SHORT) ./internal/reach

e2e: $(GOTESTSUM) $(if $(SHORT),,$(DLV))  ## of unit: jobs of processes
	$(GOTEST) $(SHORT) -skip '^TestHosts' ./internal/e2e ./cmd/gorun ./launcher ./internal/procs

peers: $(GOTESTSUM)  ## of unit: what is compared with Open MPI and MPICH
	$(GOTEST) $(SHORT) ./benchmarks/... ./internal/pmi

page: $(GOTESTSUM)  ## of unit: the page of a report in Chromium; its pictures go to bin/page
	$(GOTEST) $(SHORT) -run '^TestBrowser' ./internal/report -args -shots $(CURDIR)/bin/page

examples: $(GOTESTSUM)  ## of unit: the programs to begin from
	$(GOTEST) $(SHORT) ./examples/...

guard: $(GOTESTSUM)  ## instructions and allocations of the hot paths
	$(GOTEST) ./internal/guard -args -report $(CURDIR)/bin/instructions
	@cat bin/instructions

guard-rewrite:   ## records what the hot paths take now, in internal/guard/testdata; read it before you commit it
	$(GO) test -count=1 -run '^TestInstructions$$' ./internal/guard -rewrite

fuzz:            ## every fuzz target for FUZZTIME
	scripts/fuzz

stress:          ## 8 ranks with random traffic for STRESS
	$(GO) build -o bin/ ./cmd/gorun ./benchmarks/stress
	bin/gorun -n 8 bin/stress -time $(STRESS)

hosts: $(GOTESTSUM)  ## jobs over namespaces as hosts; for STRESS with faults of links and processes, GORUN_TEST_SEED repeats them
	$(GOTEST) ./internal/testkit/netns/...
	GORUN_TEST_SOAK=$(STRESS) $(GOTEST) -timeout 24h -run '^TestHosts' ./internal/e2e

k8s: $(GOTESTSUM)  ## manifests, judged by the API server's code; the first time it downloads 120 MB
	cd internal/testkit/apiserver && $(CURDIR)/$(GOTEST) ./...

ifeq ($(GCC),)
race verbs ucx ofi: ; @echo "$@: skipped, since it needs gcc"
else
race: $(GOTESTSUM)  ## the race detector
	@# The root package by itself: beside the others it takes nearly the 20 minutes on 2 cores.
	CGO_ENABLED=1 $(GOTEST) -timeout 20m -race -short .
	CGO_ENABLED=1 $(GOTEST) -timeout 20m -race -short $(filter-out .,$(RACED))
	CGO_ENABLED=1 $(GOTEST) -timeout 10m -race -short -run '^Test(RandomMessages|WinLeft)$$' ./gpu

verbs: export CGO_ENABLED = 1
verbs: $(GOTESTSUM)  ## the verbs transport over the software HCA, CUDA over the software GPU: neither needs a device
	$(GOTEST) $(SHORT) -tags verbs,cuda,$(NOCGO) ./internal/testkit/hcakit ./internal/testkit/cudakit ./transport/verbs \
		./accel/cuda ./gpu ./internal/join ./internal/settings
	$(GOTEST) $(SHORT) -tags verbs,cuda,$(NOCGO) -run GPUOverVerbs ./pml
	$(GOTEST) $(SHORT) -tags pmix,$(NOCGO) ./internal/bootstrap/...
ifndef SHORT
	$(GOTEST) -tags verbs -run 'Info|Verbs' ./cmd/gorun ./internal/e2e
	$(GOTEST) -tags verbs -run '^TestWhatCrossesTheCPU$$' ./internal/guard
	$(GOTEST) -tags verbs -run '^Test[A-Z].*/^verbs' .
	@# List operations that are late and work in another order.
	SOFTHCA_SEED=1 SOFTHCA_LIST_DELAY=150 $(GOTEST) -short -tags verbs -run '^Test[A-Z].*/^verbs-tags$$' .
	SOFTHCA_SEED=2 SOFTHCA_LIST_DELAY=300 $(GOTEST) -short -tags verbs -run '^Test[A-Z].*/^verbs-tags(-shm)?$$' .
	@# Completions of tag matching as rdma-core's provider mlx5 gives them.
	SOFTHCA_MODE=mlx5 $(GOTEST) -short -tags verbs ./transport/verbs
	SOFTHCA_MODE=mlx5 $(GOTEST) -short -tags verbs -run '^Test[A-Z].*/^verbs-tags$$' .
	$(GOTEST) -tags verbs -race -short ./transport/verbs
	$(GOTEST) -tags cuda -race -short ./accel/cuda
	$(GOTEST) -tags cuda -run '^Test(Devices|Whole|TrainOnSoftwareGPU)$$' ./benchmarks ./internal/tools/gpucheck ./examples
	$(GOTEST) -tags verbs -run '^TestWhole$$' ./internal/tools/rdmacheck
	scripts/softhca bin/libsofthca.so
	$(GO) build -tags verbs -o bin/verbs/ ./cmd/gorun ./benchmarks/stress
	GORUN_VERBS_LIB=$(CURDIR)/bin/libsofthca.so GORUN_TRANSPORTS=verbs GORUN_TM=on bin/verbs/gorun -n 4 bin/verbs/stress -time 10s
endif

ifeq ($(wildcard /usr/include/ucp/api/ucp.h),)
ucx: ; @echo "$@: skipped, since it needs libucx-dev"
else
ucx: export CGO_ENABLED = 1
ucx: export UCX_TLS = posix,sysv,cma,self
ucx: $(GOTESTSUM)  ## the transport over UCX, on this host
	$(GO) vet -tags ucx ./transport/ucx ./internal/e2e ./cmd/gorun .
	$(GOTEST) $(SHORT) -tags ucx ./transport/ucx ./internal/join
	$(GOTEST) $(SHORT) -tags ucx -run 'Info|UCX|Tagged' ./cmd/gorun ./internal/e2e
	$(GOTEST) $(SHORT) -tags ucx,cuda -run '^TestJobOverSoftCUDA$$' ./gpu
	$(GOTEST) -tags ucx -run '^Test[A-Z].*/^ucx$$' .
	@# The tests that say nothing of UCX, over it.
	GORUN_TEST_BENEATH=ucx $(GOTEST) -short -tags ucx .
	GORUN_TRANSPORTS=ucx UCX_TLS=tcp,self $(GOTEST) -tags ucx -run '^TestHosts(HostDies|Freeze)$$' ./internal/e2e
	$(GOTEST) -tags ucx -race -short ./transport/ucx
	$(GO) build -tags ucx -o bin/ucx/ ./cmd/gorun ./benchmarks/stress
	@set -e; for tls in $(UCX_TLS) tcp,self; do \
		GORUN_TRANSPORTS=ucx UCX_TLS=$$tls bin/ucx/gorun -n 4 bin/ucx/stress -time 10s; done
endif

ifeq ($(wildcard /usr/include/rdma/fi_tagged.h),)
ofi: ; @echo "$@: skipped, since it needs libfabric-dev"
else
ofi: export CGO_ENABLED = 1
ofi: export GORUN_OFI_PROVIDER = tcp;ofi_rxm
ofi: $(GOTESTSUM)  ## the transport over libfabric, on this host
	$(GO) vet -tags ofi ./transport/ofi ./internal/e2e ./cmd/gorun .
	$(GOTEST) $(SHORT) -tags ofi ./transport/ofi ./internal/join
	GORUN_OFI_PROVIDER=sockets $(GOTEST) $(SHORT) -tags ofi ./transport/ofi
	$(GOTEST) $(SHORT) -tags ofi -run 'Info|OFI|Tagged' ./cmd/gorun ./internal/e2e
	$(GOTEST) -short -tags ofi -run '^Test[A-Z].*/^ofi$$' .
	$(GOTEST) -tags ofi -race -short ./transport/ofi
	$(GO) build -tags ofi -o bin/ofi/ ./cmd/gorun ./benchmarks/stress
	GORUN_TRANSPORTS=ofi bin/ofi/gorun -n 4 bin/ofi/stress -time 10s
endif
endif

rdma: export GOTESTSUM := $(CURDIR)/$(GOTESTSUM)
rdma: $(GOTESTSUM)  ## in guests with soft-RoCE; the first time it downloads 107 MB
	scripts/rdma

lint: $(LINTER)  ## the linters of .golangci.yml
	$(LINTER) run ./...

api: $(APIDIFF)  ## the API compared with that of the last release: no incompatible change
	GOGC=400 scripts/api $(APIDIFF)

api-baseline: $(APIDIFF)  ## records the API, before a release
	scripts/api $(APIDIFF) write

release:         ## bin/release: static binaries of gorun, a bill of materials, the container image, checksums
	$(GO) run ./internal/tools/release -o bin/release

pauses:          ## tests whose every statement may be held up: make pauses PKG=./pml; an hour for all of them
	$(GO) run ./internal/tools/pauses $(PKG)

soak:            ## stress for SOAK over each of shm, tcp with faults, verbs, and between GPUs: make soak SOAK=8h
	$(MAKE) --keep-going --no-print-directory soak-shm soak-hosts soak-verbs soak-gpu soak-stall soak-recovery

soak-shm:        ## of soak: 8 ranks with shared memory
	$(GO) build -o bin/ ./cmd/gorun ./benchmarks/stress
	GORUN_TRANSPORTS=shm bin/gorun --stall abort -n 8 bin/stress -limits -time $(SOAK)

soak-verbs: export CGO_ENABLED = 1
soak-verbs:      ## of soak: 4 ranks over the software HCA
	scripts/softhca bin/libsofthca.so
	$(GO) build -tags verbs -o bin/verbs/ ./cmd/gorun ./benchmarks/stress
	GORUN_VERBS_LIB=$(CURDIR)/bin/libsofthca.so GORUN_TRANSPORTS=verbs GORUN_TM=on bin/verbs/gorun --stall abort -n 4 bin/verbs/stress -limits -time $(SOAK)

soak-hosts: $(GOTESTSUM)  ## of soak: over hosts whose links and processes fail
	GORUN_TEST_SOAK=$(SOAK) $(GOTEST) -timeout 24h -v -run '^TestHostsStress$$' ./internal/e2e

soak-gpu: export CGO_ENABLED = 1
soak-gpu: $(GOTESTSUM)  ## of soak: messages between software GPUs; GORUN_TEST_SEED repeats a program
	GORUN_TEST_SOAK=$(SOAK) $(GOTEST) -timeout 240h -tags verbs,cuda -run '^TestRandomMessages' ./gpu

soak-stall: export CGO_ENABLED = 1
soak-stall: $(GOTESTSUM)  ## of soak: random programs, which gorun --stall must not take for jobs that stand
	GORUN_TEST_SOAK=$(SOAK) $(subst pkgname,standard-verbose,$(GOTEST)) -timeout 240h -tags verbs \
		-run 'RandomProgramsDoNotStand$$' ./internal/e2e

soak-recovery: $(GOTESTSUM)  ## of soak: for SOAK a death each 5 s; then 2,000 random programs with deaths, and one at each step
	GORUN_TEST_SOAK=$(SOAK) $(GOTEST) -timeout 240h -v -run '^TestDeaths(OneByOne|Replaced)$$' ./internal/e2e
	GORUN_TEST_SOAK=$(SOAK) $(GOTEST) -timeout 240h -v -run '^TestRandomDeathsOfProcesses$$' .
	GORUN_TEST_SOAK=$(SOAK) $(GOTEST) -timeout 240h -v -run '^TestDeath(AtSteps|OfAHostAtSteps)' ./internal/e2e

bench:           ## Go's micro-benchmarks, beside the code they measure
	$(GO) test -run '^$$' -bench . -benchmem ./...

compare:         ## with Open MPI and MPICH, all of it: an hour; the results go to benchmarks/results
	scripts/compare

compare-quick:   ## a part of it: needs Open MPI and MPICH, builds, and then measures for under three minutes
	scripts/compare-quick

softhca:         ## the software HCA: bin/libsofthca.so, for GORUN_VERBS_LIB
	scripts/softhca bin/libsofthca.so

softcuda:        ## the software GPU: bin/libsoftcuda.so, a libcuda.so.1 for GORUN_CUDA_LIB
	scripts/softcuda bin/libsoftcuda.so

clean:           ## removes bin/
	rm -rf bin

# Tools of a fixed version, which are built once and are no dependencies of this module.
$(GOTESTSUM):
	GOGC=400 GOBIN=$(CURDIR)/bin $(GO) install gotest.tools/gotestsum@$(subst bin/gotestsum-,,$@)
	mv bin/gotestsum $@

$(APIDIFF):
	GOGC=400 GOBIN=$(CURDIR)/bin $(GO) install golang.org/x/exp/cmd/apidiff@$(subst bin/apidiff-,,$@)
	mv bin/apidiff $@

$(DLV):  # keeps its name, which gorun looks for
	GOGC=400 GOBIN=$(CURDIR)/$(@D) $(GO) install github.com/go-delve/delve/cmd/dlv@$(subst bin/delve-,,$(@D))

$(LINTER):  # takes a few minutes
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(subst bin/golangci-lint-,,$@)
	mv bin/golangci-lint $@
