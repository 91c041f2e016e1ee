package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// firstTry follows the path of a mutating webhook in the entry that the API server asks first, and may ignore.
const firstTry = "/first"

const (
	verbMutate         = "mutate"
	verbValidate       = "validate"
	verbValidateDelete = "validate-delete"
)

// Paths that Register mounts, where the API is served. The webhook configurations name them.
var (
	MutateIPAllocation        = path(verbMutate, ipAllocations{}.subject().kind)
	ValidateIPAllocation      = path(verbValidate, ipAllocations{}.subject().kind)
	ValidateNetworkPool       = path(verbValidate, networkPools{}.subject().kind)
	ValidateDeleteNetworkPool = path(verbValidateDelete, networkPools{}.subject().kind)
)

// path is where a webhook is mounted, as in /mutate-butler-butlerlabs-dev-v1alpha1-ipallocation.
func path(verb string, kind schema.GroupVersionKind) string {
	return "/" + strings.Join([]string{verb, strings.ReplaceAll(kind.Group, ".", "-"), kind.Version, strings.ToLower(kind.Kind)}, "-")
}

// Options are what the webhooks stand on.
type Options struct {
	Ledger *ledger.Ledger
	// APIs are those that are served, Others those that this replica is told not to serve: their calls go to the replica that does.
	APIs, Others []API
	// Cached reads pools from the manager's informers.
	Cached client.Reader
	// Live reads pools, and the metadata of Namespaces, from the API server itself.
	Live client.Reader
	// Clusters are those of Cluster API.
	Clusters metal3.Clusters
	// Tenants reports whether TenantClusters are served: only then may they be read.
	Tenants bool
	// Identity of this replica in the journal, and a client that reaches the others at the addresses which theirs say; nil where there
	// are none.
	Identity string
	Peers    *http.Client
	// Stopping is closed when this replica begins to stop; nil where it never does.
	Stopping <-chan struct{}
	Metrics  *Metrics // measured nowhere where nil
	Log      logr.Logger
}

// Register mounts every webhook on a server, such as controller-runtime's webhook.Server.
func Register(server interface {
	Register(path string, hook http.Handler)
}, o Options) {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	o.Live = newLiveReads(o.Live)
	places := newPlaces(maxCalls, maxLarge)
	again := &repeats{until: map[types.UID]time.Time{}}
	hooks := map[string]hook{}
	for _, api := range o.Others {
		api(o, hooks)
	}
	for path, h := range hooks {
		h.answer = elsewhere(h.subject.kind.Kind)
		hooks[path] = h
	}
	for _, api := range o.APIs {
		api(o, hooks)
	}
	for path, h := range hooks {
		_, second := hooks[path+firstTry]
		server.Register(path, &edge{
			hook: h, first: strings.HasSuffix(path, firstTry), second: second, ledger: o.Ledger, peers: o.Peers, identity: o.Identity,
			places: places, repeats: again, stopping: o.Stopping, metrics: o.Metrics, log: o.Log.WithValues("webhook", h.name),
		})
	}
}

// API is the webhooks of one API group: it adds them to those that Register mounts.
type API func(o Options, hooks map[string]hook)

// Butler is the webhooks of butler.butlerlabs.dev.
func Butler(o Options, hooks map[string]hook) {
	addClaim(o, hooks, ipAllocations{})
	addPool(o, hooks, networkPools{}, true)
}

// NovaEdge is the webhooks of novaedge.io.
func NovaEdge(o Options, hooks map[string]hook) {
	addClaim(o, hooks, proxyVIPs{})
	addPool(o, hooks, proxyIPPools{clusterUse{o.Live, o.Log}}, true)
}

// Metal3 is the webhooks of ipam.metal3.io.
func Metal3(o Options, hooks map[string]hook) {
	addClaim(o, hooks, ipClaims{annotated[*metal3v1.IPClaim]{o.Cached, o.Clusters}})
	addClaim(o, hooks, ipAddresses{})
	addPool(o, hooks, ipPools{}, false)
}

// ClusterAPI is the webhooks of ipam.cluster.x-k8s.io.
func ClusterAPI(o Options, hooks map[string]hook) {
	addClaim(o, hooks, ipAddressClaims{annotated[*ipamv1.IPAddressClaim]{o.Cached, o.Clusters}})
	addClaim(o, hooks, clusterAddresses{})
}

// addClaim adds the webhooks of a claim.
func addClaim[T metav1.Object](o Options, hooks map[string]hook, claim adapter[T]) {
	c := &claims[T]{adapter: claim, ledger: o.Ledger, cached: o.Cached, live: o.Live}
	addHook(hooks, c.subject(), verbMutate, firstTry, c.mutate)
	addHook(hooks, c.subject(), verbMutate, "", c.mutate)
	addHook(hooks, c.subject(), verbValidate, "", c.validate)
}

// addPool adds the webhooks of a pool, of one that cannot be deleted while it is in use also that for deletes.
func addPool[P client.Object](o Options, hooks map[string]hook, pool poolAdapter[P], keeps bool) {
	p := &pools[P]{poolAdapter: pool, ledger: o.Ledger, cached: o.Cached, live: o.Live, owners: owners{cached: o.Cached, live: o.Live, tenants: o.Tenants},
		waiting: make(chan struct{}, maxWaitingDeletes), log: o.Log}
	addHook(hooks, p.subject(), verbValidate, "", p.validate)
	if keeps {
		addHook(hooks, p.subject(), verbValidateDelete, "", p.validateDelete)
	}
}

func addHook(hooks map[string]hook, s subject, verb, suffix string, answer func(context.Context, *admission.Request) (admission.Response, error)) {
	hooks[path(verb, s.kind)+suffix] = hook{verb + "-" + strings.ToLower(s.kind.Kind), s, answer}
}

// elsewhere answers for a kind that this replica is told not to serve, while others may: an API is being switched on or off.
func elsewhere(kind string) func(context.Context, *admission.Request) (admission.Response, error) {
	return func(context.Context, *admission.Request) (admission.Response, error) {
		return admission.Response{}, &ledger.NotServingError{RetryAfter: time.Second,
			Reason: fmt.Sprintf("%s is of an API that this replica is told not to serve: switch it on, or remove its webhooks", kind)}
	}
}

// hook is one webhook.
type hook struct {
	name    string // in metrics and logs
	subject subject
	// answer answers a request for a whole object of the subject's kind. An error is a refusal, which statusOf words.
	answer func(context.Context, *admission.Request) (admission.Response, error)
}

// subject is the kind of object that a webhook is about.
type subject struct {
	kind schema.GroupVersionKind
	// exact and count are the fields by which a claim asks for a certain range or for any, family that by which it asks for addresses of a
	// family; nil for other objects.
	exact         func(allocator.Range) *field.Path
	count, family *field.Path
	clusterScoped bool
}
