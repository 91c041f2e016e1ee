package novaedge

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// One control plane with two managers serves the whole package. Each test uses networks
// of its own, because all pools share one routing domain.
var (
	cluster *sandbox.Sandbox
	admin   client.Client
)

func TestMain(m *testing.M) {
	o := sandbox.Options{Replicas: 2, Restart: true, ManagerArgs: []string{"--shutdown-delay=0s", "--service-vips"}}
	suite.Main(m, o, func(_ context.Context, s *sandbox.Sandbox) (err error) {
		cluster = s
		admin, err = suite.NewClient(s)
		return err
	})
}

// pool returns a ProxyIPPool with autoAssign. Arguments without prefix length, or with a
// full prefix length, become addresses; the others networks.
func pool(name string, offers ...string) *v1alpha1.ProxyIPPool {
	p := &v1alpha1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProxyIPPoolSpec{AutoAssign: true}}
	for _, offer := range offers {
		if strings.Contains(offer, "/") {
			p.Spec.CIDRs = append(p.Spec.CIDRs, offer)
		} else {
			p.Spec.Addresses = append(p.Spec.Addresses, offer)
		}
	}
	return p
}

// vip returns a ProxyVIP of a pool, without poolRef if pool is "".
func vip(name, pool string, more ...func(*v1alpha1.ProxyVIPSpec)) *v1alpha1.ProxyVIP {
	v := &v1alpha1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProxyVIPSpec{Mode: v1alpha1.ModeBGP, Ports: []int32{80}}}
	if pool != "" {
		v.Spec.PoolRef = &v1alpha1.PoolReference{Name: pool}
	}
	for _, m := range more {
		m(&v.Spec)
	}
	return v
}

func at(address string) func(*v1alpha1.ProxyVIPSpec) {
	return func(s *v1alpha1.ProxyVIPSpec) { s.Address = address }
}

func at6(address string) func(*v1alpha1.ProxyVIPSpec) {
	return func(s *v1alpha1.ProxyVIPSpec) { s.IPv6Address = address }
}

func of(family v1alpha1.AddressFamily) func(*v1alpha1.ProxyVIPSpec) {
	return func(s *v1alpha1.ProxyVIPSpec) { s.AddressFamily = family }
}

// addresses returns the addresses in the spec of a ProxyVIP, separated by a space.
func addresses(v *v1alpha1.ProxyVIP) string {
	return strings.TrimSpace(v.Spec.Address + " " + v.Spec.IPv6Address)
}

// gets creates a ProxyVIP and fails the test unless the response has these addresses.
func gets(t *testing.T, v *v1alpha1.ProxyVIP, want string) {
	t.Helper()
	suite.CreateForTest(t, admin, v)
	if got := addresses(v); got != want {
		t.Errorf("%s got %q, want %q", v.Name, got, want)
	}
}

// counts waits until the status of a pool has these counters.
func counts(t *testing.T, p *v1alpha1.ProxyIPPool, allocated, available int64) {
	t.Helper()
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.ProxyIPPool) string {
		if p.Status.Allocated == allocated && p.Status.Available == available && len(p.Status.Conditions) > 0 {
			return ""
		}
		return fmt.Sprintf("allocated %d, available %d, want %d and %d", p.Status.Allocated, p.Status.Available, allocated, available)
	})
}

// bound waits until a ProxyVIP is Bound, and returns reason and message of the condition.
func bound(t *testing.T, v *v1alpha1.ProxyVIP) string {
	t.Helper()
	suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
		if meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionBound) {
			return ""
		}
		return fmt.Sprintf("not bound: %+v", v.Status.Conditions)
	})
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound)
	return c.Reason + ": " + c.Message
}

// unbound waits until a ProxyVIP is not Bound for this reason.
func unbound(t *testing.T, v *v1alpha1.ProxyVIP, reason string) {
	t.Helper()
	suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
		if c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound); c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason {
			return ""
		}
		return fmt.Sprintf("conditions %+v, want Bound=False/%s", v.Status.Conditions, reason)
	})
}
