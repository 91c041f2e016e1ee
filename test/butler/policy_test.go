package butler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// What config/policy holds for clusters where who creates claims is not trusted.
func TestMetadataPolicy_BoundsAClaim(t *testing.T) {
	ns := namespace(t)
	text, err := os.ReadFile("../../config/policy/metadata.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	first, second, _ := strings.Cut(string(text), "\n---\n")
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), policy), yaml.UnmarshalStrict([]byte(second), binding)); err != nil {
		t.Fatal(err)
	}
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}}
	with := func(labels, annotations, characters int) func(*v1alpha1.IPAllocation) {
		return func(a *v1alpha1.IPAllocation) {
			a.Labels = map[string]string{}
			for i := range labels {
				a.Labels[fmt.Sprint("l", i)] = "x"
			}
			for i := range annotations {
				metav1.SetMetaDataAnnotation(&a.ObjectMeta, fmt.Sprint("a", i), strings.Repeat("x", characters))
			}
		}
	}
	made := func(name string, change func(*v1alpha1.IPAllocation)) *v1alpha1.IPAllocation {
		a := claim(ns, name, 1)
		change(a)
		return a
	}
	early := made("early", with(100, 3, 40000))
	suite.Create(t, admin, pool(ns, "10.57.0.0/24"), early)
	suite.CreateForTest(t, admin, policy, binding)
	tooMany := made("too-many", with(65, 0, 0))
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // once the API server has compiled it
		err := admin.Create(ctx, tooMany.DeepCopy())
		if err == nil || strings.Contains(err.Error(), "already exists") {
			return errors.Join(errors.New("it is not refused yet"), admin.Delete(ctx, tooMany.DeepCopy()))
		}
		return nil
	})
	suite.RequireDenied(t, admin.Create(t.Context(), tooMany), 422, "metadata.labels: at most 64 are taken")
	suite.RequireDenied(t, admin.Create(t.Context(), made("annotated", with(0, 65, 2))), 422, "metadata.annotations: at most 64 are taken")
	suite.RequireDenied(t, admin.Create(t.Context(), made("long", with(0, 2, 40000))), 422, "metadata.annotations: at most 65536 characters are taken")

	full := made("full", with(64, 64, 1024)) // as its author counts: the allocator adds labels, annotations and a finalizer
	for i := range 64 {
		full.Finalizers = append(full.Finalizers, fmt.Sprint("example.com/f", i))
	}
	suite.Create(t, admin, full)
	suite.Change(t, admin, full, func(a *v1alpha1.IPAllocation) { a.Finalizers = a.Finalizers[64:] })

	a := made("a", with(40, 40, 1000))
	suite.Create(t, admin, a)
	suite.RequireDenied(t, suite.TryChange(t, admin, a, with(65, 0, 0)), 422, "metadata.labels: at most 64 are taken")
	suite.Change(t, admin, early, func(a *v1alpha1.IPAllocation) { // it has more, and less than before
		delete(a.Labels, "l0")
		delete(a.Annotations, "a0")
	})
	suite.Delete(t, admin, early)
}
