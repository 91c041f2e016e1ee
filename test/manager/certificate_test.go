package manager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// cert-manager itself does not run: the test writes the status that it would. The
// subtests are steps in the life of one Certificate.
func TestCertificate(t *testing.T) {
	t.Parallel()
	s, _ := suite.StartSandbox(t, sandbox.Options{ManagerArgs: []string{"--certificate=butler-ipam-webhook", "--shutdown-delay=0s"}})
	kustomization := filepath.Join("..", "..", "config", "certmanager")
	_, _, err := s.Kubectl(t.Context(), "", "apply", "--kustomize", kustomization) // the roles alone are there now
	if err == nil || !strings.Contains(err.Error(), `no matches for kind "Certificate"`) {
		t.Fatal(err)
	}
	m, err := s.AddManager(t.Context())
	do(t, err)
	readyz := func(ctx context.Context) (string, error) {
		return suite.GetURL(ctx, "http://"+m.HealthAddress+"/readyz?verbose")
	}
	metrics := func(ctx context.Context) (string, error) {
		return suite.GetURL(ctx, "http://"+m.MetricsAddress+"/metrics")
	}
	lacks := func(t *testing.T, text func(context.Context) (string, error), part string) {
		t.Helper()
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
			got, err := text(ctx)
			if err == nil && strings.Contains(got, part) {
				err = fmt.Errorf("%q is in: %s", part, got)
			}
			return err
		})
	}
	becomes := func(t *testing.T, status string) {
		t.Helper()
		suite.Kubectl(t, s, "", "patch", "certificate", "butler-ipam-webhook", "--namespace="+sandbox.ManagerNamespace, "--subresource=status", "--type=merge", "--patch="+status)
	}
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

	t.Run("is_not_required_without_cert-manager", func(t *testing.T) {
		suite.AwaitText(t, log(m), "cert-manager is not installed")
		lacks(t, readyz, "warn")
		lacks(t, metrics, "butler_ipam_certificate_ready")
	})
	t.Run("not_Ready", func(t *testing.T) {
		do(t, s.InstallCRDs(t.Context(), "bin/crds"))
		suite.Kubectl(t, s, "", "apply", "--kustomize", kustomization)
		suite.Eventually(t, time.Minute, func(ctx context.Context) error { // the manager looks for the CRD twice a minute
			text, err := readyz(ctx)
			if err == nil && !strings.Contains(text, "warn: ") {
				err = errors.New("no warning")
			}
			return err
		})
		suite.AwaitText(t, readyz, "warn: Certificate butler-ipam-system/butler-ipam-webhook is not Ready (cert-manager has not looked at it yet)")
		suite.AwaitText(t, metrics, "butler_ipam_certificate_ready 0")
	})
	t.Run("Ready", func(t *testing.T) {
		becomes(t, `{"status":{"renewalTime":"`+at(time.Hour)+`","notAfter":"`+at(48*time.Hour)+`","conditions":[{"type":"Ready","status":"True"}]}}`)
		lacks(t, readyz, "warn")
		suite.AwaitText(t, metrics, "butler_ipam_certificate_ready 1")
		suite.AwaitText(t, log(m), "Certificate is Ready")
	})
	t.Run("overdue", func(t *testing.T) {
		becomes(t, `{"status":{"renewalTime":"`+at(-2*time.Hour)+`"}}`)
		suite.AwaitText(t, readyz, "should have been renewed")
		suite.AwaitText(t, log(m), "Certificate is not renewed")
	})
}
