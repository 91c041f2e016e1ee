package metal3_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

func TestWhoseAnIPAddressIsCannotBeChanged(t *testing.T) {
	const (
		address = `spec.address: Forbidden: address cannot be changed: create another IPAddress and delete this one`
		pool    = `spec.pool: Forbidden: name, namespace and kind of the pool cannot be changed: create another IPAddress and delete this one`
		claim   = `spec.claim: Forbidden: name, namespace and kind of the claim cannot be changed: create another IPAddress and delete this one`
	)
	gateway := v1alpha1.IP("10.0.0.254")
	cases := map[string]struct {
		change func(*v1alpha1.IPAddress)
		want   []string
	}{
		"nothing": {change: func(*v1alpha1.IPAddress) {}},
		"what it comes with": {change: func(o *v1alpha1.IPAddress) {
			o.Spec.Prefix, o.Spec.Gateway, o.Spec.DNSServers, o.Labels = 25, &gateway, []v1alpha1.IP{"8.8.8.8"}, map[string]string{"app": "web"}
		}},
		"what does not count of a reference": {change: func(o *v1alpha1.IPAddress) {
			o.Spec.Pool.UID, o.Spec.Pool.APIVersion, o.Spec.Claim.UID, o.Spec.Claim.ResourceVersion = "u", "ipam.metal3.io/v1alpha1", "u", "1"
		}},
		"address":           {change: func(o *v1alpha1.IPAddress) { o.Spec.Address = "10.0.0.2" }, want: []string{address}},
		"no address":        {change: func(o *v1alpha1.IPAddress) { o.Spec.Address = "" }, want: []string{address}},
		"pool":              {change: func(o *v1alpha1.IPAddress) { o.Spec.Pool.Name = "q" }, want: []string{pool}},
		"no pool":           {change: func(o *v1alpha1.IPAddress) { o.Spec.Pool = corev1.ObjectReference{} }, want: []string{pool}},
		"pool's namespace":  {change: func(o *v1alpha1.IPAddress) { o.Spec.Pool.Namespace = "" }, want: []string{pool}},
		"pool's kind":       {change: func(o *v1alpha1.IPAddress) { o.Spec.Pool.Kind = "IPPool" }, want: []string{pool}},
		"claim":             {change: func(o *v1alpha1.IPAddress) { o.Spec.Claim.Name = "d" }, want: []string{claim}},
		"claim's namespace": {change: func(o *v1alpha1.IPAddress) { o.Spec.Claim.Namespace = "" }, want: []string{claim}},
		"claim's kind":      {change: func(o *v1alpha1.IPAddress) { o.Spec.Claim.Kind = "IPClaim" }, want: []string{claim}},
		"everything": {
			change: func(o *v1alpha1.IPAddress) { o.Spec = v1alpha1.IPAddressSpec{Address: "10.0.0.2"} },
			want:   []string{address, pool, claim},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old := &v1alpha1.IPAddress{Spec: v1alpha1.IPAddressSpec{
				Address: "10.0.0.1", Pool: corev1.ObjectReference{Name: "p", Namespace: "default"}, Claim: corev1.ObjectReference{Name: "c", Namespace: "default"},
			}}
			updated := old.DeepCopy()
			tc.change(updated)
			if diff := cmp.Diff(tc.want, texts(metal3.ValidateIPAddress(old, updated))); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// An annotation may have 256 KiB, a condition 32 KiB: what quotes it must fit.
func TestAFailureQuotesNoMoreThanAnybodyReads(t *testing.T) {
	asked := strings.Repeat("1", 200_000)
	_, err := metal3.BuildRequest(&v1alpha1.IPPool{}, "claim", asked)
	if failure := annotated.Failure(""); !errors.As(err, &failure) || len(failure) > 2048 || !strings.HasPrefix(string(failure), `Invalid ipAddress annotation "111`) {
		t.Errorf("the failure is %.100v", err)
	}
}
