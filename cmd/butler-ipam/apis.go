package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/webhooks"
)

// api is a group of kinds that can be switched on and off as one.
type api struct {
	name        string // in --apis
	version     schema.GroupVersion
	addToScheme func(*runtime.Scheme) error
	reconcilers reconcilers.API
	webhooks    webhooks.API
}

// clusterAPI is the name of the API whose CRDs come with Cluster API.
const clusterAPI = "clusterapi"

// allAPIs are those that this release serves.
var allAPIs = apis{
	{"butler", butlerv1.GroupVersion, butlerv1.AddToScheme, reconcilers.Butler, webhooks.Butler},
	{"novaedge", novaedgev1.GroupVersion, novaedgeScheme, reconcilers.NovaEdge, webhooks.NovaEdge},
	{"metal3", metal3v1.GroupVersion, metal3v1.AddToScheme, reconcilers.Metal3, webhooks.Metal3},
	{clusterAPI, ipamv1.GroupVersion, ipamv1.AddToScheme, reconcilers.ClusterAPI, webhooks.ClusterAPI},
}

// novaedgeScheme also knows what a ProxyIPPool is held against.
func novaedgeScheme(s *runtime.Scheme) error {
	return errors.Join(novaedgev1.AddToScheme(s), networkingv1.AddToScheme(s))
}

// missing are the CRDs of an API that the API server does not have.
func (a api) missing(server discovery.ServerResourcesInterface) ([]string, error) {
	served, err := server.ServerResourcesForGroupVersion(a.version.String())
	if apierrors.IsNotFound(err) {
		served, err = &metav1.APIResourceList{}, nil
	}
	if err != nil {
		return nil, err
	}
	claims, pools := a.reconcilers.Kinds()
	return slices.DeleteFunc(slices.Concat(claims, pools), func(kind string) bool {
		return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name+"."+a.version.Group == kind })
	}), nil
}

// apis are those that are switched on. It is a flag.Value.
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

// named are those of that name: one, or none.
func (a apis) named(name string) apis {
	return slices.DeleteFunc(slices.Clone(a), func(one api) bool { return one.name != name })
}

// except are those of other names.
func (a apis) except(name string) apis {
	return slices.DeleteFunc(slices.Clone(a), func(one api) bool { return one.name == name })
}

// has tells whether an API of that name is among them.
func (a apis) has(name string) bool { return len(a.named(name)) > 0 }

// missing are the CRDs of theirs that an API server does not have.
func (a apis) missing(server discovery.ServerResourcesInterface) (all []string, err error) {
	for _, one := range a {
		missing, err := one.missing(server)
		if err != nil {
			return nil, err
		}
		all = append(all, missing...)
	}
	return all, nil
}

// without are those that are not among others.
func (a apis) without(others apis) apis {
	return slices.DeleteFunc(slices.Clone(a), func(one api) bool { return others.has(one.name) })
}

// reconcilers of the APIs.
func (a apis) reconcilers() (all []reconcilers.API) {
	for _, one := range a {
		all = append(all, one.reconcilers)
	}
	return all
}

// kinds of the APIs.
func (a apis) kinds() (claims, pools []string) {
	for _, one := range a {
		c, p := one.reconcilers.Kinds()
		claims, pools = append(claims, c...), append(pools, p...)
	}
	return claims, pools
}

// haveClusters tells whether objects of some of them belong to a Cluster of Cluster API.
func (a apis) haveClusters() bool {
	return slices.ContainsFunc(a, func(one api) bool { return one.name == "metal3" || one.name == clusterAPI })
}

// webhooks of the APIs, and of those that are not among them.
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
