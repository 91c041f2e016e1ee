package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// otherName is what the API server calls the other webhook where a create fails for it.
const otherName = "other.chaos.example.com"

// otherTimeout is how long the API server waits for it, in seconds: some stalls are
// longer.
const otherTimeout = 3

// otherWebhook is one that somebody else has installed. It mutates nothing, but is called
// as if it did: after the allocator's webhook, so that the create which it does not let
// through has cost a grant.
type otherWebhook struct {
	http.Server
	mood  atomic.Pointer[mood]
	calls atomic.Int64
}

// mood is how the other webhook treats creates. The zero value lets them all pass.
type mood struct {
	refuses bool          // every second one
	stall   time.Duration // before each answer
}

// startOther starts the other webhook and installs it.
func startOther(ctx context.Context, s *sandbox.Sandbox, c client.Client) (*otherWebhook, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &otherWebhook{}
	o.mood.Store(&mood{})
	o.Handler = o
	go func() {
		dir := s.WebhookCertDir()
		_ = o.ServeTLS(listener, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")) // until it is closed
	}()
	return o, errors.Join(c.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zzz-chaos"}, // after zz-butler-ipam
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    otherName,
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To(int32(otherTimeout)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To("https://" + listener.Addr().String()), CABundle: s.Config().CAData,
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"ipallocations"},
				},
			}},
		}},
	}))
}

// be changes the mood of the other webhook.
func (o *otherWebhook) be(m mood) func(context.Context) error {
	return func(context.Context) error {
		o.mood.Store(&m)
		return nil
	}
}

// ServeHTTP answers an AdmissionReview.
func (o *otherWebhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "this is no admission review", http.StatusBadRequest)
		return
	}
	m := o.mood.Load()
	sleep(r.Context(), m.stall)
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if m.refuses && o.calls.Add(1)%2 == 0 {
		review.Response.Allowed = false
		review.Response.Result = &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "every second create is refused here"}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // who does not read the answer is gone
}
