package lifecycle

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/test/sandbox"
)

var _ = Describe("the manager", Ordered, func() {
	var (
		c       *cluster
		manager *sandbox.Manager
	)
	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--metrics-secure=true", "--shutdown-delay=2s"}})
		DeferCleanup(c.Stop)
		manager = c.Managers()[0]
	})

	It("is healthy and ready", func(ctx SpecContext) {
		for _, path := range []string{"/healthz", "/readyz", "/readyz/ledger", "/readyz/webhooks"} {
			Expect(status(ctx, "http://"+manager.HealthAddress+path, "")).To(Equal(http.StatusOK), path)
		}
	})

	It("speaks HTTP/1.1 on its webhook port, also to who offers more, and says no to plain HTTP", func(ctx SpecContext) {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}
		conn, err := dialer.DialContext(ctx, "tcp", manager.WebhookAddress)
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		Expect(conn.(*tls.Conn).ConnectionState().NegotiatedProtocol).To(Equal("http/1.1"))
		old := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}}
		_, err = old.DialContext(ctx, "tcp", manager.WebhookAddress)
		Expect(err).To(HaveOccurred(), "TLS 1.1 is accepted")
	})

	It("shows its metrics to those who may see them", func(ctx SpecContext) {
		url := "https://" + manager.MetricsAddress + "/metrics"
		Expect(status(ctx, url, "")).To(Equal(http.StatusUnauthorized))
		Expect(status(ctx, url, "made-up")).NotTo(Equal(http.StatusOK))
		Expect(status(ctx, url, c.token(ctx, "anybody"))).To(Equal(http.StatusForbidden))
		_, _, err := c.Kubectl(ctx, "", "create", "clusterrole", "scraper", "--verb=get", "--non-resource-url=/metrics")
		Expect(err).NotTo(HaveOccurred())
		_, _, err = c.Kubectl(ctx, "", "create", "clusterrolebinding", "scraper", "--clusterrole=scraper", "--serviceaccount="+sandbox.Namespace+":prometheus")
		Expect(err).NotTo(HaveOccurred())
		Expect(status(ctx, url, c.token(ctx, "prometheus"))).To(Equal(http.StatusOK))
	})

	It("ends within three seconds of SIGTERM, and without an error", func(ctx SpecContext) {
		asked := time.Now()
		Expect(manager.Terminate()).To(Succeed())
		Expect(manager.Wait(ctx)).To(Succeed())
		Expect(time.Since(asked)).To(And(BeNumerically(">", 2*time.Second), BeNumerically("<", 4*time.Second)))
	})

	// As after a power cut. The kubelet starts one that ends again at ever longer intervals, of up to five minutes.
	It("waits for an API server that comes up after it", func(ctx SpecContext) {
		server := c.APIServer()
		Expect(server.Kill()).To(Succeed())
		Expect(server.Wait(ctx)).NotTo(Succeed())
		Expect(manager.Start()).To(Succeed())
		Eventually(ctx, func() error { return manager.Probe(ctx) }).Should(MatchError(ContainSubstring("[-]apiserver failed")))
		Consistently(ctx, func() (int, error) { return status(ctx, "http://"+manager.HealthAddress+"/healthz", "") }, 3*time.Second).Should(Equal(http.StatusOK))
		Expect(os.ReadFile(manager.LogPath())).To(ContainSubstring("the API server is not ready"))

		By("ending at once when told to meanwhile")
		Expect(manager.Terminate()).To(Succeed())
		Expect(manager.Wait(ctx)).To(Succeed())

		By("serving within seconds")
		Expect(manager.Start()).To(Succeed())
		Expect(server.Start()).To(Succeed())
		Expect(server.Ready(ctx)).To(Succeed())
		Eventually(ctx, func() error { return manager.Probe(ctx) }, 10*time.Second).Should(Succeed())
		Expect(manager.Terminate()).To(Succeed())
		Expect(manager.Wait(ctx)).To(Succeed())

		By("logging each change of what its probes answer, once")
		log, err := os.ReadFile(manager.LogPath())
		Expect(err).NotTo(HaveOccurred())
		Expect(string(log)).To(MatchRegexp(`"Not ready","check":"apiserver","why":"the API server is not ready: .*connection refused`))
		Expect(string(log)).To(ContainSubstring(`"Ready","check":"apiserver"`))
		Expect(strings.Count(string(log), "Not ready")).To(BeNumerically("<", 20), "it is asked far more often")
		Expect(string(log)).NotTo(ContainSubstring("healthz check failed"))
	}, NodeTimeout(5*time.Minute))

	It("ends at once when told to while it waits for what it may not read", func(ctx SpecContext) {
		_, _, err := c.Kubectl(ctx, "", "delete", "clusterrolebinding", "butler-ipam")
		Expect(err).NotTo(HaveOccurred())
		Expect(manager.Start()).To(Succeed())
		Eventually(func() (string, error) {
			log, err := os.ReadFile(manager.LogPath())
			return string(log), err
		}).Should(ContainSubstring("is forbidden"))
		Expect(status(ctx, "http://"+manager.HealthAddress+"/readyz", "")).NotTo(Equal(http.StatusOK))
		asked := time.Now()
		Expect(manager.Terminate()).To(Succeed())
		Expect(manager.Wait(ctx)).To(Succeed())
		Expect(time.Since(asked)).To(BeNumerically("<", 2*time.Second), "the shutdown delay is for who was asked")
	}, NodeTimeout(5*time.Minute))

	It("waits for CRDs that come after it, and names them", func(ctx SpecContext) {
		bare := start(ctx, sandbox.Options{})
		DeferCleanup(bare.Stop)
		_, _, err := bare.Kubectl(ctx, "", "delete", "crd", "proxyippools.novaedge.io", "ippools.ipam.metal3.io")
		Expect(err).NotTo(HaveOccurred())
		early := make(chan error, 1)
		go func() {
			_, err := bare.AddManager(ctx)
			early <- err
		}()
		Eventually(ctx, bare.Managers).Should(HaveLen(1))
		Eventually(ctx, func() (string, error) {
			log, err := os.ReadFile(bare.Managers()[0].LogPath())
			return string(log), err
		}).Should(ContainSubstring("no CRDs proxyippools.novaedge.io, ippools.ipam.metal3.io: install them"))
		Expect(bare.InstallCRDs(ctx, "config/crd")).To(Succeed())
		Eventually(ctx, early, time.Minute).Should(Receive(Succeed()))
	}, NodeTimeout(5*time.Minute))

	It("says at once what its command line lacks", func(ctx SpecContext) {
		_, err := sandbox.Start(ctx, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--grant-expiry=1s"}})
		Expect(err).To(MatchError(ContainSubstring("--grant-expiry 1s must be at least 45s")))
	})
})

// status is the HTTP status of a GET with a bearer token, if there is one.
func status(ctx context.Context, url, token string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// token is one of a new service account.
func (c *cluster) token(ctx context.Context, name string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: name}}
	c.create(ctx, account)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}
	Expect(c.SubResource("token").Create(ctx, account, request)).To(Succeed(), fmt.Sprintf("token of %s", name))
	return request.Status.Token
}
