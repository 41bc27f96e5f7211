# Each target with its description: make help.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

ARGS ?=
FUZZTIME ?= 1m
COUNT ?= 5
BENCH ?= .
PACED ?= 30s
EVENTS ?= 1000000
VERSION ?= 0.1.0
# How many seeds of the simulator `make test` plays, `make test-rest` and `make simulate`; FROM is the first of these.
QUICK_SEEDS ?= 5000
SEEDS ?= 10000
NIGHTLY_SEEDS ?= 1000000
FROM ?= 1000000
# What `make simulate-sql` plays: sequences of calls, and seeds.
SEQUENCES ?= 20000
SQL_SEEDS ?= 5000
# Versions of Postgres for `make test-matrix`, and the scenarios that it runs beside the packages that speak to Postgres.
MATRIX ?= 14 15 16 17 18
MATRIX_SCENARIOS ?= MixedLoad|Kill|Failover|Slot|Publication|Positions|Postgres|Standby|Rotated|Grant|Pooler|Check|Init|Roles
# staticcheck is part of it. Building it takes minutes, once.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# The latest that Go 1.26 builds.
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.15.0
# The library that goreleaser makes deb and rpm with, in the version that it has; by itself it is built in seconds.
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
SYFT := github.com/anchore/syft/cmd/syft@v1.33.0
# gRPC comes with the OTLP exporter. Without its traces nothing in the program calls a method by its name, and the linker
# drops what nobody calls: 10 MB. Dockerfile and .goreleaser.yaml have it too.
TAGS := grpcnotrace
# For make demo, which people run once from a clone: nothing is inlined and there are no symbols for debuggers, which
# takes a third off the time of compiling.
QUICKLY := -gcflags='all=-l -dwarf=false'
# Modules of their own below this one.
MODULES := emit inbox test/inbox test/peers test/forgetful test/kube test/openapi examples
# Each package starts a Postgres and a Kafka of its own and waits for them half of its time: three at a time, and beside
# them one of the modules below, keep 2 cores busy and fit 8 GB.
# The timeout ends what hangs; a busy machine may take several times as long as a quiet one.
TESTFLAGS ?= -p 3 -timeout 90m

export MODULES QUICK_SEEDS SEEDS TESTFLAGS

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/cdc-relay, a static binary
	CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -o bin/ ./cmd/cdc-relay

.PHONY: build-demo
build-demo: ## build bin/cdc-relay-demo, which cdc-relay demo runs
	CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -o bin/ ./cmd/cdc-relay-demo

.PHONY: demo
demo: ## see it work on this machine; Ctrl-C ends it. ARGS="--break" breaks things; ARGS="--duration 30s" for scripts
	@echo "Compiling; the first time takes a minute or so …"
	CGO_ENABLED=0 go run $(QUICKLY) $(if $(findstring nats,$(ARGS)),,-tags kafkaonly) ./cmd/cdc-relay-demo $(ARGS)

.PHONY: first-event
first-event: ## measure the time from a clone with empty caches to the demo's first event; SECONDS_ALLOWED=60 fails above
	test/first-event.sh $(SECONDS_ALLOWED)

.PHONY: test
test: ## what is fast, and a real scenario of each promise, with the race detector: 10 minutes on 2 cores
	@test/run.sh quick

.PHONY: test-rest
test-rest: ## what make test leaves out: more scenarios, and SEEDS seeds of the simulator, 10,000
	@test/run.sh rest

.PHONY: test-all
test-all: ## make test and make test-rest in one pass; half an hour on 2 cores
	@test/run.sh all

.PHONY: list-rest
list-rest: ## list the tests that make test leaves to make test-rest
	@test/run.sh full

.PHONY: needs
needs: ## install what the tests need and this machine lacks, on Debian; make test lists it
	test/needs.sh install

.PHONY: modules
modules: ## list the modules below this one
	@echo $(MODULES)

.PHONY: test-short
test-short: ## the tests that need no server
	go test -short ./...
	for module in $(MODULES); do (cd $$module && go test -short ./...); done

