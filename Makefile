# Butler IPAM. Needs Go, git, make and a C compiler (for the race detector); everything else is
# built from pinned Go modules into bin/ the first time it is used.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

GO ?= go
BIN := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# What a run can be given, as in `make sandbox REPLICAS=3`.
REPLICAS ?= 2
SANDBOX_DIR ?= bin/sandbox
RESTART ?=
KEEP ?=
CLUSTERAPI ?=
CONTROLLERS ?=
TENANTS ?=
ALL ?=
PEERS ?=
FUZZTIME ?= 10m
SCHEDULES ?= 50000
PACKAGES ?= $(shell getconf _NPROCESSORS_ONLN)
PREVIOUS ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null)
VERSIONS ?= $(patsubst test/controlplane/%.mod,%,$(wildcard test/controlplane/v*.mod))
IMAGE ?= docker.io/library/butler-ipam
ARCHS ?= $(shell $(GO) env GOARCH)
RELEASE ?= $(BIN)/release
RELEASE_URL ?= https://downloads.example.com/butler-ipam/$(VERSION)

CHART := charts/butler-ipam
# Modules of their own with code of this project: their dependencies are not the manager's.
MODULES := $(addprefix test/,gitops clusterctl clients console api/costs chart/alerts tools/image tools/envtest tools/release cluster/cert-manager cluster/coredns)
TESTED := $(addprefix test/,api/costs chart/alerts gitops clusterctl tools/image tools/envtest tools/release) # by make test
CLUSTER := $(BIN)/cluster

##@ General

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*##"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*##/ {printf "  make %-18s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: clean
clean: ## Remove bin/ (the next run builds the control plane again, some minutes)
	@[ ! -e $(CLUSTER)/pid ] || $(MAKE) cluster-down
	rm -rf bin

##@ Develop

.PHONY: generate
generate: $(BIN)/controller-gen ## Write the deepcopy functions of the API types
	$(BIN)/controller-gen object paths=./api/...

.PHONY: manifests
manifests: $(BIN)/controller-gen ## Write config/crd, config/tenants and config/rbac/role.yaml from the markers in the code, the chart's files from config/ and values.yaml, and the table in test/README.md
	$(BIN)/controller-gen crd paths=./api/... output:crd:dir=config/crd
	mv config/crd/butler.butlerlabs.dev_{providerconfigs,tenantclusters}.yaml config/tenants
	cd config/crd && LC_ALL=C && printf '%s\n' 'apiVersion: kustomize.config.k8s.io/v1beta1' 'kind: Kustomization' resources: > kustomization.yaml && printf -- '- %s\n' *_*.yaml >> kustomization.yaml
	$(BIN)/controller-gen rbac:roleName=butler-ipam paths=./cmd/... paths=./reconcilers paths=./reconcilers/clusters paths=./reconcilers/inuse paths=./reconcilers/pools paths=./webhooks/... paths=./allocator/... output:rbac:dir=config/rbac
	$(BIN)/controller-gen rbac:roleName=butler-ipam-tenants paths=./reconcilers/tenants/... output:rbac:dir=config/tenants/rbac
	rm -rf $(CHART)/files/config && mkdir $(CHART)/files/config
	find config/{crd,rbac,webhook,manager} -name '*.yaml' $(patsubst %,! -name '%.yaml',kustomization namespace deployment) -exec cp {} $(CHART)/files/config \;
	rm -rf $(CHART)/files/tenants && mkdir -p $(CHART)/files/tenants/{crds,config}
	cp config/tenants/butler.butlerlabs.dev_*.yaml $(CHART)/files/tenants/crds
	cp config/tenants/rbac/{role,role_binding,user_roles}.yaml config/tenants/webhook/manifests.yaml $(CHART)/files/tenants/config
	$(GO) run ./test/chart/values $(CHART)
	$(GO) run ./test/readme/packages test/README.md

.PHONY: fmt
fmt: ## Format all Go code
	$(GO) fmt ./...

.PHONY: tidy
tidy: ## Tidy go.mod
	$(GO) mod tidy

