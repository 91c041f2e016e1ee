package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// log is what a manager has logged.
func log(m *sandbox.Manager) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(m.LogPath())
		return string(text), err
	}
}

// statusOf is the HTTP status of a GET with a bearer token, if there is one.
func statusOf(t *testing.T, url, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// token is one of a new service account.
func token(t *testing.T, c client.Client, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: name}}
	suite.Create(t, c, account)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func do(t *testing.T, actions ...error) {
	t.Helper()
	for _, err := range actions {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The subtests are steps in the life of one manager.
func TestManager(t *testing.T) {
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--metrics-secure=true", "--shutdown-delay=2s"}})
	m := s.Managers()[0]
	health := "http://" + m.HealthAddress

	t.Run("is_healthy_and_ready", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz", "/readyz/ledger", "/readyz/webhooks"} {
			if got := statusOf(t, health+path, ""); got != http.StatusOK {
				t.Errorf("%s: status %d", path, got)
			}
		}
	})

	t.Run("speaks_HTTP1_and_modern_TLS_to_webhook_callers", func(t *testing.T) {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}
		conn, err := dialer.DialContext(t.Context(), "tcp", m.WebhookAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" {
			t.Errorf("protocol %q", got)
		}
		old := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}}
		if _, err := old.DialContext(t.Context(), "tcp", m.WebhookAddress); err == nil {
			t.Error("TLS 1.1 is accepted")
		}
	})

	t.Run("shows_metrics_to_authorized_callers", func(t *testing.T) {
		url := "https://" + m.MetricsAddress + "/metrics"
		if got := statusOf(t, url, ""); got != http.StatusUnauthorized {
			t.Errorf("without a token: status %d", got)
		}
		if got := statusOf(t, url, "made-up"); got == http.StatusOK {
			t.Errorf("with a wrong token: status %d", got)
		}
		if got := statusOf(t, url, token(t, c, "anybody")); got != http.StatusForbidden {
			t.Errorf("without the right: status %d", got)
		}
		suite.Kubectl(t, s, "", "create", "clusterrole", "scraper", "--verb=get", "--non-resource-url=/metrics")
		suite.Kubectl(t, s, "", "create", "clusterrolebinding", "scraper", "--clusterrole=scraper", "--serviceaccount="+sandbox.Namespace+":prometheus")
		// The manager keeps a denial for a while.
		suite.AwaitReview(t, c, authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + sandbox.Namespace + ":prometheus", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		}, true)
		if got := statusOf(t, url, token(t, c, "prometheus")); got != http.StatusOK {
			t.Errorf("with the right: status %d", got)
		}
	})

	t.Run("ends_after_its_shutdown_delay", func(t *testing.T) {
		asked := time.Now()
		do(t, m.Terminate(), m.Wait(t.Context()))
		if took := time.Since(asked); took <= 2*time.Second || took >= 4*time.Second {
			t.Errorf("it ended after %s", took)
		}
	})

	// As after a power cut. The kubelet starts one that ends again at ever longer
	// intervals, of up to five minutes.
	t.Run("waits_for_a_later_API_server", func(t *testing.T) {
		server := s.APIServer()
		do(t, server.Kill())
		_ = server.Wait(t.Context())
		do(t, m.Start())
		suite.AwaitText(t, func(ctx context.Context) (string, error) { return fmt.Sprint(m.Probe(ctx)), nil }, "[-]apiserver failed")
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if got := statusOf(t, health+"/healthz", ""); got != http.StatusOK {
				t.Fatalf("/healthz: status %d", got)
			}
		}
		suite.AwaitText(t, log(m), "the API server is not ready")
		do(t, m.Terminate(), m.Wait(t.Context())) // at once, while it waits
		do(t, m.Start(), server.Start(), server.Ready(t.Context()))
		suite.Eventually(t, 10*time.Second, m.Probe)
		do(t, m.Terminate(), m.Wait(t.Context()))

		text, err := log(m)(t.Context())
		do(t, err)
		if !regexp.MustCompile(`"Not ready","check":"apiserver","why":"the API server is not ready: .*connection refused`).MatchString(text) ||
			!strings.Contains(text, `"Ready","check":"apiserver"`) || strings.Contains(text, "healthz check failed") {
			t.Errorf("the log does not say how the probes changed:\n%s", text)
		}
		if n := strings.Count(text, "Not ready"); n >= 20 {
			t.Errorf("%d lines for changes of the probes: each answer is logged", n)
		}
	})

	t.Run("ends_at_once_while_it_waits_for_rights", func(t *testing.T) {
		suite.Kubectl(t, s, "", "delete", "clusterrolebinding", "butler-ipam")
		do(t, m.Start())
		suite.AwaitText(t, log(m), "is forbidden")
		if got := statusOf(t, health+"/readyz", ""); got == http.StatusOK {
			t.Error("it is ready without its rights")
		}
		asked := time.Now()
		do(t, m.Terminate(), m.Wait(t.Context()))
		if took := time.Since(asked); took >= 2*time.Second {
			t.Errorf("it ended after %s: the shutdown delay is for managers that serve", took)
		}
	})
}