.PHONY: simulate
simulate: ## play NIGHTLY_SEEDS seeds of the simulator, 1,000,000, from seed FROM on; about an hour on 2 cores; ARGS="-kinds conditional,confirm"
	go test -count=1 -timeout 10h -v -run EveryRunKeeps ./test/simulator -args -seeds $(NIGHTLY_SEEDS) -from $(FROM) $(ARGS)

.PHONY: simulate-sql
simulate-sql: ## the simulator on the SQL of store/, on a real Postgres: calls compared one by one, and SQL_SEEDS seeds, 5,000
	go test -count=1 -timeout 10h -v -run 'DoWhatTheRealOnesDo|OnSQL' ./test/simulator -args -sequences $(SEQUENCES) -sqlseeds $(SQL_SEEDS) -from $(FROM)

.PHONY: mutants
mutants: ## break the relay on purpose, rule by rule, and see that the simulator notices
	CDC_RELAY_NIGHTLY=1 go test -count=1 -timeout 30m -v -run Mutants ./test/simulator
	test/simulator/mutants.sh

.PHONY: mutate-sql
mutate-sql: ## drop each condition, lock, bound, order and commit level of the SQL, once, and print those that no test notices
	go run ./test/mutate $(ARGS)

.PHONY: walk
walk: ## walk through what goes wrong at night: what status, console, alerts and log tell; ARGS=broker chooses; minutes
	test/walk.sh $(ARGS)

.PHONY: race
race: ## the scenarios once more, with the race detector in the relay's own process too
	CDC_RELAY_TEST_RACE=1 go test -race -count=1 $(TESTFLAGS) ./test/...

.PHONY: test-nightly
test-nightly: ## the scenarios with the nightly counts; takes hours
	CDC_RELAY_NIGHTLY=1 go test -count=1 -p 1 -timeout 10h -v ./...
	cd examples && CDC_RELAY_NIGHTLY=1 go test -count=1 -timeout 2h -v ./...
	cd test/inbox && CDC_RELAY_NIGHTLY=1 go test -count=1 -timeout 10h -v ./...
	go test -run '^$$' -bench . -benchtime 0.1s -p 1 -timeout 1h ./...

.PHONY: chaos
chaos: ## break relays, Postgres, Kafka and the wires between them, at random; ARGS="-faults 200 -rate 2000 -seed 0" by hand
	go test -count=1 -timeout 24h -v -run '^TestChaos' ./test/chaos -args $(ARGS)

.PHONY: test-matrix
test-matrix: ## what speaks to Postgres, on each version of MATRIX, 14 15 16 17 18; downloads what is not installed (15 MB each)
	@failed=; for version in $(MATRIX); do \
	  echo "== PostgreSQL $$version"; export CDC_RELAY_TEST_POSTGRES_VERSION=$$version; \
	  go test -count=1 -p 1 -timeout 15m ./replication ./internal/store ./relay || failed="$$failed $$version"; \
	  go test -count=1 -p 1 -timeout 15m -run '$(MATRIX_SCENARIOS)' ./test ./cmd/cdc-relay || failed="$$failed $$version"; \
	done; [ -z "$$failed" ] || { echo "failed on PostgreSQL$$failed"; exit 1; }

.PHONY: test-newest
test-newest: ## what differs between versions of Postgres, on the newest: publications, slots, failover; a minute
	CDC_RELAY_TEST_POSTGRES_VERSION=18 go test -race -count=1 -p 3 -timeout 10m -run 'Publication(Dropped|MadeAnew|That)|MissingPublication|PartitionedOutboxW|LostSlot|SlotMoved|WithTheSlot|TransactionTimeout|StreamIs|SettingsOf|NamesOfStandbys|SynchronousStandby' ./replication ./internal/store ./relay ./test

.PHONY: fuzz
fuzz: ## fuzz each fuzz target for FUZZTIME, 1m
	@for package in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "fuzz $$package $$target"; \
	    go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$package"; \
	  done; \
	done

.PHONY: bench
bench: ## throughput, latency, CPU and memory beside their floors; ARGS="-scenarios drain-100 -runs 3", see docs/benchmarks.md
	cd test/bench && CGO_ENABLED=0 go test -count=1 -timeout 6h -run '^TestBench$$' -args -scenarios all $(ARGS)

