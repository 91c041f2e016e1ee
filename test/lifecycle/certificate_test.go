package lifecycle

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"butlerlabs.dev/ipam/test/sandbox"
)

// cert-manager itself does not run: the test writes the status that it would.
var _ = Describe("a Certificate of cert-manager", Ordered, func() {
	var (
		c       *cluster
		manager *sandbox.Manager
	)
	root := filepath.Join("..", "..")
	readyz := func(ctx context.Context) func() (string, error) {
		return func() (string, error) { return get(ctx, "http://"+manager.HealthAddress+"/readyz?verbose") }
	}
	metric := func(ctx context.Context) (string, error) {
		return get(ctx, "http://"+manager.MetricsAddress+"/metrics")
	}
	says := func() string {
		text, err := os.ReadFile(manager.LogPath())
		Expect(err).NotTo(HaveOccurred())
		return string(text)
	}
	becomes := func(ctx context.Context, status string) {
		_, _, err := c.Kubectl(ctx, "", "patch", "certificate", "butler-ipam-webhook", "--namespace="+sandbox.ManagerNamespace, "--subresource=status", "--type=merge", "--patch="+status)
		Expect(err).NotTo(HaveOccurred())
	}
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{ManagerArgs: []string{"--certificate=butler-ipam-webhook"}})
		DeferCleanup(c.Stop)
		_, _, err := c.Kubectl(ctx, "", "apply", "--kustomize", filepath.Join(root, "config", "certmanager"))
		Expect(err).To(MatchError(ContainSubstring(`no matches for kind "Certificate"`)), "the roles alone are there now")
		manager, err = c.AddManager(ctx)
		Expect(err).NotTo(HaveOccurred())
	})

	It("is missed by nobody where cert-manager is not installed", func(ctx SpecContext) {
		Eventually(says).Should(ContainSubstring("cert-manager is not installed"))
		Expect(readyz(ctx)()).NotTo(ContainSubstring("warn"))
		Expect(metric(ctx)).NotTo(ContainSubstring("butler_ipam_certificate_ready"))
	})

	It("is watched as soon as it can be, and said to be not Ready by a manager that serves on", func(ctx SpecContext) {
		Expect(c.InstallCRDs(ctx, "bin/crds")).To(Succeed())
		_, _, err := c.Kubectl(ctx, "", "apply", "--kustomize", filepath.Join(root, "config", "certmanager"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(readyz(ctx)).WithTimeout(time.Minute).Should(ContainSubstring("warn: Certificate butler-ipam-system/butler-ipam-webhook is not Ready (cert-manager has not looked at it yet)"))
		Expect(metric(ctx)).To(ContainSubstring("butler_ipam_certificate_ready 0"))
	})

	It("is said to be well when it is", func(ctx SpecContext) {
		becomes(ctx, `{"status":{"renewalTime":"`+at(time.Hour)+`","notAfter":"`+at(48*time.Hour)+`","conditions":[{"type":"Ready","status":"True"}]}}`)
		Eventually(readyz(ctx)).ShouldNot(ContainSubstring("warn"))
		Expect(metric(ctx)).To(ContainSubstring("butler_ipam_certificate_ready 1"))
		Expect(says()).To(ContainSubstring("Certificate is Ready"))
	})

	It("is said to be overdue, though it is Ready", func(ctx SpecContext) {
		becomes(ctx, `{"status":{"renewalTime":"`+at(-2*time.Hour)+`"}}`)
		Eventually(readyz(ctx)).Should(ContainSubstring("should have been renewed"))
		Expect(says()).To(ContainSubstring("Certificate is not renewed"))
	})
})

// get is what an address answers, which must be 200.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", StopTrying("not 200").Attach("status", response.Status).Attach("body", string(body))
	}
	return string(body), err
}
