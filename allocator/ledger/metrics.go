package ledger

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the ledger and its journal.
type Metrics struct {
	processed *prometheus.CounterVec
	commits   prometheus.Histogram
	batches   prometheus.Histogram
	grants    prometheus.Gauge
	holder    prometheus.Gauge
	takeovers prometheus.Counter
	unserved  *prometheus.GaugeVec
	denied    *prometheus.GaugeVec
}

// NewMetrics registers the metrics; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		processed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "butler_ip_allocation_processed_total",
			Help: "Requests for a range that were answered, by pool, its resource, and result (success, failed).",
		}, []string{"resource", "pool", "namespace", "result"}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "butler_ipam_journal_commit_duration_seconds",
			Help:    "Time to write the journal, until it is known to be stored.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "butler_ipam_journal_commit_grants",
			Help:    "New grants that shared one write of the journal.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		grants: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "butler_ipam_open_grants",
			Help: "Grants in the journal: promised in an answer, their object not yet seen.",
		}),
		holder: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "butler_ipam_journal_holder",
			Help: "1 while this replica holds the journal and grants.",
		}),
		takeovers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "butler_ipam_journal_takeovers_total",
			Help: "Times this replica took the journal over.",
		}),
		unserved: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "butler_ipam_unserved_objects",
			Help: "Stored objects of an API that is switched off, which own their addresses all the same. Shown by the replica that holds the journal.",
		}, []string{"resource"}),
		denied: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "butler_ipam_read_denied",
			Help: "1 for a resource that the API server does not let this replica read, and that is neither served nor counted therefore.",
		}, []string{"resource"}),
	}
	if reg != nil {
		reg.MustRegister(m.processed, m.commits, m.batches, m.grants, m.holder, m.takeovers, m.unserved, m.denied)
	}
	return m
}

// granted counts a request of a pool that was given what it asked for.
func (m *Metrics) granted(pool Key) { m.count(pool, "success") }

// refused counts one that was not, by the ledger. A pool that does not exist makes no series, a replica that cannot serve no result.
func (m *Metrics) refused(pool Key, err error) {
	var (
		of       *PoolError
		held     *HeldError
		deleting *PoolDeletingError
		faulty   *FaultyPoolError
		manual   *NotAutomaticError
		family   *FamilyError
	)
	if errors.As(err, &of) || errors.As(err, &held) || errors.As(err, &deleting) || errors.As(err, &faulty) || errors.As(err, &manual) || errors.As(err, &family) {
		m.count(pool, "failed")
	}
}

func (m *Metrics) count(pool Key, result string) {
	if pool != (Key{}) {
		m.processed.WithLabelValues(pool.Kind, pool.Name, pool.Namespace, result).Inc()
	}
}

// ForgetPool drops the series of a pool that is gone.
func (m *Metrics) ForgetPool(pool Key) {
	m.processed.DeletePartialMatch(prometheus.Labels{"resource": pool.Kind, "pool": pool.Name, "namespace": pool.Namespace})
}

func (m *Metrics) committed(took time.Duration, batch, lines int) {
	m.commits.Observe(took.Seconds())
	if batch > 0 {
		m.batches.Observe(float64(batch))
	}
	m.grants.Set(float64(lines))
}

func (m *Metrics) holding(now bool) {
	if now {
		m.takeovers.Inc()
		m.holder.Set(1)
	} else {
		m.holder.Set(0)
		m.grants.Set(0)
	}
}

// uncounted shows the stored objects of each API that is switched off, and which resources cannot be read.
func (m *Metrics) uncounted(unserved map[string]int, denied map[string]error) {
	for kind, n := range unserved {
		m.unserved.WithLabelValues(kind).Set(float64(n))
	}
	for kind, err := range denied {
		m.denied.WithLabelValues(kind).Set(float64(b2i(err != nil)))
	}
}
