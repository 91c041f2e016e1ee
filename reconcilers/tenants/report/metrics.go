package report

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// Metrics are the metrics of tenants. The series of a tenant are deleted at the end of
// the session.
type Metrics struct {
	reachable, services, overQuota *prometheus.GaugeVec
	changes, addresses             *prometheus.CounterVec // by change
	orphans                        prometheus.Counter
}

// Values of the label change.
const (
	changeGrowth = "growth"
	changeShrink = "shrink"
	changeSync   = "metallb-sync"
	changeDrift  = "metallb-drift"
)

var tenantLabels = []string{"tenant_namespace", "tenant"}

// NewMetrics returns metrics, and registers them unless registry is nil.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	newGauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "butler_ipam_tenant_" + name, Help: help}, append(tenantLabels[:2:2], labels...))
	}
	m := &Metrics{
		reachable: newGauge("reachable", "Whether the tenant's API server answers."),
		services:  newGauge("services", "Services of type LoadBalancer in the tenant, by state: served, waiting for an address from a pool of this cluster, or unserved for another reason.", "state"),
		overQuota: newGauge("quota_denied_addresses", "Addresses that waiting Services of the tenant need beyond its quota."),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "butler_ipam_tenant_changes_total",
			Help: "Blocks added (growth) and released (shrink), writes to the tenant's MetalLB pool (metallb-sync), and changes of the pool by other writers (metallb-drift)."}, append(tenantLabels[:2:2], "change")),
		addresses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "butler_ipam_tenant_addresses_total",
			Help: "Addresses for load balancers added to the tenant on demand (growth), and released (shrink)."}, append(tenantLabels[:2:2], "change")),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{Name: "butler_ipam_orphans_released_total", Help: "IPAllocations released because their TenantCluster was gone."}),
	}
	if registry != nil {
		registry.MustRegister(m.reachable, m.services, m.overQuota, m.changes, m.addresses, m.orphans)
	}
	return m
}

// InitializeCounters sets the counters of a tenant to 0, so that rate() sees the first
// change.
func (m *Metrics) InitializeCounters(t types.NamespacedName) {
	for _, change := range []string{changeGrowth, changeShrink, changeSync, changeDrift} {
		m.changes.WithLabelValues(t.Namespace, t.Name, change)
	}
	for _, change := range []string{changeGrowth, changeShrink} {
		m.addresses.WithLabelValues(t.Namespace, t.Name, change)
	}
}

// SetReachable records whether the tenant's API server answers.
func (m *Metrics) SetReachable(t types.NamespacedName, reachable bool) {
	value := 0.0
	if reachable {
		value = 1
	}
	m.reachable.WithLabelValues(t.Namespace, t.Name).Set(value)
}

// SetServices records the state of a tenant's Services and how many addresses its quota
// denies.
func (m *Metrics) SetServices(t types.NamespacedName, n plan.Inventory, overQuota int32) {
	for state, count := range map[string]int{"served": n.Platform + n.Tenant, "waiting": n.Waiting, "unserved": n.Unserved} {
		m.services.WithLabelValues(t.Namespace, t.Name, state).Set(float64(count))
	}
	m.overQuota.WithLabelValues(t.Namespace, t.Name).Set(float64(overQuota))
}

// CountGrowth counts a growth block of so many addresses.
func (m *Metrics) CountGrowth(t types.NamespacedName, addresses int32) {
	m.countAddresses(t, changeGrowth, float64(addresses))
}

// CountShrink counts the release of a growth block of so many addresses.
func (m *Metrics) CountShrink(t types.NamespacedName, addresses int64) {
	m.countAddresses(t, changeShrink, float64(addresses))
}

func (m *Metrics) countAddresses(t types.NamespacedName, change string, addresses float64) {
	m.changes.WithLabelValues(t.Namespace, t.Name, change).Inc()
	m.addresses.WithLabelValues(t.Namespace, t.Name, change).Add(addresses)
}

// CountSync counts a write to a tenant's MetalLB pool.
func (m *Metrics) CountSync(t types.NamespacedName) {
	m.changes.WithLabelValues(t.Namespace, t.Name, changeSync).Inc()
}

// CountDrift counts a change of IPAM's MetalLB objects by another writer.
func (m *Metrics) CountDrift(t types.NamespacedName) {
	m.changes.WithLabelValues(t.Namespace, t.Name, changeDrift).Inc()
}

// CountOrphan counts the deletion of an orphaned allocation.
func (m *Metrics) CountOrphan() { m.orphans.Inc() }

// DeleteSeries deletes the series of a tenant.
func (m *Metrics) DeleteSeries(t types.NamespacedName) {
	labels := prometheus.Labels{tenantLabels[0]: t.Namespace, tenantLabels[1]: t.Name}
	for _, v := range []*prometheus.GaugeVec{m.reachable, m.services, m.overQuota} {
		v.DeletePartialMatch(labels)
	}
	m.changes.DeletePartialMatch(labels)
	m.addresses.DeletePartialMatch(labels)
}
