package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/reconcilers/apiserver"
	"butlerlabs.dev/ipam/webhooks"
)

// api is a group of kinds that --apis switches on and off as a whole.
type api struct {
	name        string // name in --apis
	version     schema.GroupVersion
	addToScheme func(*runtime.Scheme) error
	reconcilers reconcilers.API
	webhooks    webhooks.API
}

// clusterAPI is the name of the API of Cluster API. Cluster API installs the CRDs of this
// API.
const clusterAPI = "clusterapi"

// allAPIs lists the APIs that this release can serve.
var allAPIs = apis{
	{"butler", butlerv1.GroupVersion, butlerv1.AddToScheme, reconcilers.Butler, webhooks.Butler},
	{"novaedge", novaedgev1.GroupVersion, novaedgev1.AddToScheme, reconcilers.NovaEdge, webhooks.NovaEdge},
	{"metal3", metal3v1.GroupVersion, metal3v1.AddToScheme, reconcilers.Metal3, webhooks.Metal3},
	{clusterAPI, ipamv1.GroupVersion, ipamv1.AddToScheme, reconcilers.ClusterAPI, webhooks.ClusterAPI},
}

// required returns the resources of an API that the API server must serve.
func (a api) required() apiserver.API {
	claims, pools := a.reconcilers.Resources()
	return apiserver.API{Version: a.version, Resources: slices.Concat(claims, pools)}
}

// apis is a list of APIs, and a flag.Value.
type apis []api

// Set implements flag.Value.
func (a *apis) Set(text string) error {
	var chosen apis
	for name := range strings.SplitSeq(text, ",") {
		one := allAPIs.named(strings.TrimSpace(name))
		if len(one) == 0 {
			return fmt.Errorf("%q is no API of this release: use some of %s, separated by commas", name, allAPIs)
		}
		if !chosen.has(one[0].name) {
			chosen = append(chosen, one...)
		}
	}
	*a = chosen
	return nil
}

// String implements flag.Value.
func (a apis) String() string {
	names := make([]string, len(a))
	for i, one := range a {
		names[i] = one.name
	}
	return strings.Join(names, ",")
}

// named returns a list of the API with a name; an empty list if no API has the name.
func (a apis) named(name string) apis {
	return slices.DeleteFunc(slices.Clone(a), func(one api) bool { return one.name != name })
}

// except returns the APIs without the API of a name.
func (a apis) except(name string) apis {
	return slices.DeleteFunc(slices.Clone(a), func(one api) bool { return one.name == name })
}

// has reports whether the list contains the API with a name.
func (a apis) has(name string) bool { return len(a.named(name)) > 0 }

// required returns the resources of each API that the API server must serve.
func (a apis) required() []apiserver.API {
	all := make([]apiserver.API, len(a))
	for i, one := range a {
		all[i] = one.required()
	}
	return all
}

// missingCRDs returns the CRDs of the APIs that an API server does not serve.
func (a apis) missingCRDs(server discovery.ServerResourcesInterface) (all []string, err error) {
	for _, required := range a.required() {
		missing, err := required.MissingCRDs(server)
		if err != nil {
			return nil, err
		}
		all = append(all, missing...)
	}
	return all, nil
}

// without returns the APIs of a that others does not contain.
func (a apis) without(others apis) apis {
	return slices.DeleteFunc(slices.Clone(a), func(one api) bool { return others.has(one.name) })
}

// reconcilers returns the reconcilers of the APIs.
func (a apis) reconcilers() (all []reconcilers.API) {
	for _, one := range a {
		all = append(all, one.reconcilers)
	}
	return all
}

// kinds returns the resources of the claims and the pools of the APIs.
func (a apis) kinds() (claims, pools []string) {
	for _, one := range a {
		c, p := one.reconcilers.Resources()
		claims, pools = append(claims, c...), append(pools, p...)
	}
	return claims, pools
}

// haveClusters reports whether objects of the APIs belong to a Cluster of Cluster API.
func (a apis) haveClusters() bool {
	return slices.ContainsFunc(a, func(one api) bool { return one.name == "metal3" || one.name == clusterAPI })
}

// webhooks returns the webhooks of the APIs in the list, and the webhooks of the
// remaining APIs of allAPIs.
func (a apis) webhooks() (served, others []webhooks.API) {
	for _, one := range allAPIs {
		if a.has(one.name) {
			served = append(served, one.webhooks)
		} else {
			others = append(others, one.webhooks)
		}
	}
	return served, others
}