.PHONY: bench-clients
bench-clients: ## the Kafka sink beside franz-go and kafka.Writer: CPU, latency; ARGS="-clients cpu -runs 3", see docs/benchmarks.md
	cd test/bench && go test -count=1 -timeout 2h -run '^TestClients$$' -args -clients cpu,1000,10000,50000 -runs 7 $(ARGS)

.PHONY: bench-debezium
bench-debezium: ## the relay beside Debezium and a polling worker; ARGS="-runs 1 -events 100000 -rates 1000", see docs/benchmarks.md
	cd test/bench && CGO_ENABLED=0 go test -count=1 -timeout 6h -run '^TestDebezium$$' -args -debezium drain-100,drain-1,paced $(ARGS)

.PHONY: bench-inbox
bench-inbox: ## the inbox on one process with Postgres beside it, and a bare franz-go loop; its own overhead; EVENTS=1000000
	cd inbox && go test -run '^$$' -bench Overhead -benchtime 1000000x -count 3 .
	cd test/inbox && go test -count=1 -timeout 1h -v -run Figures . -args -figures $(EVENTS)

.PHONY: bench-commit
bench-commit: ## from the producer's COMMIT to the consumer's, at 1,000 events/s: p50, p99, the consumer's memory; PACED=30s
	cd test/inbox && go test -count=1 -timeout 1h -v -run CommitToCommit . -args -paced $(PACED)

.PHONY: bench-brokers
bench-brokers: ## the relay beside a plain loop and Debezium Server, each other broker: rate, CPU, latency, kills; ARGS="-side nats -side.kills 3"
	go test -count=1 -timeout 2h -v -run '^TestSideBySide$$' ./test/brokers -args -side all $(ARGS)

.PHONY: bench-peers
bench-peers: ## the inbox beside kafka-go and watermill, which do the same in Postgres: rate, CPU, ten kill -9; EVENTS=1000000
	cd test/inbox && go test -count=1 -timeout 1h -v -run Peers . -args -peers $(EVENTS) -kills 10

.PHONY: peers
peers: ## the relay beside Debezium, go-pq-cdc-kafka, a polling worker and a relay on franz-go, in six faults: docs/benchmarks.md
	cd test/peers && CGO_ENABLED=0 go test -count=1 -timeout 3h -v -run '^TestPeers$$' . -args -peers all $(ARGS)

.PHONY: bench-go
bench-go: ## Go benchmarks of the pieces; BENCH=<pattern> chooses, COUNT=5 runs of each for benchstat
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 60m ./...

.PHONY: lint
lint: fmt-check ## go vet and golangci-lint, in the version that CI uses, of this module and those below it
	go vet ./...
	go run $(GOLANGCI) run
	@for module in $(MODULES) test/bench; do echo "lint $$module"; (cd $$module && go run $(GOLANGCI) run) || exit 1; done

