package tenants

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
)

// Settings are the flags of tenants.
type Settings struct {
	// Namespace has the NetworkPools and IPAllocations of tenants, and the
	// ProviderConfigs that are referenced without a namespace.
	Namespace string
	Timing    plan.Timing
	// OrphanAfter is the time between the observed absence of a TenantCluster and the
	// release of its allocations.
	OrphanAfter time.Duration
	// ReleaseLimit bounds the time for which machines delay the release of a deleted
	// tenant's addresses.
	ReleaseLimit time.Duration
	// MaxServices bounds the Services of type LoadBalancer of one tenant that are read.
	MaxServices int
}

// AddFlags defines the flags --tenants-… with their defaults.
func (s *Settings) AddFlags(flags *flag.FlagSet) {
	t := plan.DefaultTiming
	flags.StringVar(&s.Namespace, "tenants-namespace", "butler-system", "`namespace` of the NetworkPools and IPAllocations of tenants, and of ProviderConfigs referenced without a namespace")
	flags.DurationVar(&s.Timing.PendingAfter, "tenants-pending-after", t.PendingAfter, "how long a tenant's Service has to wait before an address is allocated for it; shorter if MetalLB reports that no address is left")
	flags.DurationVar(&s.Timing.HeadroomAfter, "tenants-headroom-after", t.HeadroomAfter, "how long a tenant's Service has to wait before addresses that are free, and that MetalLB does not assign to the Service, no longer count as free")
	flags.DurationVar(&s.Timing.ShrinkAfter, "tenants-shrink-after", t.ShrinkAfter, "how long addresses added on demand must be unused before they are released")
	flags.DurationVar(&s.Timing.Settle, "tenants-settle", t.Settle, "how long addresses must be absent from a tenant's MetalLB pool before they are released")
	flags.DurationVar(&s.OrphanAfter, "tenants-orphan-after", 5*time.Minute, "how long the TenantCluster of an IPAllocation must be gone before the IPAllocation is released")
	flags.DurationVar(&s.ReleaseLimit, "tenants-release-limit", time.Hour, "how long machines that still exist can delay the release of the addresses of a deleted TenantCluster")
	flags.IntVar(&s.MaxServices, "tenants-max-services", 10000, "largest number of Services of type LoadBalancer read from one tenant; bounds the memory per tenant")
}

// Validate returns an error for each flag with an invalid value.
func (s *Settings) Validate() error {
	var errs []error
	if s.Namespace == "" {
		errs = append(errs, errors.New("--tenants-namespace is missing: name the namespace of the NetworkPools"))
	}
	if s.MaxServices < 1 {
		errs = append(errs, fmt.Errorf("--tenants-max-services %d must be at least 1", s.MaxServices))
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"pending-after", s.Timing.PendingAfter}, {"headroom-after", s.Timing.HeadroomAfter}, {"shrink-after", s.Timing.ShrinkAfter},
		{"settle", s.Timing.Settle}, {"orphan-after", s.OrphanAfter}, {"release-limit", s.ReleaseLimit},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("--tenants-%s %s must not be negative", d.flag, d.value))
		}
	}
	return errors.Join(errs...)
}

// Options are the settings and dependencies of the controllers.
type Options struct {
	Settings
	Ledger *ledger.Ledger
	// Platform reads the management cluster; the caller adds its cache to the manager.
	Platform *platform.Cluster
	// Recorder records events on TenantClusters, ProviderConfigs, IPAllocations and
	// NetworkPools.
	Recorder record.EventRecorder
	// Now is the clock of durations.
	Now func() time.Time
	// Wall is the clock of times in objects, which outlive the process and have other
	// readers. nil: Now.
	Wall func() time.Time
	// Registry gets the metrics; nil for none.
	Registry prometheus.Registerer
	Log      logr.Logger
}
