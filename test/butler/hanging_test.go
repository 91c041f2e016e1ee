package butler

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

// Somebody's webhook answers nothing: for one namespace, then for many. The claims there
// have no status; those of other namespaces do.
func TestHangingWrites_DelayNoOtherNamespace(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	_, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	free := suite.CreateNamespace(t, c)
	var hung []string
	for range 9 {
		hung = append(hung, suite.CreateNamespace(t, c))
	}
	suite.Create(t, c, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hangs"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name:         "hangs.example.com",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://" + silent.Addr().String() + "/")},
		Rules: []admissionregistrationv1.RuleWithOperations{
			suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Update}, "ipallocations/status", "butler.butlerlabs.dev")[0].RuleWithOperations,
		},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: hung},
		}},
		FailurePolicy:           ptr.To(admissionregistrationv1.Fail),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          ptr.To[int32](10),
		AdmissionReviewVersions: []string{"v1"},
	}}})
	suite.Create(t, c, pool(free, "10.51.0.0/22"))
	for i, ns := range hung {
		suite.Create(t, c, pool(ns, fmt.Sprintf("10.%d.0.0/22", 52+i)))
	}
	time.Sleep(2 * time.Second) // the API server learns of webhooks a while after they are stored
	for _, step := range []struct {
		what string
		hung []string
		each int
	}{
		{"one", hung[:1], 300},
		{"many", hung[1:], 40},
	} {
		for i := range step.each {
			for _, ns := range step.hung {
				suite.Create(t, c, claim(ns, fmt.Sprint("a-", i), 1))
			}
		}
		time.Sleep(15 * time.Second) // by then the first writes have hung as long as they may
		slowest := time.Duration(0)
		for i := range 20 {
			a := claim(free, fmt.Sprint(step.what, "-", i), 1)
			suite.Create(t, c, a)
			began := time.Now()
			suite.AwaitObject(t, c, a, func(a *v1alpha1.IPAllocation) string {
				if !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady) {
					return "Ready"
				}
				return ""
			})
			took := time.Since(began)
			if slowest = max(slowest, took); took > 10*time.Second {
				t.Fatalf("%s was Ready after %s", a.Name, took)
			}
		}
		t.Logf("%s: Ready after %s at most", step.what, slowest)
	}
	for _, ns := range hung {
		var there v1alpha1.IPAllocationList
		if err := c.List(t.Context(), &there, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(there.Items, func(a v1alpha1.IPAllocation) bool { return a.Status.Phase != "" }) {
			t.Errorf("a status was written in %s: nothing hung", ns)
		}
	}
}
