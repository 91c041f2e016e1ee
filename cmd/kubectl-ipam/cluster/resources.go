package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const (
	pageSize = 500
	// Patience is the time after which a read reports progress.
	Patience = 2 * time.Second
	// journalTimeout bounds the read of the journal. After a timeout, the other objects
	// are still read.
	journalTimeout = 5 * time.Second
)

// Notes about events and objects of the platform that the user may not list. Function
// describeLeftOut describes the other objects.
const (
	onlyListed = "%s: only those in namespace %s, as you may not list all"
	notListed  = "%s: not read, as %s may not list them"
)

// ErrNothingRead reports that no resource could be read.
var ErrNothingRead = errors.New("no resource of Butler IPAM could be read: is Butler IPAM installed, and does the viewer role apply to you?")

// Options configure the access to a cluster and the output of warnings.
type Options struct {
	Config           *rest.Config
	User             string // user in the text of warnings about rights: "the console"; "" for the reader of the warning
	Namespace        string // read instead of all namespaces, if the user may not list all
	ManagerNamespace string // namespace of the journal
	Now              func() time.Time
	Warn             func(format string, values ...any) // may be nil
	Progress         func(objects int, done bool)       // called after each page of Read, and with done at the end; may be nil
}

func (o Options) warn(format string, values ...any) {
	if o.Warn != nil {
		o.Warn(format, values...)
	}
}

// notRead returns the warning about a resource that the user may not list.
func (o Options) notRead(of resource) string {
	return fmt.Sprintf(notListed, of.Resource, cmp.Or(o.User, "you"))
}

// Configure prepares the access to a cluster for many reads: only the flow control of the
// API server bounds the rate of requests. agent names the program: "kubectl-ipam/v1.2.3".
func Configure(config *rest.Config, agent string) *rest.Config {
	config.QPS = -1
	config.UserAgent = agent
	config.WarningHandler = rest.NoWarnings{} // warnings of the API server are for the authors of pools
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return config
}

// resource is a resource of the API.
type resource struct {
	schema.GroupVersionResource
	name          string // plural and group
	clusterScoped bool
	pools         bool
	newObject     func() metav1.Object // empty
}

// resources lists the resources of an Inventory, pools first.
var resources = newResources()

func newResources() (list []resource) {
	for _, k := range kinds.All {
		list = append(list, resource{k.GroupVersionResource(), k.Resource, k.ClusterScoped, k.IsPool(), k.New})
	}
	return list
}

// newResource returns a resource that is not in an Inventory.
func newResource[T any, P interface {
	*T
	metav1.Object
}](name, version string) resource {
	plural, group, _ := strings.Cut(name, ".")
	return resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
		name:                 name, newObject: func() metav1.Object { return P(new(T)) },
	}
}

// decode decodes an object of the resource, without its managed fields.
func (r resource) decode(item json.RawMessage) (metav1.Object, error) {
	o := r.newObject()
	err := json.Unmarshal(item, o)
	o.SetManagedFields(nil)
	return o, err
}

// path returns the URL path of the objects of a resource in a namespace; "" means all
// namespaces.
func path(gvr schema.GroupVersionResource, namespace string) []string {
	path := []string{"apis", gvr.Group, gvr.Version}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	return append(path, gvr.Resource)
}

// ResourceOf returns the GroupVersionResource with which the package reads a resource of
// an Inventory; zero for an unknown resource.
func ResourceOf(name string) schema.GroupVersionResource {
	for _, r := range resources {
		if r.name == name {
			return r.GroupVersionResource
		}
	}
	return schema.GroupVersionResource{}
}

// CollectionPath returns the URL path of the collection of an object.
func CollectionPath(k inventory.Key) []string { return path(ResourceOf(k.Resource), k.Namespace) }
