package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/ledger"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// firstEntrySuffix ends the path of a mutating webhook's first entry, whose failurePolicy
// is Ignore.
const firstEntrySuffix = "/first"

const (
	verbMutate         = "mutate"
	verbValidate       = "validate"
	verbValidateDelete = "validate-delete"
)

// Paths that Register mounts, where the API is served. The webhook configurations name
// them.
var (
	MutateIPAllocation        = webhookPath(verbMutate, ipAllocations{}.subject().Kind)
	ValidateIPAllocation      = webhookPath(verbValidate, ipAllocations{}.subject().Kind)
	ValidateNetworkPool       = webhookPath(verbValidate, networkPools{}.subject().Kind)
	ValidateDeleteNetworkPool = webhookPath(verbValidateDelete, networkPools{}.subject().Kind)
)

// webhookPath returns the path of a webhook, such as
// /mutate-butler-butlerlabs-dev-v1alpha1-ipallocation.
func webhookPath(verb string, kind schema.GroupVersionKind) string {
	return "/" + strings.Join([]string{verb, strings.ReplaceAll(kind.Group, ".", "-"), kind.Version, strings.ToLower(kind.Kind)}, "-")
}

// Options are the dependencies of the webhooks.
type Options struct {
	Ledger *ledger.Ledger
	// APIs are served by this replica. Calls for Others are forwarded to a replica that
	// serves these APIs.
	APIs, Others []API
	// Cached reads pools from the manager's informers.
	Cached client.Reader
	// Live reads pools, and the metadata of Namespaces, from the API server.
	Live client.Reader
	// Clusters are the Clusters of Cluster API.
	Clusters clusterpause.Clusters
	// Tenants reports whether TenantClusters are served. Otherwise TenantClusters must
	// not be read.
	Tenants bool
	// Identity is the name of this replica in the journal. Peers calls other replicas at
	// the addresses in their identities; nil without other replicas.
	Identity string
	Peers    *http.Client
	// Stopping is closed when this replica begins to stop; nil for never.
	Stopping <-chan struct{}
	Metrics  *review.Metrics // nil: no metrics
	Log      logr.Logger

	ownerKinds map[string]ownerKind // resource in the ledger -> kind of claims or address objects; the APIs add their kinds
}

// Register mounts the webhooks on a server, such as controller-runtime's webhook.Server.
func Register(server interface {
	Register(path string, hook http.Handler)
}, o Options) {
	o.Live, o.ownerKinds = newLiveReads(o.Live), map[string]ownerKind{}
	transport := review.NewTransport(review.Config{
		Ledger: o.Ledger, Peers: o.Peers, Identity: o.Identity, Stopping: o.Stopping, Metrics: o.Metrics, Log: o.Log,
	})
	hooks := map[string]review.Hook{}
	for _, api := range o.Others {
		api(o, hooks)
	}
	for path, h := range hooks {
		h.Func = unservedFunc(h.Subject.Kind.Kind)
		hooks[path] = h
	}
	for _, api := range o.APIs {
		api(o, hooks)
	}
	for path, h := range hooks {
		entry := review.OnlyEntry
		if strings.HasSuffix(path, firstEntrySuffix) {
			entry = review.FirstEntry
		} else if _, second := hooks[path+firstEntrySuffix]; second {
			entry = review.SecondEntry
		}
		server.Register(path, transport.NewHandler(h, entry))
	}
}

// API adds the webhooks of one API group to hooks, by path.
type API func(o Options, hooks map[string]review.Hook)

// Butler adds the webhooks of butler.butlerlabs.dev.
func Butler(o Options, hooks map[string]review.Hook) {
	addClaim(o, hooks, ipAllocations{})
	addPool(o, hooks, networkPools{}, true)
}

// NovaEdge adds the webhooks of novaedge.io.
func NovaEdge(o Options, hooks map[string]review.Hook) {
	addClaim(o, hooks, proxyVIPs{})
	addPool(o, hooks, proxyIPPools{}, true)
}

