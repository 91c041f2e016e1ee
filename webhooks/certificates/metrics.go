package certificates

import "github.com/prometheus/client_golang/prometheus"

var (
	certificateExpiry = prometheus.NewDesc("butler_ipam_certificate_expiry_timestamp_seconds",
		"When the certificate of the webhooks ends, in Unix time.", nil, nil)
	certificateReady = prometheus.NewDesc("butler_ipam_certificate_ready",
		"Whether the certificate of the webhooks is renewed in time: 1, or 0 where cert-manager's Certificate is not Ready or is overdue, or the manager cannot renew its own.", nil, nil)
)

// Metrics is a prometheus.Collector. The values are read at each scrape, so a renewal
// shows at once.
type Metrics struct{ Setup }

// Describe implements prometheus.Collector.
func (m Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- certificateExpiry
	descriptions <- certificateReady
}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(metrics chan<- prometheus.Metric) {
	expiry := 0.0
	if certificate, err := m.Source.GetCertificate(nil); err == nil {
		expiry = float64(certificate.Leaf.NotAfter.Unix())
	}
	metrics <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, expiry)
	if m.Renewal == nil {
		return
	}
	switch problem, known := m.Renewal.Trouble(); {
	case problem != "":
		metrics <- prometheus.MustNewConstMetric(certificateReady, prometheus.GaugeValue, 0)
	case known:
		metrics <- prometheus.MustNewConstMetric(certificateReady, prometheus.GaugeValue, 1)
	}
}
