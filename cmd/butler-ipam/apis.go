package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/webhooks"
)

// api is a group of kinds that can be switched on and off as one.
type api struct {
	name        string // in --apis
	addToScheme func(*runtime.Scheme) error
	reconcilers reconcilers.API
	webhooks    webhooks.API
}

// allAPIs are those that this release serves.
var allAPIs = apis{
	{"butler", butlerv1.AddToScheme, reconcilers.Butler, webhooks.Butler},
	{"novaedge", novaedgev1.AddToScheme, reconcilers.NovaEdge, webhooks.NovaEdge},
}

// apis are those that are switched on. It is a flag.Value.
type apis []api

// Set implements flag.Value.
func (a *apis) Set(text string) error {
	var chosen apis
	for name := range strings.SplitSeq(text, ",") {
		at := slices.IndexFunc(allAPIs, func(known api) bool { return known.name == strings.TrimSpace(name) })
		if at < 0 {
			return fmt.Errorf("%q is no API of this release: use some of %s, separated by commas", name, allAPIs)
		}
		if !chosen.has(allAPIs[at].name) {
			chosen = append(chosen, allAPIs[at])
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

// has tells whether an API of that name is among them.
func (a apis) has(name string) bool {
	return slices.ContainsFunc(a, func(one api) bool { return one.name == name })
}

// parts are the reconcilers of the APIs, and their kinds.
func (a apis) parts() (served []reconcilers.API, claimKinds, poolKinds []string) {
	for _, one := range a {
		claims, pools := one.reconcilers.Kinds()
		served, claimKinds, poolKinds = append(served, one.reconcilers), append(claimKinds, claims), append(poolKinds, pools)
	}
	return served, claimKinds, poolKinds
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
