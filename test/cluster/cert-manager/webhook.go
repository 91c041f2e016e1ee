package main

import (
	"context"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/cert-manager/cert-manager/internal/apis/config/shared"
	config "github.com/cert-manager/cert-manager/internal/apis/config/webhook"
	"github.com/cert-manager/cert-manager/internal/webhook"
)

// The webhook serves with a certificate of its own making. Its CA lies in a Secret, from
// where the cainjector takes it.
func runWebhook(ctx context.Context) error {
	namespace := os.Getenv("POD_NAMESPACE")
	server, err := webhook.NewCertManagerWebhookServer(klog.Background(), config.WebhookConfiguration{
		SecurePort:           10250,
		HealthzPort:          6080,
		MetricsListenAddress: "0",
		TLSConfig: shared.TLSConfig{Dynamic: shared.DynamicServingConfig{
			SecretNamespace: namespace,
			SecretName:      "cert-manager-webhook-ca",
			DNSNames:        []string{"cert-manager-webhook." + namespace + ".svc"},
			LeafDuration:    7 * 24 * time.Hour,
		}},
	})
	if err != nil {
		return err
	}
	return server.Run(klog.NewContext(ctx, klog.Background()))
}
