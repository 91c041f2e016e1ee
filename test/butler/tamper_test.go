package butler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// callAfterwards has the API server call a mutating webhook after the allocator's, for an
// operation on a resource in one namespace.
func callAfterwards(t *testing.T, namespace string, operation admissionregistrationv1.OperationType, resource string,
	answer func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	t.Helper()
	suite.RegisterMutatingWebhook(t, admin, namespace, suite.RespondingWebhook(t, answer), fmt.Sprintf("request.namespace == %q", namespace),
		suite.RulesFor([]admissionregistrationv1.OperationType{operation}, resource, "butler.butlerlabs.dev"))
}

// A mutating webhook is sent the body of such a write as it is, and may go by what is not
// in it.
func TestStatus_WrittenUnderStrictValidation(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.29.0.0/24"))
	var refusals atomic.Int32
	callAfterwards(t, ns, admissionregistrationv1.Update, "ipallocations/status", func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		a := &v1alpha1.IPAllocation{}
		if err := json.Unmarshal(r.Object.Raw, a); err != nil || a.Spec.PoolRef.Name == "" || len(a.Labels) == 0 {
			refusals.Add(1)
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Message: "where is the rest of it?"}}
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	for refused, tries := false, 0; !refused; tries++ { // the API server learns of a webhook a moment later
		if tries == 100 {
			t.Fatal("the webhook is not called")
		}
		a := claim(ns, fmt.Sprintf("a-%d", tries), 1)
		suite.Create(t, admin, a)
		suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAllocation) string {
			if !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady) {
				return "it is not Ready"
			}
			return ""
		})
		refused = refusals.Load() > 0
	}
}

func TestOtherWebhook_ChangedResponseIsDenied(t *testing.T) {
	for name, tc := range map[string]struct {
		patch string
		code  int32
		want  []string
	}{
		"another range": {`[{"op":"replace","path":"/spec/pinnedRange","value":{"startAddress":"10.50.0.8","endAddress":"10.50.0.11"}}]`,
			403, []string{"range 10.50.0.8-10.50.0.11", "another webhook or client has changed"}},
		"another token": {`[{"op":"replace","path":"/metadata/annotations/butler.butlerlabs.dev~1grant","value":"AAAAAAAAAAAAAAAB"}]`,
			503, []string{"that has no open grant", "another webhook or client has changed", "try again"}},
		"no token": {`[{"op":"remove","path":"/metadata/annotations/butler.butlerlabs.dev~1grant"}]`,
			503, []string{"comes without annotation butler.butlerlabs.dev/grant", "try again"}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t)
			p := pool(ns, "10.50.0.0/24")
			p.Spec.RoutingDomain = ns
			suite.Create(t, admin, p)
			callAfterwards(t, ns, admissionregistrationv1.Create, "ipallocations", func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(tc.patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
			})
			body := document(t, "IPAllocation", ns, "spec: {count: 4}")
			var last error
			suite.Eventually(t, 30*time.Second, func(ctx context.Context) error { // the API server learns of the webhook some time after it is stored
				if last = post(ctx, "ipallocations", ns, body); last == nil {
					return errors.New("the allocation was stored")
				}
				return nil
			})
			suite.RequireDenied(t, last, tc.code, tc.want...)
		})
	}
}