.PHONY: vet
vet: ## Run go vet
	$(GO) vet -tags cluster,upgrade ./...
	$(GO) vet -tags chaos ./cmd/butler-ipam

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/helm ## Run the linters, which also hold the import arrows between the packages
	$(BIN)/golangci-lint run --build-tags cluster,upgrade ./...
	$(BIN)/golangci-lint run --build-tags chaos ./cmd/butler-ipam
	@for module in $(MODULES); do echo "$$module"; (cd $$module && $(BIN)/golangci-lint run ./...); done
	$(BIN)/helm lint --strict $(CHART)

.PHONY: verify
verify: ## Fail when generated files, formatting or go.mod are not what is committed
	$(MAKE) generate manifests
	$(MAKE) fmt tidy
	git diff --exit-code
	@new=$$(git ls-files --others --exclude-standard); \
	if [ -n "$$new" ]; then echo "verify: files that are neither committed nor ignored:"; echo "$$new"; exit 1; fi >&2

.PHONY: render
render: $(BIN)/kustomize ## Print what config/default installs in a cluster
	@$(BIN)/kustomize build config/default

##@ Build

# Without the repository's state, which differs where the source is the same. The version says what was built.
BUILD := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

.PHONY: build
build: ## Build bin/butler-ipam and bin/kubectl-ipam, static binaries
	$(BUILD) -o $(BIN)/butler-ipam ./cmd/butler-ipam
	$(BUILD) -o $(BIN)/kubectl-ipam ./cmd/kubectl-ipam
	cp cmd/kubectl-ipam/kubectl_complete-ipam $(BIN)

# write_image DIR,ARCHS
define write_image
$(foreach arch,$2,GOOS=linux GOARCH=$(arch) $(BUILD) -o $(BIN)/image/$(arch)/butler-ipam ./cmd/butler-ipam;)
$(GO) run -C test/tools/image . -name $(IMAGE):$(VERSION) -out $1/butler-ipam-image.tar $(foreach arch,$2,$(arch)=$(BIN)/image/$(arch)/butler-ipam)
endef

.PHONY: image
image: ## Write bin/butler-ipam-image.tar, an OCI archive of IMAGE:VERSION for ARCHS (this machine's), and its bill of materials
	$(call write_image,$(BIN),$(ARCHS))

RELEASE_TOOL = $(GO) run -C test/tools/release . -version '$(VERSION)'
PLATFORMS := $(foreach os,linux darwin windows,$(os)/amd64 $(os)/arm64)

.PHONY: release
release: $(BIN)/helm $(BIN)/kustomize ## Write bin/release: images, chart, manifests, plugin, krew manifest, notes and checksums of VERSION (v1.2.3; a tag of the commit); IMAGE, RELEASE_URL
	@$(RELEASE_TOOL) -check
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	$(call write_image,$(RELEASE),amd64 arm64)
	$(foreach p,$(PLATFORMS),GOOS=$(patsubst %/,%,$(dir $(p))) GOARCH=$(notdir $(p)) $(BUILD) -o $(BIN)/plugins/$(p)/ ./cmd/kubectl-ipam;)
	$(RELEASE_TOOL) -image '$(IMAGE)' -url '$(RELEASE_URL)' -plugins $(BIN)/plugins -tools $(BIN) -out $(RELEASE) $(PLATFORMS)

.PHONY: release-check
release-check: controlplane $(BIN)/helm $(BIN)/kustomize ## Make a release of the last commit twice, compare, and install what it has
	$(GO) test -C test/tools/release -tags release -count=1 -v -timeout 60m ./...

.PHONY: controlplane
controlplane: ## Download etcd, kube-apiserver and kubectl or, where that fails, build them; ENVTEST_INDEX=none, or KUBEBUILDER_ASSETS with others

##@ Test

.PHONY: test
test: controlplane build race metallb $(BIN)/helm $(BIN)/crds $(BIN)/clusterapi ## Run every test, under the race detector and on a real API server, PACKAGES (one for each processor) at once
	$(GO) test ./allocator/... ./cmd/kubectl-ipam/... # all rounds of the model and of the oracle, of which the race detector gets a part
	$(MAKE) test-packages
	$(MAKE) test-modules

