package review

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
)

// Values of the label result.
const (
	resultAllowed     = "allowed"
	resultDenied      = "denied"
	resultForwarded   = "forwarded"   // answered by the leader
	resultUnavailable = "unavailable" // this replica could not serve
	resultBroken      = "broken"      // malformed AdmissionReview, or a bug of the webhook
)

// Metrics of the webhooks.
type Metrics struct{ duration *prometheus.HistogramVec }

// NewMetrics returns metrics that are registered with a registry; nil for no registry.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "butler_ipam_admission_duration_seconds",
		Help:    "Time to answer an admission request, by webhook, operation and result (allowed, denied, forwarded, unavailable, broken).",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
	}, []string{"webhook", "operation", "result"})}
	if registry != nil {
		registry.MustRegister(m.duration)
	}
	return m
}

func (m *Metrics) observeCall(webhook string, operation admissionv1.Operation, result string, duration time.Duration) {
	switch operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete:
	default:
		operation = "OTHER" // text of the caller must not become a label value
	}
	m.duration.WithLabelValues(webhook, string(operation), result).Observe(duration.Seconds())
}