// Metal3 adds the webhooks of ipam.metal3.io.
func Metal3(o Options, hooks map[string]review.Hook) {
	addClaim(o, hooks, ipClaims{annotatedClaims[*metal3v1.IPClaim]{o.Cached, o.Clusters}})
	addAddressObject(o, hooks, ipAddresses{})
	addPool(o, hooks, ipPools{o.Clusters}, false) // as in Metal3, the deletion of an IPPool in use is accepted, and the pool stays until its owners are gone
}

// ClusterAPI adds the webhooks of ipam.cluster.x-k8s.io.
func ClusterAPI(o Options, hooks map[string]review.Hook) {
	addClaim(o, hooks, ipAddressClaims{annotatedClaims[*ipamv1.IPAddressClaim]{o.Cached, o.Clusters}})
	addAddressObject(o, hooks, clusterAddresses{})
}

// addClaim adds the webhooks of a claim.
func addClaim[T client.Object](o Options, hooks map[string]review.Hook, adapter claimAdapter[T]) {
	k := newClaims(o, adapter, strings.ToLower(adapter.subject().Kind.Kind))
	addOwner(o, hooks, k.ownerWebhooks, k.mutate, k.validate)
}

// addAddressObject adds the webhooks of an address object. Kubernetes has IPAddresses
// too, so kubectl explain needs the group.
func addAddressObject[T client.Object](o Options, hooks map[string]review.Hook, adapter ownerAdapter[T]) {
	k := &addressObjects[T]{newOwnerWebhooks(o, adapter, "ipaddresses."+adapter.subject().Kind.Group)}
	addOwner(o, hooks, k.ownerWebhooks, k.mutate, k.validate)
}

// addOwner adds the webhooks of a claim or an address object, and the kind to the owners
// of pools.
func addOwner[T client.Object](o Options, hooks map[string]review.Hook, k ownerWebhooks[T], mutate, validate review.HookFunc) {
	s := k.subject()
	o.ownerKinds[k.toClaim(k.newObject()).Key.Resource] = ownerKind{s.Kind, func() client.Object { return k.newObject() }}
	addHook(hooks, s, verbMutate, firstEntrySuffix, mutate)
	addHook(hooks, s, verbMutate, "", mutate)
	addHook(hooks, s, verbValidate, "", validate)
}

// addPool adds the webhooks of a pool; with deniesDeletion, also the webhook that denies
// the deletion of a pool in use.
func addPool[P client.Object](o Options, hooks map[string]review.Hook, pool poolAdapter[P], deniesDeletion bool) {
	p := &pools[P]{poolAdapter: pool, ledger: o.Ledger, cached: o.Cached, live: o.Live, owners: owners{cached: o.Cached, live: o.Live, kinds: o.ownerKinds, tenants: o.Tenants},
		cluster: clusterAddressUse{o.Ledger, o.Live, o.Log}, waiting: make(chan struct{}, maxWaitingDeletes), log: o.Log}
	addHook(hooks, p.subject(), verbMutate, "", p.mutate)
	addHook(hooks, p.subject(), verbValidate, "", p.validate)
	if deniesDeletion {
		addHook(hooks, p.subject(), verbValidateDelete, "", p.validateDelete)
	}
}

func addHook(hooks map[string]review.Hook, s review.Subject, verb, suffix string, f review.HookFunc) {
	hooks[webhookPath(verb, s.Kind)+suffix] = review.Hook{Name: verb + "-" + strings.ToLower(s.Kind.Kind), Subject: s, Func: f}
}

// unservedFunc returns the function of a webhook whose kind this replica does not serve.
// Another replica may serve the kind while an API is being switched on or off.
func unservedFunc(kind string) review.HookFunc {
	return func(context.Context, *admission.Request) (admission.Response, error) {
		return admission.Response{}, &ledger.NotServingError{RetryAfter: time.Second,
			Reason: fmt.Sprintf("the API of %s is not served by this replica: enable the API, or remove the webhooks of the API", kind)}
	}
}
