package tenancy

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// metrics are those of tenants. Each series ends with its tenant.
type metrics struct {
	up, services, short *prometheus.GaugeVec
	changes             *prometheus.CounterVec // by what was done
	addresses           *prometheus.CounterVec
	orphans             prometheus.Counter
}

// What is counted.
const (
	growth = "growth"
	shrink = "shrink"
	resync = "metallb-sync"
	drift  = "metallb-drift"
)

var tenantLabels = []string{"tenant_namespace", "tenant"}

func newMetrics(registry prometheus.Registerer) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "butler_ipam_tenant_" + name, Help: help}, append(tenantLabels[:2:2], labels...))
	}
	m := &metrics{
		up:       gauge("reachable", "Whether the tenant's API server answers."),
		services: gauge("services", "Services of type LoadBalancer in the tenant, by state: served, waiting for an address of ours, or unserved for another reason.", "state"),
		short:    gauge("quota_denied_addresses", "Addresses that waiting Services of the tenant need beyond its quota."),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "butler_ipam_tenant_changes_total",
			Help: "Blocks added (growth) and released (shrink), writes to the tenant's MetalLB pool (metallb-sync), and edits of it by others (metallb-drift)."}, append(tenantLabels[:2:2], "change")),
		addresses: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "butler_ipam_tenant_addresses_total",
			Help: "Addresses for load balancers added to the tenant on demand (growth), and released (shrink)."}, append(tenantLabels[:2:2], "change")),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{Name: "butler_ipam_orphans_released_total", Help: "IPAllocations released because their TenantCluster was gone."}),
	}
	if registry != nil {
		registry.MustRegister(m.up, m.services, m.short, m.changes, m.addresses, m.orphans)
	}
	return m
}

// begin has a tenant's counters start at zero, so that the first change is seen as one.
func (m *metrics) begin(t types.NamespacedName) {
	for _, change := range []string{growth, shrink, resync, drift} {
		m.changes.WithLabelValues(t.Namespace, t.Name, change)
	}
	for _, change := range []string{growth, shrink} {
		m.addresses.WithLabelValues(t.Namespace, t.Name, change)
	}
}

func (m *metrics) reachable(t types.NamespacedName, yes bool) {
	value := 0.0
	if yes {
		value = 1
	}
	m.up.WithLabelValues(t.Namespace, t.Name).Set(value)
}

func (m *metrics) seen(t types.NamespacedName, n tenants.Inventory, plan tenants.Plan) {
	for state, count := range map[string]int{"served": n.Platform + n.Tenant, "waiting": n.Waiting, "unserved": n.Unserved} {
		m.services.WithLabelValues(t.Namespace, t.Name, state).Set(float64(count))
	}
	m.short.WithLabelValues(t.Namespace, t.Name).Set(float64(plan.Short))
}

func (m *metrics) grown(t types.NamespacedName, addresses int32) {
	m.count(t, growth, float64(addresses))
}

func (m *metrics) shrunk(t types.NamespacedName, addresses int64) {
	m.count(t, shrink, float64(addresses))
}

func (m *metrics) count(t types.NamespacedName, change string, addresses float64) {
	m.changes.WithLabelValues(t.Namespace, t.Name, change).Inc()
	m.addresses.WithLabelValues(t.Namespace, t.Name, change).Add(addresses)
}

func (m *metrics) synced(t types.NamespacedName) {
	m.changes.WithLabelValues(t.Namespace, t.Name, resync).Inc()
}

func (m *metrics) drifted(t types.NamespacedName) {
	m.changes.WithLabelValues(t.Namespace, t.Name, drift).Inc()
}

func (m *metrics) forget(t types.NamespacedName) {
	labels := prometheus.Labels{tenantLabels[0]: t.Namespace, tenantLabels[1]: t.Name}
	for _, v := range []*prometheus.GaugeVec{m.up, m.services, m.short} {
		v.DeletePartialMatch(labels)
	}
	m.changes.DeletePartialMatch(labels)
	m.addresses.DeletePartialMatch(labels)
}
