package admission

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// Somebody's webhook for one namespace answers nothing. The claims there have no status then; those of other namespaces do.
func TestANamespaceWhoseWritesHangKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	_, c := suite.Own(t, sandbox.Options{Replicas: 1})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	hung, free := suite.Namespace(t, c), suite.Namespace(t, c)
	suite.Create(t, c, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hangs"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name:         "hangs.example.com",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://" + silent.Addr().String() + "/")},
		Rules: []admissionregistrationv1.RuleWithOperations{
			suite.Operations([]admissionregistrationv1.OperationType{admissionregistrationv1.Update}, "ipallocations/status", "butler.butlerlabs.dev")[0].RuleWithOperations,
		},
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: hung}},
		FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          ptr.To[int32](10),
		AdmissionReviewVersions: []string{"v1"},
	}}})
	suite.Create(t, c, pool(hung, "10.50.0.0/22"), pool(free, "10.51.0.0/22"))
	time.Sleep(2 * time.Second) // the API server learns of webhooks a while after they are stored
	for i := range 300 {
		suite.Create(t, c, claim(hung, fmt.Sprint("a-", i), 1))
	}
	time.Sleep(15 * time.Second) // by then the first writes have hung as long as they may
	for i := range 20 {
		a := claim(free, fmt.Sprint("a-", i), 1)
		suite.Create(t, c, a)
		began := time.Now()
		suite.Becomes(t, c, a, func(a *v1alpha1.IPAllocation) string {
			if !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady) {
				return "Ready"
			}
			return ""
		})
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("%s was Ready after %s", a.Name, took)
		}
	}
	var there v1alpha1.IPAllocationList
	if err := c.List(t.Context(), &there, client.InNamespace(hung)); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(there.Items, func(a v1alpha1.IPAllocation) bool { return a.Status.Phase != "" }) {
		t.Error("a status was written there: nothing hung")
	}
}