# RACED have the product's code in the process of the test. In the other packages the product runs as bin/butler-ipam: the race detector would watch the code
# of the test only. Package claims, which uses all kinds of claims, gets a manager that is built with the race detector (RACE_MANAGER).
RACED := $(addprefix ./,allocator/... api/... cmd/... reconcilers/... webhooks/... test/ledger)

# The longest packages come first: none is left alone at the end. With more packages than processors, creates of a test fail (seen with three packages on two
# processors). API servers collect garbage less often with GOGC=400, and take 14 to 20 % less CPU.
.PHONY: test-packages
test-packages:
	$(GO) build -race -o $(BIN)/butler-ipam-race ./cmd/butler-ipam
	GOGC=400 RACE_MANAGER=$(BIN)/butler-ipam-race $(GO) test -p $(PACKAGES) -timeout 20m $(addprefix ./test/,tenants butler novaedge replicas metal3 claims switches backoff) $$($(GO) list ./test/... | grep -v /test/ledger$$)
	$(GO) test -race -p $(PACKAGES) -timeout 20m $(RACED)
	$(GO) test -race -tags chaos ./cmd/butler-ipam

.PHONY: test-modules
test-modules:
	@# With -count=1: a result in the cache takes no notice of files outside of the module, and of programs that a test runs.
	@for module in $(TESTED); do echo "$$module"; $(GO) test -C $$module -count=1 ./...; done

.PHONY: test-chart
test-chart: controlplane $(BIN)/helm $(BIN)/crds ## Run the tests of the Helm chart
	$(BIN)/helm lint --strict $(CHART)
	$(GO) test ./test/chart/...
	$(GO) test -C test/chart/alerts -count=1 ./...

.PHONY: test-versions
test-versions: controlplane build $(addprefix $(BIN)/,helm crds clusterapi) $(foreach v,$(VERSIONS),$(BIN)/versions/$(v)/kube-apiserver) ## Run the tests of the APIs, of all kinds of claims and of the chart on kube-apiservers of older VERSIONS ('v1.31 v1.32'; every supported one)
	@failed=; for v in $(VERSIONS); do \
	  export KUBEBUILDER_ASSETS=$(BIN)/versions/$$v; $$KUBEBUILDER_ASSETS/kube-apiserver --version; \
	  $(GO) test -short -count=1 -timeout 15m $(addprefix ./test/,claims butler chart api) || failed+=" $$v"; \
	done; [ -z "$$failed" ] || { echo "test-versions: failed on$$failed" >&2; exit 1; }

.PHONY: test-upgrade
test-upgrade: controlplane build $(BIN)/clusterapi ## Upgrade from PREVIOUS (the last tag before this commit, or any commit) to this version and back, with claims of every kind
	@[ -n '$(PREVIOUS)' ] || { echo 'test-upgrade: no earlier commit has a tag: set PREVIOUS to a commit' >&2; exit 1; }
	rm -rf $(BIN)/previous && mkdir -p $(BIN)/previous && git archive '$(PREVIOUS)' | tar -x -C $(BIN)/previous
	$(MAKE) -C $(BIN)/previous build BIN=$(BIN)/previous/bin VERSION='$(PREVIOUS)'
	PREVIOUS_DIR=$(BIN)/previous $(GO) test -tags upgrade -count=1 -v -timeout 20m ./test/upgrade

.PHONY: test-gitops
test-gitops: controlplane build ## Run the engines of Flux and Argo CD against the API server
	$(GO) test -C test/gitops -count=1 ./...

.PHONY: soak-tenants
soak-tenants: controlplane build metallb ## Put mixed load on a tenant for DURATION (30m), timers at a twentieth, and see that it comes to rest each time
	TENANTS_SOAK='$(or $(DURATION),30m)' $(GO) test ./test/tenants -count=1 -v -timeout 0 -run TestSoak

.PHONY: test-check
test-check: controlplane build ## Run check RUNS (300) times while clients change Services, claims, pools and Nodes: every error must be true
	CHECK_RUNS='$(or $(RUNS),300)' $(GO) test ./test/plugin -count=1 -v -timeout 0 -run TestCheck_WhileObjectsChange