func TestManager_WaitsForCRDs(t *testing.T) {
	t.Parallel()
	s, _ := suite.StartSandbox(t, sandbox.Options{})
	suite.Kubectl(t, s, "", "delete", "crd", "proxyippools.novaedge.io", "ippools.ipam.metal3.io")
	serves := make(chan error, 1)
	go func() {
		_, err := s.AddManager(t.Context())
		serves <- err
	}()
	suite.AwaitText(t, func(ctx context.Context) (string, error) {
		if all := s.Managers(); len(all) > 0 {
			return log(all[0])(ctx)
		}
		return "", nil
	}, "no CRDs proxyippools.novaedge.io, ippools.ipam.metal3.io: install them")
	do(t, s.InstallCRDs(t.Context(), "config/crd"), <-serves)
}

func TestManager_InvalidFlag(t *testing.T) {
	t.Parallel()
	s, _ := suite.StartSandbox(t, sandbox.Options{})
	if _, err := s.AddManager(t.Context(), "--grant-expiry=1s"); err == nil || !strings.Contains(err.Error(), "--grant-expiry 1s must be at least 45s") {
		t.Errorf("it says %v", err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1})
	ns, k := suite.CreateNamespace(t, c), suite.Kinds[0]
	other := &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool"}, Spec: metal3v1.IPPoolSpec{
		Prefix: 24, NamePrefix: "pool", Pools: []metal3v1.Pool{{Subnet: ptr.To("10.61.0.0/24")}},
	}}
	frozen := other.DeepCopy() // the manager writes no status of a paused pool
	frozen.Name, frozen.Spec.NamePrefix = "frozen", "frozen"
	frozen.Annotations = map[string]string{"cluster.x-k8s.io/paused": "true"}
	frozen.Spec.Pools = []metal3v1.Pool{{Subnet: ptr.To("10.62.0.0/24")}}
	suite.Create(t, c, k.Pool(ns, "10.0.0.1", "10.0.0.9"), k.Claim(ns, "one", ""), other, frozen)
	frozen.Status.Indexes = map[string]metal3v1.IP{}
	for n := range 4300 { // with names of this length there is no room for one more
		frozen.Status.Indexes[fmt.Sprintf("%0232d", n)] = "10.62.0.1"
	}
	do(t, c.Status().Update(t.Context(), frozen))
	metrics := func(ctx context.Context) (string, error) {
		return suite.GetURL(ctx, "http://"+s.Managers()[0].MetricsAddress+"/metrics")
	}

	t.Run("of_the_alerts_and_the_dashboard", func(t *testing.T) {
		var read []string
		for _, file := range []string{"alerts.yaml", "dashboard.json"} {
			text, err := os.ReadFile("../../charts/butler-ipam/files/" + file)
			do(t, err)
			read = append(read, regexp.MustCompile(`\bbutler_\w+`).FindAllString(string(text), -1)...)
		}
		slices.Sort(read)
		for _, name := range slices.Compact(read) {
			elsewhere := []string{"butler_ipam_certificate_ready", "butler_ipam_journal_used_ratio", "butler_ipam_moved_ranges", "butler_ipam_unserved_objects"}
			if slices.Contains(elsewhere, name) || strings.HasPrefix(name, "butler_ipam_tenant_") {
				continue // only where there is something of the kind, or with --tenants: the tests of those read them
			}
			series := regexp.MustCompile(`(?m)^` + name + `[{ ]`)
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
				text, err := metrics(ctx)
				if err == nil && !series.MatchString(text) {
					err = fmt.Errorf("no metric %s", name)
				}
				return err
			})
		}
	})

	t.Run("of_two_kinds_of_pools_with_one_name", func(t *testing.T) {
		for _, resource := range []string{"networkpools.butler.butlerlabs.dev", "ippools.ipam.metal3.io"} {
			suite.AwaitText(t, metrics, fmt.Sprintf(`butler_network_pool_total_ips{namespace=%q,pool="pool",resource=%q} `, ns, resource))
		}
	})
}
