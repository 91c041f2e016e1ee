package webhooks

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Paths that Register mounts. The webhook configurations name them.
const (
	// FirstTry follows the path of a mutating webhook in the entry that the API server asks first, and may ignore.
	FirstTry                  = "/first"
	MutateIPAllocation        = "/mutate-butler-butlerlabs-dev-v1alpha1-ipallocation"
	ValidateIPAllocation      = "/validate-butler-butlerlabs-dev-v1alpha1-ipallocation"
	ValidateNetworkPool       = "/validate-butler-butlerlabs-dev-v1alpha1-networkpool"
	ValidateDeleteNetworkPool = "/validate-delete-butler-butlerlabs-dev-v1alpha1-networkpool"
)

// Options are what the webhooks stand on.
type Options struct {
	Ledger *ledger.Ledger
	// Cached reads NetworkPools from the manager's informers.
	Cached client.Reader
	// Live reads NetworkPools, and the metadata of Namespaces, from the API server itself.
	Live client.Reader
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
	allocations := &claims[*v1alpha1.IPAllocation]{adapter: ipAllocations{}, ledger: o.Ledger, cached: o.Cached, live: o.Live}
	pools := &networkPools{ledger: o.Ledger, live: o.Live, log: o.Log}
	calls := make(chan struct{}, maxCalls)
	again := &repeats{until: map[types.UID]time.Time{}}
	hooks := map[string]hook{
		MutateIPAllocation + FirstTry: {"mutate-ipallocation", allocations.subject(), allocations.mutate},
		MutateIPAllocation:            {"mutate-ipallocation", allocations.subject(), allocations.mutate},
		ValidateIPAllocation:          {"validate-ipallocation", allocations.subject(), allocations.validate},
		ValidateNetworkPool:           {"validate-networkpool", poolSubject, pools.validate},
		ValidateDeleteNetworkPool:     {"validate-delete-networkpool", poolSubject, pools.validateDelete},
	}
	for path, h := range hooks {
		_, second := hooks[path+FirstTry]
		server.Register(path, &edge{
			hook: h, first: strings.HasSuffix(path, FirstTry), second: second, ledger: o.Ledger, peers: o.Peers, identity: o.Identity,
			calls: calls, repeats: again, stopping: o.Stopping, metrics: o.Metrics, log: o.Log.WithValues("webhook", h.name),
		})
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
	// exact and count are the fields by which a claim asks for a range, nil for other objects.
	exact, count *field.Path
}
