package webhooks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
)

// Values of the label result.
const (
	resultAllowed     = "allowed"
	resultDenied      = "denied"
	resultForwarded   = "forwarded"   // the journal's holder has answered
	resultUnavailable = "unavailable" // this replica could not serve
	resultBroken      = "broken"      // not an admission review, or a bug of ours
)

// Metrics of the webhooks.
type Metrics struct{ duration *prometheus.HistogramVec }

// NewMetrics registers the metrics; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "butler_ipam_admission_duration_seconds",
		Help:    "Time to answer an admission request, by webhook, operation and result (allowed, denied, forwarded, unavailable, broken).",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
	}, []string{"webhook", "operation", "result"})}
	if reg != nil {
		reg.MustRegister(m.duration)
	}
	return m
}

func (m *Metrics) answered(webhook string, operation admissionv1.Operation, result string, took time.Duration) {
	switch operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete:
	default:
		operation = "OTHER" // whatever the caller wrote must not become a series of its own
	}
	m.duration.WithLabelValues(webhook, string(operation), result).Observe(took.Seconds())
}
