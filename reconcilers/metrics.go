package reconcilers

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// poolGauge is one number of a pool.
type poolGauge struct {
	desc  *prometheus.Desc
	value func(ledger.Usage) float64
}

func newPoolGauge(name, help string, value func(ledger.Usage) float64) poolGauge {
	return poolGauge{prometheus.NewDesc("butler_network_pool_"+name, help, []string{"resource", "pool", "namespace"}, nil), value}
}

var poolGauges = []poolGauge{
	newPoolGauge("total_ips", "Addresses that can be allocated from the pool.", func(u ledger.Usage) float64 { return u.Exact.Total }),
	newPoolGauge("allocated_ips", "Addresses of the pool that are held.", func(u ledger.Usage) float64 { return u.Exact.Allocated }),
	newPoolGauge("available_ips", "Addresses of the pool that are free.", func(u ledger.Usage) float64 { return u.Exact.Available }),
	newPoolGauge("allocation_count", "Claims that hold addresses of the pool.", func(u ledger.Usage) float64 { return float64(u.Claims) }),
	newPoolGauge("fragmentation_percent", "Share of the free addresses outside the largest free block.", func(u ledger.Usage) float64 { return float64(u.Fragmentation) }),
	newPoolGauge("largest_free_block", "Addresses of the longest run of free ones.", func(u ledger.Usage) float64 { return u.Exact.LargestFree }),
}

var conflictGauge = prometheus.NewDesc("butler_ipam_address_conflicts",
	"Claims that are flagged because others have some of their addresses.", nil, nil)

var movedGauge = prometheus.NewDesc("butler_ipam_moved_ranges",
	"Ranges of the pool that went to other clusters, by whether the pool lists them (listed, unlisted), or the manager has not recorded them (unrecorded).",
	[]string{"resource", "pool", "namespace", "state"}, nil)

// collector reads the gauges when they are scraped: they are never behind, and end with their pool. Only the replica that holds the
// journal shows them, so that a sum over replicas counts nothing twice.
type collector struct {
	ctx    context.Context // of the process; reads from the informers need none
	cache  client.Reader
	ledger *ledger.Ledger
	apis   []API
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, g := range poolGauges {
		descs <- g.desc
	}
	descs <- conflictGauge
	descs <- movedGauge
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	if !c.ledger.Serving() {
		return
	}
	total := 0
	for _, a := range c.apis {
		pools, conflicts, err := a.collect(c)
		if err != nil {
			return // the informers have not started
		}
		total += conflicts
		for _, p := range pools {
			usage, known := c.ledger.Usage(p)
			if !known {
				continue
			}
			for _, g := range poolGauges {
				metrics <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(usage), p.Kind, p.Name, p.Namespace)
			}
			if n := c.ledger.CountMoved(p); n != (ledger.MovedCount{}) {
				for state, n := range map[string]int{"listed": n.Listed, "unlisted": n.Unlisted, "unrecorded": n.Unrecorded} {
					metrics <- prometheus.MustNewConstMetric(movedGauge, prometheus.GaugeValue, float64(n), p.Kind, p.Name, p.Namespace, state)
				}
			}
		}
	}
	metrics <- prometheus.MustNewConstMetric(conflictGauge, prometheus.GaugeValue, float64(total))
}

// collect names the pools, and counts the claims that clash. One that is being deleted is flagged to its end; what it clashes with may have gone before.
func (a *api[T, P]) collect(c *collector) (pools []ledger.Key, conflicts int, err error) {
	clashing := a.claims.emptyList()
	if err := c.cache.List(c.ctx, clashing, client.MatchingFields{indexConflict: flagged}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, err
	}
	if err := meta.EachListItem(clashing, func(o runtime.Object) error {
		if claim := o.(client.Object); claim.GetDeletionTimestamp() == nil || c.ledger.Standing(string(claim.GetUID())).Clash != nil {
			conflicts++
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	if a.poolKind == "" {
		return nil, conflicts, nil
	}
	all := a.pools.emptyList()
	if err := c.cache.List(c.ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, err
	}
	err = meta.EachListItem(all, func(o runtime.Object) error {
		p := o.(P)
		pools = append(pools, ledger.Key{Kind: a.poolKind, Namespace: p.GetNamespace(), Name: p.GetName()})
		return nil
	})
	return pools, conflicts, err
}
