package ledger

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Every replica deletes the series of a pool that is gone: a follower may have led, and
// counted requests of the pool, before.
func TestMetrics_OfDeletedPoolsOnAFollower(t *testing.T) {
	for name, remove := range map[string]func(*Ledger){
		"deleted":                 func(l *Ledger) { l.RemovePool(modelPool, 2) },
		"missing in a later list": func(l *Ledger) { l.ReplacePools(modelPools, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			l := New(Config{ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}, Metrics: NewMetrics(registry)})
			series := func() (n int) {
				families, err := registry.Gather()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range families {
					if f.GetName() == "butler_ip_allocation_processed_total" {
						n += len(f.GetMetric())
					}
				}
				return n
			}
			l.ObservePool(Pool{Key: modelPool, ResourceVersion: 1})
			l.cfg.Metrics.countGranted(modelPool)
			l.cfg.Metrics.countGranted(Key{Resource: modelPools, Namespace: "ns", Name: "other"})
			if n := series(); n != 2 {
				t.Fatalf("%d series of two pools", n)
			}
			if remove(l); series() != 1 {
				t.Errorf("%d series, want that of the other pool", series())
			}
		})
	}
}
