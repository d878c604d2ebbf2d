# make test is everything that CI runs; .ci/run calls it. The other targets are its parts and what takes longer.

GO       ?= go
FUZZTIME ?= 5s
STRESS   ?= 60s
SOAK     ?= 30m
export GO FUZZTIME STRESS

.PHONY: all test deps check unit nocgo race guard fuzz stress hosts verbs rdma test-rdma guard-rewrite pauses soak soak-hosts bench compare compare-quick lint softhca clean

all:
	$(GO) build ./...

test: deps       ## installs what the tests need, then runs all of them
	scripts/test check unit nocgo race guard fuzz stress hosts verbs rdma

deps:            ## the Debian packages of the tests: installs them as root, names them otherwise
	scripts/deps

check unit nocgo race guard fuzz stress hosts verbs rdma:  ## one part of the tests each
	scripts/test $@

test-rdma: deps  ## what needs RDMA, in guests with soft-RoCE; the first time it downloads 107 MB
	scripts/test rdma

guard-rewrite:   ## records what the hot paths take now, in internal/guard/testdata; read it before you commit it
	$(GO) test -count=1 -run '^TestInstructions$$' ./internal/guard -rewrite

pauses:          ## tests whose every statement may be held up: make pauses PKG=./pml; an hour for all of them
	$(GO) run ./internal/tools/pauses $(PKG)

soak:            ## the stress run, for long: make soak SOAK=8h
	STRESS=$(SOAK) scripts/test stress

soak-hosts:      ## the same over three hosts whose links and processes fail: make soak-hosts SOAK=8h
	STRESS=$(SOAK) scripts/test hosts

bench:           ## Go's micro-benchmarks, beside the code they measure
	$(GO) test -run '^$$' -bench . -benchmem ./...

compare:         ## beside Open MPI and MPICH, all of it: an hour; the results go to benchmarks/results
	scripts/compare

compare-quick:   ## the same in under three minutes
	scripts/compare-quick

lint:            ## the linters of .golangci.yml
	scripts/lint

softhca:         ## the software HCA: bin/libsofthca.so, for GORUN_VERBS_LIB
	scripts/softhca bin/libsofthca.so

clean:
	rm -rf bin
