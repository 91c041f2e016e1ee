package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/apiserver"
	"butlerlabs.dev/ipam/reconcilers/tenants"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/webhooks"
)

// tenantOptions contains the flags for TenantClusters.
type tenantOptions struct {
	enabled bool
	tenants.Settings
}

func (o *tenantOptions) addFlags(flags *flag.FlagSet) {
	flags.BoolVar(&o.enabled, "tenants", false, "allocate the addresses of TenantClusters once the CRDs of TenantCluster and ProviderConfig are installed")
	o.AddFlags(flags)
}

// validate returns an error if a flag is invalid or requires an API that is not served.
func (o *tenantOptions) validate(served apis) error {
	if !o.enabled {
		return nil
	}
	var err error
	if !slices.ContainsFunc(served, func(a api) bool { return a.name == "butler" }) {
		err = fmt.Errorf("--tenants requires NetworkPools: add butler to --apis (%s)", served)
	}
	return errors.Join(err, o.Validate())
}

func (o *tenantOptions) webhookAPIs() []webhooks.API {
	if !o.enabled {
		return nil
	}
	return []webhooks.API{webhooks.Tenants(o.Namespace)}
}

func (o *tenantOptions) register(ctx context.Context, mgr manager.Manager, l *ledger.Ledger, cluster *platform.Cluster, recorder record.EventRecorder, clock *apiserver.Clock, log logr.Logger) error {
	if !o.enabled {
		return nil
	}
	return tenants.Register(ctx, mgr, tenants.Options{
		Settings: o.Settings, Ledger: l, Platform: cluster, Recorder: recorder, Now: now, Wall: clock.Now, Registry: metrics.Registry, Log: log,
	})
}
