package reconcilers

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// poolGauge is one gauge of a pool.
type poolGauge struct {
	desc  *prometheus.Desc
	value func(ledger.Usage) float64
}

func newPoolGauge(name, help string, value func(ledger.Usage) float64) poolGauge {
	return poolGauge{prometheus.NewDesc("butler_network_pool_"+name, help, []string{"resource", "pool", "namespace"}, nil), value}
}

var poolGauges = []poolGauge{
	newPoolGauge("total_ips", "Addresses that can be allocated from the pool.", func(u ledger.Usage) float64 { return u.Exact.Total }),
	newPoolGauge("allocated_ips", "Addresses of the pool that are owned, granted, in cooldown or withheld.", func(u ledger.Usage) float64 { return u.Exact.Allocated }),
	newPoolGauge("granted_ips", "Addresses of the pool that are granted to creates whose claims have not been observed.", func(u ledger.Usage) float64 { return float64(u.Granted) }),
	newPoolGauge("available_ips", "Addresses of the pool that are free.", func(u ledger.Usage) float64 { return u.Exact.Available }),
	newPoolGauge("allocation_count", "Claims that own addresses of the pool.", func(u ledger.Usage) float64 { return float64(u.Claims) }),
	newPoolGauge("fragmentation_percent", "Share of the free addresses outside the largest free block.", func(u ledger.Usage) float64 { return float64(u.Fragmentation) }),
	newPoolGauge("largest_free_block", "Addresses of the largest block of free addresses.", func(u ledger.Usage) float64 { return u.Exact.LargestFree }),
}

var conflictGauge = prometheus.NewDesc("butler_ipam_address_conflicts",
	"Claims that are flagged because other claims own some of their addresses.", nil, nil)

var movedGauge = prometheus.NewDesc("butler_ipam_moved_ranges",
	"Ranges of the pool that moved to other clusters, by state: in the list of the pool (listed), or not (unlisted), or not recorded by the manager yet (unrecorded).",
	[]string{"resource", "pool", "namespace", "state"}, nil)

var listFullGauge = prometheus.NewDesc("butler_ipam_status_list_full",
	"1 if a list in the status of the pool has no room: entries are missing, or the next one will be.", []string{"resource", "pool", "namespace"}, nil)

// collectedPool is a pool, and whether a list in its status has no room.
type collectedPool struct {
	ledger.Key
	listFull bool
}

// collector reads the gauges at each scrape: the values are current, and the gauges of a
// deleted pool end. Only the leader has gauges, so that a sum over replicas counts each
// pool once.
type collector struct {
	ctx       context.Context // of the process; reads from the informers need no deadline
	informers client.Reader
	ledger    *ledger.Ledger
	apis      []API
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, g := range poolGauges {
		descs <- g.desc
	}
	descs <- conflictGauge
	descs <- movedGauge
	descs <- listFullGauge
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	if !c.ledger.MayGrant() {
		return
	}
	total := 0
	for _, a := range c.apis {
		pools, conflicts, err := a.collect(c.ctx, c.informers, c.ledger)
		if err != nil {
			return // the informers have not started
		}
		total += conflicts
		for _, p := range pools {
			usage, known := c.ledger.Usage(p.Key)
			if !known {
				continue
			}
			for _, g := range poolGauges {
				metrics <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(usage), p.Resource, p.Name, p.Namespace)
			}
			if p.listFull {
				metrics <- prometheus.MustNewConstMetric(listFullGauge, prometheus.GaugeValue, 1, p.Resource, p.Name, p.Namespace)
			}
			if n := c.ledger.CountMoved(p.Key); n != (ledger.MovedCount{}) {
				for state, n := range map[string]int{"listed": n.Listed, "unlisted": n.Unlisted, "unrecorded": n.Unrecorded} {
					metrics <- prometheus.MustNewConstMetric(movedGauge, prometheus.GaugeValue, float64(n), p.Resource, p.Name, p.Namespace, state)
				}
			}
		}
	}
	metrics <- prometheus.MustNewConstMetric(conflictGauge, prometheus.GaugeValue, float64(total))
}