.PHONY: test-backoff
test-backoff: controlplane build $(BIN)/clusterapi ## Refuse the writes for 40 claims of every kind for SETTLE (5m), and count the calls of the minute after that
	BACKOFF_SETTLE='$(or $(SETTLE),5m)' BACKOFF_WINDOW=1m $(GO) test ./test/backoff -count=1 -v -timeout 20m

.PHONY: test-clusterctl
test-clusterctl: controlplane build $(BIN)/clusterapi ## Move claims between two control planes with clusterctl
	$(GO) test -C test/clusterctl -count=1 ./...

.PHONY: test-clients
test-clients: controlplane build $(addprefix $(BIN)/,clusterapi kube-controller-manager tofu terraform-provider-kubectl capm3 capm3-crds) ## Run OpenTofu and the manager of Cluster API Provider Metal3 against the API server; each builds for some minutes, once
	$(GO) test -C test/clients -count=1 -timeout 20m ./...

.PHONY: test-console
test-console: controlplane build $(BIN)/helm ## Look at the pages of the console with Chromium, which make console-packages installs
	$(GO) test -C test/console -count=1 ./...

.PHONY: console-packages
console-packages: ## Install the browser of make test-console (Debian, Ubuntu)
	apt-get update
	apt-get install --yes --no-install-recommends chromium

.PHONY: test-core
test-core: race ## Run the tests of the allocator, which need no API server
	$(GO) test -race ./allocator/...

