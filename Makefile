# Everything here works on a fresh Debian machine with Go; as root it installs
# what it needs from Debian's packages, and says so.

export CGO_ENABLED ?= 0
GO ?= go

.PHONY: help build test race lint generate crash powerloss flood secrecy start bench demo

help: ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## build the static binary ./ichido
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ichido ./cmd/ichido

demo: ## watch it work
	$(GO) run ./cmd/ichido demo

test: ## run every test, the short forms of the harnesses included
	.ci/test

race: ## run the tests of the module under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race ./...

lint: ## vet, staticcheck, gofumpt, and whether generated files are current
	.ci/lint

generate: ## make the generated files again
	$(GO) generate ./...

bench: ## ratios against a floor and against one commit per request; about a quarter of an hour
	$(GO) run ./cmd/ichido bench

crash: ## 300 kill cycles of the real program with an outside oracle, and its controls
	cd integration && $(GO) run ./crash

powerloss: ## un-synced pages dropped at 300 points, the order of flushes and answers, and the controls
	cd integration && $(GO) run ./powerloss

flood: ## memory and a good sender's latency under floods, and the control
	cd integration && $(GO) run ./flood

secrecy: ## 100,000 requests with marked secrets, searched for in every output
	cd integration && $(GO) run ./secrecy

start: ## the size of the binary, and how soon it is ready with 1,000,000 stored events
	cd integration && $(GO) run ./start
