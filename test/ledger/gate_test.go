package ledger

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

// gateLabel marks the creates that the gate delays.
const gateLabel = "gate"

// gate is a slow third-party validating webhook: the delayed creates have their grants,
// and are not stored yet.
type gate struct {
	calls atomic.Int32  // so far
	open  chan struct{} // lets as many creates pass as are sent
}

func (c *cluster) startGate() *gate {
	c.Helper()
	pki := c.WebhookCertDir()
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "tls.crt"), filepath.Join(pki, "tls.key"))
	if err != nil {
		c.Fatal(err)
	}
	g := &gate{open: make(chan struct{})}
	server := httptest.NewUnstartedServer(g)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	c.Cleanup(server.Close)
	rule := admissionregistrationv1.Rule{APIGroups: []string{"butler.butlerlabs.dev"}, APIVersions: []string{"*"}, Resources: []string{"ipallocations"}}
	err = c.Create(c.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gate"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "gate.latewrites.test",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: c.Config().CAData},
			Rules:                   []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: rule}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{gateLabel: "true"}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To(int32(30)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	})
	if err != nil {
		c.Fatal(err)
	}
	suite.Eventually(c.T, patience, func(ctx context.Context) error {
		a := claim("try")
		a.Labels = map[string]string{gateLabel: "true"}
		if err := c.Create(ctx, a, client.DryRunAll); err != nil {
			return err
		}
		if g.calls.Load() == 0 {
			return errors.New("the API server does not call the gate")
		}
		return nil
	})
	g.calls.Store(0)
	return g
}

// pass lets n creates pass at this interval.
func (g *gate) pass(n int, apart time.Duration) {
	for range n {
		g.open <- struct{}{}
		time.Sleep(apart)
	}
}

// ServeHTTP lets a create pass when the gate is opened for it, and a dry run at once.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	g.calls.Add(1)
	if !*review.Request.DryRun {
		select {
		case <-g.open:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
}

// outcome is the result of a create as its client observed it.
type outcome struct {
	name string
	err  error
}

// failures are the names of the creates that failed, among n of which the first is known.
func failures(first outcome, others <-chan outcome, n int) []string {
	var names []string
	for o := first; ; o = <-others {
		if o.err != nil {
			names = append(names, o.name)
		}
		if n--; n == 0 {
			return names
		}
	}
}

// hold starts n creates, each by a client of the caller's choice, and returns when all of
// them have their grants and wait at the gate. The channel gets what comes of each.
func (c *cluster) hold(n int, by func(i int) client.Client) <-chan outcome {
	c.Helper()
	outcomes := make(chan outcome, n)
	for i := range n {
		go func() {
			a := claim(fmt.Sprintf("owned-%d", i))
			a.Labels = map[string]string{gateLabel: "true"}
			outcomes <- outcome{a.Name, by(i).Create(c.Context(), a)}
		}()
	}
	suite.Eventually(c.T, patience, func(context.Context) error {
		if waiting := c.gate.calls.Load(); int(waiting) < n {
			return fmt.Errorf("%d of %d creates wait at the gate", waiting, n)
		}
		return nil
	})
	return outcomes
}