.PHONY: fuzz
fuzz: ## Fuzz every target of the allocator for FUZZTIME (10m) each
	@for pkg in $$($(GO) list ./allocator/...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg; \
	  done; \
	done

.PHONY: model
model: ## Check SCHEDULES (50000) random schedules of the allocation protocol
	MODEL_SCHEDULES=$(SCHEDULES) $(GO) test ./allocator/state -count=1 -timeout 0 -run TestModel

.PHONY: chaos
chaos: controlplane $(BIN)/clusterapi ## Hurt REPLICAS (3) managers under CLIENTS (16) for DURATION (2m) and check the history; SEED, FAULTS=all
	$(BUILD) -tags chaos -o $(BIN)/butler-ipam-chaos ./cmd/butler-ipam
	$(GO) build -o $(BIN)/chaos ./test/chaos
	exec $(BIN)/chaos -duration '$(or $(DURATION),2m)' -replicas $(if $(filter command line environment,$(origin REPLICAS)),$(REPLICAS),3) $(if $(CLIENTS),-clients $(CLIENTS)) $(if $(SEED),-seed $(SEED)) $(if $(FAULTS),-faults '$(FAULTS)')

.PHONY: bench
bench: controlplane build metallb $(BIN)/clusterapi $(if $(filter 1,$(PEERS)),peers) ## Measure creates and the core, print a table, write bin/bench.json; ALL=1 measures everything, for hours; PEERS=1 also two other allocators
	$(GO) run ./test/bench $(if $(ALL),-all) $(if $(filter 1,$(PEERS)),-peers)

.PHONY: bench-plugin
bench-plugin: controlplane build $(BIN)/clusterapi ## Measure time and memory of each command of kubectl ipam with CLAIMS (10000) claims, and write a session of them to bin/session.md
	PLUGIN_CLAIMS='$(or $(CLAIMS),10000)' PLUGIN_SESSION=$(BIN)/session.md $(GO) test ./test/plugin -count=1 -v -timeout 20m -run TestScale

##@ Cluster (Linux, root)

.PHONY: test-cluster
test-cluster: cluster-parts ## Test image and chart on a fresh cluster of one node, which ends with the tests; KEEP=1 leaves it up, RUN
	@$(if $(filter 1,$(KEEP)),,trap '$(CLUSTER)/node down' EXIT;) $(CLUSTER)/node down; $(CLUSTER_UP); \
	IMAGE='$(IMAGE)' VERSION='$(VERSION)' $(GO) test -tags cluster -exec $(CLUSTER)/in -count=1 -v -timeout 30m $(if $(RUN),-run '$(RUN)') ./test/cluster

.PHONY: cluster-up
cluster-up: cluster-parts ## Run such a cluster, with cert-manager, until make cluster-down
	@$(CLUSTER_UP)
	@echo 'it is up: $(CLUSTER)/kubectl get pods -A, or $(CLUSTER)/in COMMAND'

.PHONY: cluster-down
cluster-down: $(CLUSTER)/node ## End that cluster; its logs stay in bin/cluster/logs
	@$(CLUSTER)/node down

.PHONY: cluster-packages
cluster-packages: ## Install what the cluster needs and no Go module has (Debian, Ubuntu)
	apt-get update
	apt-get install --yes --no-install-recommends containerd runc iptables conntrack containernetworking-plugins iproute2 util-linux

##@ Try

.PHONY: demo
demo: controlplane build ## Show a pool, allocations, a denial, the address map and an owner, on a control plane of its own
	@$(GO) build -o $(BIN)/demo ./test/sandbox/demo
	@exec $(BIN)/demo

.PHONY: sandbox
sandbox: controlplane build $(if $(filter 1,$(CLUSTERAPI)),$(BIN)/clusterapi) $(if $(filter 1,$(CONTROLLERS)),$(BIN)/kube-controller-manager) ## Run a control plane with REPLICAS (2) managers in SANDBOX_DIR (bin/sandbox) until interrupted; RESTART=1, KEEP=1, with CLUSTERAPI=1, TENANTS=1, CONTROLLERS=1 (kube-controller-manager)
	@$(GO) build -o $(BIN)/sandbox-run ./test/sandbox/cmd
	@exec $(BIN)/sandbox-run -dir '$(SANDBOX_DIR)' -replicas $(REPLICAS) $(if $(filter 1,$(RESTART)),-restart) $(if $(filter 1,$(KEEP)),-keep) \
	  $(if $(filter 1,$(CLUSTERAPI)),-clusterapi) $(if $(filter 1,$(TENANTS)),-tenants) $(if $(filter 1,$(CONTROLLERS)),-controllers)

# Below: how the binaries that these targets use come about.

bin/%: $(BIN)/% ; @:

# The version of Kubernetes that KUBE_MOD requires: go.mod the newest, v1.31.mod an older one.
KUBE_MOD := go.mod
KUBE_VERSION = $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' test/controlplane/$(KUBE_MOD))
KUBE_MAJOR_MINOR = $(subst ., ,$(KUBE_VERSION:v%=%))
# Clients and servers compare these numbers, so a build without them behaves like Kubernetes 0.0.
KUBE_VERSION_PKG := k8s.io/component-base/version
KUBE_LDFLAGS = -s -w -X $(KUBE_VERSION_PKG).gitVersion=$(KUBE_VERSION) \
  -X $(KUBE_VERSION_PKG).gitMajor=$(word 1,$(KUBE_MAJOR_MINOR)) -X $(KUBE_VERSION_PKG).gitMinor=$(word 2,$(KUBE_MAJOR_MINOR))

# Compiles up to 1,500 packages, and prints how many it has compiled.
KUBE_BUILD = echo "building $(@F) from test/controlplane/$(KUBE_MOD) (once; some minutes with an empty build cache)" >&2; \
  export CGO_ENABLED=0; flags='-C test/controlplane -modfile=$(KUBE_MOD)'; \
  $(GO) build $$flags -v -trimpath -ldflags '$(KUBE_LDFLAGS)' -o $@ $(PACKAGE) 2>&1 | \
  awk -v total="$$($(GO) list $$flags -deps $(PACKAGE) | wc -l)" -f test/controlplane/progress.awk >&2

CONTROLPLANE := etcd kube-apiserver kubectl
NODE := kube-controller-manager kube-scheduler kube-proxy kubelet
ifneq ($(KUBEBUILDER_ASSETS),)
ASSETS := $(abspath $(KUBEBUILDER_ASSETS))
controlplane:
	@for name in $(CONTROLPLANE); do \
	  [ -x "$(ASSETS)/$$name" ] || { echo "KUBEBUILDER_ASSETS=$(KUBEBUILDER_ASSETS) holds no $$name: add it, or unset KUBEBUILDER_ASSETS to have it built" >&2; exit 1; }; \
	done
else
ASSETS := $(BIN)
controlplane: $(addprefix $(BIN)/,$(CONTROLPLANE))
endif
export KUBEBUILDER_ASSETS = $(ASSETS)

$(addprefix $(BIN)/,$(CONTROLPLANE) $(NODE)): PACKAGE = k8s.io/kubernetes/cmd/$(notdir $@)
$(BIN)/etcd: PACKAGE := go.etcd.io/etcd/server/v3
$(addprefix $(BIN)/,$(CONTROLPLANE) $(NODE)): test/controlplane/go.mod test/controlplane/go.sum
	@if [ -x $(BIN)/prebuilt/$(@F) ]; then mv $(BIN)/prebuilt/$(@F) $@; else $(KUBE_BUILD); fi
	@touch $@

# Where the control plane is missing, a release of it is downloaded if one can be had: that takes seconds where building takes minutes.
ifneq ($(words $(wildcard $(addprefix $(BIN)/,$(CONTROLPLANE)))),$(words $(CONTROLPLANE)))
$(addprefix $(BIN)/,$(CONTROLPLANE)): | prebuilt
endif
.PHONY: prebuilt
prebuilt:
	@test/tools/envtest/prebuilt.sh $(KUBE_VERSION) $(BIN)/prebuilt

# API servers of older versions, each in a directory that KUBEBUILDER_ASSETS can name: with the etcd and kubectl of the newest.
# test/controlplane/pin.sh writes their .mod and .sum files.
$(BIN)/versions/%/kube-apiserver: KUBE_MOD = $*.mod
$(BIN)/versions/%/kube-apiserver: PACKAGE := k8s.io/kubernetes/cmd/kube-apiserver
$(BIN)/versions/%/kube-apiserver: test/controlplane/%.mod test/controlplane/%.sum
	@$(KUBE_BUILD)
	@ln -sf $(addprefix $(ASSETS)/,etcd kubectl) $(@D)
	@touch $@

$(BIN)/controller-gen: PACKAGE := sigs.k8s.io/controller-tools/cmd/controller-gen
$(BIN)/kustomize: PACKAGE := sigs.k8s.io/kustomize/kustomize/v5
$(BIN)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/controller-gen $(BIN)/kustomize: MODULE := test/tools
$(BIN)/controller-gen $(BIN)/kustomize: test/tools/go.mod test/tools/go.sum
# Modules of their own: with the others in one, their dependencies contradict each other.
$(BIN)/golangci-lint: MODULE := test/tools/lint
$(BIN)/golangci-lint: test/tools/lint/go.mod test/tools/lint/go.sum
$(BIN)/helm: PACKAGE := helm.sh/helm/v4/cmd/helm
$(BIN)/helm: MODULE := test/tools/helm
$(BIN)/helm: test/tools/helm/go.mod test/tools/helm/go.sum
$(BIN)/tofu: PACKAGE := github.com/opentofu/opentofu/cmd/tofu
$(BIN)/tofu: MODULE := test/clients/opentofu
$(BIN)/tofu: test/clients/opentofu/go.mod test/clients/opentofu/go.sum
$(BIN)/terraform-provider-kubectl: PACKAGE := github.com/gavinbunney/terraform-provider-kubectl
$(BIN)/terraform-provider-kubectl: MODULE := test/clients/kubectl
$(BIN)/terraform-provider-kubectl: test/clients/kubectl/go.mod test/clients/kubectl/go.sum
# The checksum database lacks Cluster API Provider Metal3 and its module api: go.sum pins the hashes, and each download is verified with them. For another
# version: GONOSUMDB=github.com/metal3-io/cluster-api-provider-metal3 go -C test/clients/capm3 get -tool github.com/metal3-io/cluster-api-provider-metal3@VERSION
$(BIN)/capm3: PACKAGE := github.com/metal3-io/cluster-api-provider-metal3
$(BIN)/capm3: MODULE := test/clients/capm3
$(BIN)/capm3: test/clients/capm3/go.mod test/clients/capm3/go.sum
$(addprefix $(BIN)/,controller-gen kustomize golangci-lint helm tofu terraform-provider-kubectl capm3):
	@echo "building $(notdir $@) from $(MODULE)/go.mod (once)" >&2
	@CGO_ENABLED=0 $(GO) build -C $(MODULE) -trimpath -ldflags '-s -w' -o $@ $(PACKAGE)
	@touch $@

# Kinds of others: of bin/crds the chart has objects, those of bin/clusterapi managers serve and read.
$(BIN)/crds: test/chart/crds/go.mod test/chart/crds/go.sum
	@rm -rf $@ && mkdir -p $@
	@$(GO) mod download -C test/chart/crds
	@cp $$($(GO) list -C test/chart/crds -m -f '{{.Dir}}' github.com/cert-manager/cert-manager)/deploy/crds/cert-manager.io_{certificates,issuers}.yaml $@
	@cp $$($(GO) list -C test/chart/crds -m -f '{{.Dir}}' github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml $@

$(BIN)/clusterapi: test/chart/crds/go.mod test/chart/crds/go.sum
	@rm -rf $@ && mkdir -p $@
	@$(GO) mod download -C test/chart/crds
	@cp $$($(GO) list -C test/chart/crds -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)/core/config/crd/bases/{cluster.x-k8s.io_{clusters,machines},ipam.cluster.x-k8s.io_{ipaddressclaims,ipaddresses}}.yaml $@

$(BIN)/capm3-crds: test/clients/capm3/go.mod test/clients/capm3/go.sum
	@rm -rf $@ && mkdir -p $@
	@$(GO) mod download -C test/clients/capm3 github.com/metal3-io/cluster-api-provider-metal3
	@cp $$($(GO) list -C test/clients/capm3 -m -f '{{.Dir}}' github.com/metal3-io/cluster-api-provider-metal3)/config/crd/bases/*.yaml $@
	@chmod -R u+w $@

# MetalLB's controller and its CRDs, for the tests of tenants.
.PHONY: metallb
metallb: $(BIN)/metallb-controller $(BIN)/metallb-crds
$(BIN)/metallb-controller: test/metallb/go.mod test/metallb/go.sum
	@echo "building $(@F) from test/metallb/go.mod (once)" >&2
	@CGO_ENABLED=0 $(GO) build -C test/metallb -trimpath -ldflags '-s -w' -o $@ go.universe.tf/metallb/controller
	@touch $@
$(BIN)/metallb-crds: test/metallb/go.mod test/metallb/go.sum
	@rm -rf $@ && mkdir -p $@
	@cp $$($(GO) list -C test/metallb -m -f '{{.Dir}}' go.universe.tf/metallb)/config/crd/bases/*.yaml $@
	@chmod -R u+w $@

# The allocators that bench compares with, with the CRDs of their modules: Metal3's ip-address-manager and Cluster API's in-cluster provider. The checksum
# database lacks ip-address-manager: go.sum pins the hash.
.PHONY: peers
peers: $(addprefix $(BIN)/peers/,metal3 metal3-crds in-cluster in-cluster-lifted in-cluster-crds)
METAL3 := github.com/metal3-io/ip-address-manager
INCLUSTER := sigs.k8s.io/cluster-api-ipam-provider-in-cluster
$(BIN)/peers/metal3 $(BIN)/peers/metal3-crds: MODULE := metal3
$(BIN)/peers/metal3 $(BIN)/peers/metal3-crds: PACKAGE := $(METAL3)
$(BIN)/peers/metal3 $(BIN)/peers/metal3-crds: test/peers/metal3/go.mod test/peers/metal3/go.sum
$(BIN)/peers/in-cluster $(BIN)/peers/in-cluster-crds $(BIN)/peers/in-cluster-lifted: MODULE := in-cluster
$(BIN)/peers/in-cluster $(BIN)/peers/in-cluster-crds $(BIN)/peers/in-cluster-lifted: PACKAGE := $(INCLUSTER)
$(BIN)/peers/in-cluster $(BIN)/peers/in-cluster-crds $(BIN)/peers/in-cluster-lifted: test/peers/in-cluster/go.mod test/peers/in-cluster/go.sum
$(BIN)/peers/metal3 $(BIN)/peers/in-cluster:
	@echo "building $(@F) from test/peers/$(MODULE)/go.mod (once)" >&2
	@CGO_ENABLED=0 $(GO) build -C test/peers/$(MODULE) -trimpath -ldflags '-s -w' -o $@ $(PACKAGE)
	@touch $@
$(BIN)/peers/metal3-crds $(BIN)/peers/in-cluster-crds:
	@rm -rf $@ && mkdir -p $@
	@cp $$($(GO) list -C test/peers/$(MODULE) -m -f '{{.Dir}}' $(PACKAGE))/config/crd/bases/*.yaml $@
	@chmod -R u+w $@
# The in-cluster provider has no flag for the limit of its client. Its copy differs in one line of main.go, and has the dependencies of its own go.mod.
$(BIN)/peers/in-cluster-lifted:
	@echo "building $(@F): $(MODULE) without the limit of its client (once)" >&2
	@rm -rf $@-source && cp -r "$$($(GO) list -C test/peers/$(MODULE) -m -f '{{.Dir}}' $(PACKAGE))" $@-source && chmod -R u+w $@-source
	@sed -i 's/^\tmgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), opts)$$/\tconfig := ctrl.GetConfigOrDie()\n\tconfig.QPS = -1\n\tmgr, err := ctrl.NewManager(config, opts)/' $@-source/main.go
	@grep -q 'config.QPS = -1' $@-source/main.go
	@CGO_ENABLED=0 $(GO) build -C $@-source -trimpath -buildvcs=false -ldflags '-s -w' -o $@ .
	@rm -rf $@-source

CLUSTER_IMAGES := $(addprefix $(CLUSTER)/,pause.tar coredns.tar cert-manager.tar)
CLUSTER_UP = $(CLUSTER)/node -path '$(ASSETS):$(BIN)' up $(BIN)/butler-ipam-image.tar $(CLUSTER_IMAGES); \
  test/cluster/platform.sh $(CLUSTER)/kubectl "$$($(GO) list -C test/cluster/cert-manager -m -f '{{.Dir}}' github.com/cert-manager/cert-manager)"

.PHONY: cluster-parts cluster-machine
cluster-parts: cluster-machine controlplane $(addprefix $(BIN)/,$(NODE) helm) image $(CLUSTER_IMAGES)
cluster-machine: $(CLUSTER)/node
	@$(CLUSTER)/node check

$(CLUSTER_IMAGES): $(CLUSTER)/%.tar: $(CLUSTER)/% $(wildcard test/tools/image/*)
	@$(GO) run -C test/tools/image . -name localhost/$*:1 -out $@ $$($(GO) env GOARCH)=$<

$(CLUSTER)/node: $(wildcard test/cluster/node/* test/cluster/node/etc/* test/pki/*.go) go.sum
$(CLUSTER)/pause: test/cluster/pause/main.go
$(CLUSTER)/node $(CLUSTER)/pause:
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $@ ./test/cluster/$(@F)

$(CLUSTER)/coredns: $(wildcard test/cluster/coredns/*)
$(CLUSTER)/cert-manager: $(wildcard test/cluster/cert-manager/*)
$(CLUSTER)/coredns $(CLUSTER)/cert-manager:
	@echo "building $(@F) from test/cluster/$(@F)/go.mod (once)" >&2
	@CGO_ENABLED=0 $(GO) build -C test/cluster/$(@F) -trimpath -ldflags '-s -w' -o $@ .

.PHONY: race
race:
	@cc=$$($(GO) env CC); command -v $${cc%% *} >/dev/null || \
	  { echo "the race detector needs a C compiler and '$$cc' is not installed: install gcc or clang, or set CC" >&2; exit 1; }
	@[ "$$($(GO) env CGO_ENABLED)" = 1 ] || \
	  { echo "the race detector needs cgo: unset CGO_ENABLED=0" >&2; exit 1; }