.PHONY: shellcheck
shellcheck: ## shellcheck on the scripts that run on machines of others, and on those that make and try the packages
	shellcheck install.sh deploy/packages/*.sh test/*.sh .ci/run

# What git ignores is nobody's to format.
GO_FILES = git ls-files -z --cached --others --exclude-standard '*.go'

.PHONY: fmt-check
fmt-check: ## fail if a file is not as gofmt has it
	@unformatted=$$($(GO_FILES) | xargs -0 gofmt -l); if [ -n "$$unformatted" ]; then echo "not as gofmt has them:"; echo "$$unformatted"; exit 1; fi

.PHONY: fmt
fmt: ## format the Go files
	$(GO_FILES) | xargs -0 gofmt -w

.PHONY: release
release: ## make and sign the release of this commit's tag; .github/workflows/release.yml runs it, as it may publish
	go run $(GORELEASER) release --clean

# What embeds a relay, emits and consumes must compile there as much as the program; the harness of the tests need not.
.PHONY: cross
cross: ## compile for macOS and Windows what can be used there; a minute or more, and nothing is run
	@for system in darwin/arm64 windows/amd64; do export GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0; \
	  echo "compile for $$system"; \
	  go build -tags $(TAGS) -trimpath -o /dev/null ./cmd/cdc-relay; \
	  go build -tags $(TAGS) -trimpath $$(go list ./... | grep -v '/test\(/\|$$\)'); \
	  for module in emit inbox; do (cd $$module && go build -trimpath ./...); done; done

.PHONY: release-dry-run
release-dry-run: release-check release-packages ## rehearse a release: RELEASING.md

.PHONY: release-packages
release-packages: ## build what npm, PyPI and Maven get of packages/, in dist; publishes nothing
	rm -rf .cache/packages && mkdir -p dist .cache && cp -r packages .cache/packages
	for package in typescript/{emit,inbox,testing} python/{emit,inbox}; do cp LICENSE .cache/packages/$$package; done
	cd .cache/packages/typescript && npm ci --silent --no-audit --no-fund && npm run --silent build && \
	  npm pack --silent --workspaces --pack-destination "$(CURDIR)/dist"
	python3 -m pip wheel --quiet --no-deps --wheel-dir dist .cache/packages/python/emit .cache/packages/python/inbox
	mvn -q -B -f .cache/packages/java/pom.xml package -DskipTests && cp .cache/packages/java/*/target/*.jar dist

.PHONY: release-check
release-check: ## make a release here, in dist, without publishing it; minutes of compiling
	@git remote get-url origin >/dev/null 2>&1 || { echo "this repository has no remote origin, and without one goreleaser" \
	  "knows no commit: rehearse in a clone"; exit 1; }
	go run $(GORELEASER) check
	skip=publish,sign; command -v syft >/dev/null || { echo "syft is not installed: no SBOM"; skip=$$skip,sbom; }; \
	  docker buildx ls >/dev/null 2>&1 || { echo "no docker with buildx: no images"; skip=$$skip,docker; }; \
	  HOMEBREW_TAP_TOKEN= go run $(GORELEASER) release --snapshot --clean --skip=$$skip
	cp install.sh dist && cd dist && sha256sum --check SHA256SUMS
	@version=$$("$$(ls -d dist/cdc-relay_linux_$$(go env GOARCH)*)/cdc-relay" version); echo "$$version"; \
	  grep -q "$$(git rev-parse --short=7 HEAD)" <<<"$$version" || { echo "the program does not name this commit"; exit 1; }
	@for binary in dist/cdc-relay_linux_*/cdc-relay; do for flag in CGO_ENABLED=0 -trimpath=true -tags=$(TAGS); do \
	  go version -m $$binary | grep -q -- "$$flag" || { echo "$$binary was built without $$flag"; exit 1; }; done; done

.PHONY: sbom
sbom: ## say what the program is made of, in dist, by the syft that makes the SBOMs of a release; compiles it the first time
	@mkdir -p dist && CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -o dist/cdc-relay ./cmd/cdc-relay
	go run $(SYFT) scan file:dist/cdc-relay --output spdx-json=dist/cdc-relay.spdx.json --enrich all
	@for module in $$(go version -m dist/cdc-relay | awk '$$1 == "dep" {print $$2}'); do \
	  grep -q "\"$$module\"" dist/cdc-relay.spdx.json || { echo "the SBOM lacks $$module"; exit 1; }; done

.PHONY: completions
completions: ## write the completion scripts that the packages carry into .cache/completions
	@mkdir -p .cache && CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -o .cache/cdc-relay ./cmd/cdc-relay
	@deploy/packages/completions.sh .cache/cdc-relay && rm .cache/cdc-relay

.PHONY: packages
packages: ## make the deb and the rpm for this machine's architecture, in dist; VERSION=0.1.0
	@NFPM=$(NFPM) TAGS=$(TAGS) deploy/packages/build.sh $(VERSION) dist

.PHONY: try-packages
try-packages: ## install the deb on this Debian as root, have it deliver, upgrade it under load, remove and purge it; a minute; BEFORE=<commit> to upgrade from
	@NFPM=$(NFPM) TAGS=$(TAGS) deploy/packages/try.sh

.PHONY: clean
clean: ## remove what the other targets made here
	rm -rf bin dist .cache
