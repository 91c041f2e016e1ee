package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/reconcilers/tenancy"
	"butlerlabs.dev/ipam/reconcilers/tenants"
	"butlerlabs.dev/ipam/webhooks"
	"butlerlabs.dev/ipam/webhooks/servertime"
)

// tenantOptions are what the command line says about TenantClusters.
type tenantOptions struct {
	on           bool
	namespace    string
	timing       tenants.Timing
	orphanAfter  time.Duration
	releaseLimit time.Duration
	maxServices  int
}

func (o *tenantOptions) addTo(flags *flag.FlagSet) {
	t := tenants.DefaultTiming
	flags.BoolVar(&o.on, "tenants", false, "give TenantClusters their addresses, from when the CRDs of TenantCluster and ProviderConfig are installed")
	flags.StringVar(&o.namespace, "tenants-namespace", "butler-system", "`namespace` of the NetworkPools and IPAllocations of tenants, and of the ProviderConfigs that are named without one")
	flags.DurationVar(&o.timing.PendingAfter, "tenants-pending-after", t.PendingAfter, "how long a tenant's Service waits before it gets an address of its own, unless MetalLB has none for it")
	flags.DurationVar(&o.timing.HeadroomAfter, "tenants-headroom-after", t.HeadroomAfter, "how long a tenant's Service waits before free addresses no longer count that MetalLB could have given it")
	flags.DurationVar(&o.timing.ShrinkAfter, "tenants-shrink-after", t.ShrinkAfter, "how long addresses that were added are unused before they are released")
	flags.DurationVar(&o.timing.Settle, "tenants-settle", t.Settle, "how long addresses must have left a tenant's MetalLB pool before they are released")
	flags.DurationVar(&o.orphanAfter, "tenants-orphan-after", 5*time.Minute, "how long the TenantCluster of an IPAllocation must have been gone before that is released")
	flags.DurationVar(&o.releaseLimit, "tenants-release-limit", time.Hour, "how long machines that are left can hold the addresses of a TenantCluster that is being deleted")
	flags.IntVar(&o.maxServices, "tenants-max-services", 10000, "how many Services of type LoadBalancer of one tenant are looked at, which bounds the memory that a tenant takes")
}

// check tells what cannot be meant.
func (o *tenantOptions) check(served apis) error {
	if !o.on {
		return nil
	}
	var errs []error
	if !slices.ContainsFunc(served, func(a api) bool { return a.name == "butler" }) {
		errs = append(errs, fmt.Errorf("--tenants needs NetworkPools: add butler to --apis %s", served))
	}
	if o.namespace == "" {
		errs = append(errs, errors.New("--tenants-namespace is missing: name the namespace of the NetworkPools"))
	}
	if o.maxServices < 1 {
		errs = append(errs, fmt.Errorf("--tenants-max-services %d must be at least 1", o.maxServices))
	}
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"pending-after", o.timing.PendingAfter}, {"headroom-after", o.timing.HeadroomAfter}, {"shrink-after", o.timing.ShrinkAfter},
		{"settle", o.timing.Settle}, {"orphan-after", o.orphanAfter}, {"release-limit", o.releaseLimit},
	} {
		if d.is < 0 {
			errs = append(errs, fmt.Errorf("--tenants-%s %s must not be negative", d.name, d.is))
		}
	}
	return errors.Join(errs...)
}

func (o *tenantOptions) webhooks() []webhooks.API {
	if !o.on {
		return nil
	}
	return []webhooks.API{webhooks.Tenants(o.namespace)}
}

func (o *tenantOptions) register(ctx context.Context, mgr manager.Manager, l *ledger.Ledger, recorder record.EventRecorder, clock *servertime.Clock, log logr.Logger) error {
	if !o.on {
		return nil
	}
	return tenancy.Register(ctx, mgr, tenancy.Options{
		Namespace: o.namespace, Timing: o.timing, OrphanAfter: o.orphanAfter, ReleaseLimit: o.releaseLimit, MaxServices: o.maxServices,
		Serving: l.Serving, Unheld: func(pool types.NamespacedName, addresses []netip.Addr) []netip.Addr {
			return l.Unheld(butler.NetworkPoolKey(pool.Namespace, pool.Name), addresses)
		}, Recorder: recorder, Now: now, Wall: clock.Now, Registry: metrics.Registry, Log: log,
	})
}
