package ledger

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"butlerlabs.dev/ipam/allocator/state"
)

// Metrics of the ledger and its journal. A Metrics belongs to one ledger.
type Metrics struct {
	processed *prometheus.CounterVec
	commits   prometheus.Histogram
	batches   prometheus.Histogram
	grants    prometheus.Gauge
	shares    *prometheus.GaugeVec
	leader    prometheus.Gauge
	takeovers prometheus.Counter
	unserved  *prometheus.GaugeVec
	denied    *prometheus.GaugeVec
}

// NewMetrics returns metrics registered with reg, or with no registry if reg is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		processed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "butler_ip_allocation_processed_total",
			Help: "Requests for ranges, by pool, its resource, and result (success, failed).",
		}, []string{"resource", "pool", "namespace", "result"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "butler_ipam_journal_commit_duration_seconds",
			Help:    "Time of one write to the journal, until it is known to be stored.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "butler_ipam_journal_commit_grants",
			Help:    "New grants that shared one write to the journal.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		grants: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "butler_ipam_open_grants",
			Help: "Grants in the journal: ranges promised in an admission response whose object has not been observed.",
		}),
		shares: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "butler_ipam_journal_used_ratio",
			Help: "Part of the journal that the open grants and withheld ranges of a namespace use: the namespaces that use most. The namespace is empty for cluster-scoped objects. Set by the leader.",
		}, []string{"namespace"}),
		leader: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "butler_ipam_journal_leader",
			Help: "1 while this replica leads: it may commit to the journal and grant.",
		}),
		takeovers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "butler_ipam_journal_takeovers_total",
			Help: "Times this replica became the leader.",
		}),
		unserved: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "butler_ipam_unserved_objects",
			Help: "Stored objects of an API that is switched off. They still own their addresses. Set by the leader.",
		}, []string{"resource"}),
		denied: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "butler_ipam_read_denied",
			Help: "1 for a resource that this replica has no right to read: nothing is allocated for the resource, and objects stored since then are not counted.",
		}, []string{"resource"}),
	}
	if reg != nil {
		reg.MustRegister(m.processed, m.commits, m.batches, m.grants, m.shares, m.leader, m.takeovers, m.unserved, m.denied)
	}
	return m
}

// countGranted counts a granted request of a pool.
func (m *Metrics) countGranted(pool Key) { m.count(pool, "success") }

// countDenied counts a denied request of a pool. Requests of missing pools, and requests
// that a replica could not serve, are not counted.
func (m *Metrics) countDenied(pool Key, err error) {
	var (
		of       *PoolError
		owned    *OwnedError
		deleting *PoolDeletingError
		faulty   *FaultyPoolError
		manual   *NotAutomaticError
		family   *FamilyError
	)
	if errors.As(err, &of) || errors.As(err, &owned) || errors.As(err, &deleting) || errors.As(err, &faulty) || errors.As(err, &manual) || errors.As(err, &family) {
		m.count(pool, "failed")
	}
}

func (m *Metrics) count(pool Key, result string) {
	if pool != (Key{}) {
		m.processed.WithLabelValues(pool.Resource, pool.Name, pool.Namespace, result).Inc()
	}
}

// forgetPool deletes the series of a deleted pool.
func (m *Metrics) forgetPool(pool Key) {
	m.processed.DeletePartialMatch(prometheus.Labels{"resource": pool.Resource, "pool": pool.Name, "namespace": pool.Namespace})
}

func (m *Metrics) observeCommit(took time.Duration, batch, entries int) {
	m.commits.Observe(took.Seconds())
	if batch > 0 {
		m.batches.Observe(float64(batch))
	}
	m.grants.Set(float64(entries))
}

func (m *Metrics) setLeading(now bool) {
	if now {
		m.takeovers.Inc()
		m.leader.Set(1)
	} else {
		m.leader.Set(0)
		m.grants.Set(0)
		m.shares.Reset()
	}
}

// setShares sets the namespaces that use most of the journal.
func (m *Metrics) setShares(list []state.JournalShare) {
	m.shares.Reset()
	for _, share := range list {
		m.shares.WithLabelValues(share.Namespace).Set(share.Part)
	}
}

// setUncounted sets the number of stored objects of each resource whose API is switched
// off, and the resources that cannot be read.
func (m *Metrics) setUncounted(unserved map[string]int, denied map[string]error) {
	for resource, n := range unserved {
		m.unserved.WithLabelValues(resource).Set(float64(n))
	}
	for resource, err := range denied {
		m.denied.WithLabelValues(resource).Set(gaugeOf(err != nil))
	}
}

func gaugeOf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
