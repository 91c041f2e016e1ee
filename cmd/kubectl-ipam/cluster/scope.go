package cluster

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// AllNamespaces is the value in a Scope for a right in all namespaces.
const AllNamespaces = "*"

// Scope contains the rights of a reader to list resources.
//
//	resource -> namespace, or AllNamespaces
//
// The reader may not list a resource that is not in the Scope. A nil Scope contains every
// watched object.
type Scope map[string]string

// Resource is a resource for which a Scope can have a right.
type Resource struct {
	Name string // as in a Scope
	schema.GroupVersionResource
	ClusterScoped bool
}

// Resources lists the resources for which a Scope can have a right.
func Resources() (list []Resource) {
	for _, r := range append(slices.Clone(resources), resourceEvent, resourceCluster, resourceTenantCluster, resourceProviderConfig) {
		list = append(list, Resource{r.name, r.GroupVersionResource, r.clusterScoped})
	}
	return list
}

// contains reports whether the reader may list an object.
func (s Scope) contains(k inventory.Key) bool {
	if s == nil {
		return true
	}
	namespace, some := s[k.Resource]
	return some && (namespace == AllNamespaces || namespace == k.Namespace)
}

// key returns a text that identifies the Scope: different Scopes have different texts.
func (s Scope) key() string {
	if s == nil {
		return ""
	}
	return fmt.Sprint(map[string]string(s)) // sorted by resource
}

// warnings returns at most two warnings: about watched resources that the reader may list
// in only one namespace, and about watched resources that the reader may not list.
func (s Scope) warnings(watched []*watched) (list []string) {
	var some, none []string
	namespace := ""
	for _, w := range watched {
		switch in, listed := s[w.of.name]; {
		case !listed:
			none = append(none, w.of.name)
		case in != AllNamespaces:
			namespace = in
			some = append(some, w.of.name)
		}
	}
	if len(some) > 0 {
		list = append(list, fmt.Sprintf("only objects in namespace %s are named, as you may not list all of %s", namespace, strings.Join(some, ", ")))
	}
	if len(none) > 0 {
		list = append(list, fmt.Sprintf("no object is named of these, as you may not list them: %s", strings.Join(none, ", ")))
	}
	return list
}
