package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// A replica observes the deletion of a claim and its address object through two
// informers. Here one informer lags far behind.
func TestLateAddressObject_DeletedWithItsClaim(t *testing.T) {
	p := startPair(t)
	p.second.road.block("watch ipaddresses")
	c := p.claim()
	address := p.named(c)
	p.first.stop()
	p.serves(p.second)
	suite.Delete(t, p.admin, c)
	p.gone(address)
	if p.second.road.owned("watch ipaddresses") == 0 {
		t.Error("the second replica has been shown everything")
	}
}

func TestLateAddressObject_CreatedAgain(t *testing.T) {
	p := startPair(t)
	p.first.road.block("watch ipaddresses")
	address := p.named(p.claim())
	p.takeAway(address)
	p.isMadeAnew(address)
}

// The replica keeps the address, as nobody else has taken over and the claim is still
// there.
func TestLateAddressObject_CreatedAgainAfterAnUnknownOutcome(t *testing.T) {
	p := startPair(t)
	p.second.stop()
	p.first.road.block("watch ipaddresses")
	deliver := p.first.road.block("POST ipaddresses")
	c := p.claim()
	address := &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: poolName + "-10-0-0-1"}}
	p.isOnItsWay()
	commit := p.first.road.block("PUT leases")
	suite.Eventually(t, patience, func(context.Context) error {
		if p.first.ledger.HasCurrentProof() {
			return errors.New("the replica has no doubt")
		}
		return nil
	})
	deliver()
	p.takeAway(address)
	commit()
	p.isMadeAnew(address)
}

func TestLateAddressObject_StoredAfterItsClaimIsDeleted(t *testing.T) {
	p := startPair(t)
	deliver := p.first.road.block("POST ipaddresses")
	c := p.claim()
	p.isOnItsWay()
	p.first.road.block("PUT leases")
	p.serves(p.second)
	address := p.named(c)
	suite.Delete(t, p.admin, c)
	p.gone(address)
	seen, err := p.admin.Watch(t.Context(), &v1alpha1.IPAddressList{}, client.InNamespace(sandbox.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(seen.Stop)
	deliver()
	select {
	case <-seen.ResultChan():
	case <-time.After(patience):
		t.Fatal("the address never arrives")
	}
	p.gone(address)
}

// pair is two replicas; the first is the leader.
type pair struct {
	*testing.T
	admin         client.WithWatch
	first, second *replica
}

func startPair(t *testing.T) *pair {
	t.Helper()
	t.Parallel()
	s, admin := suite.StartSandbox(t, sandbox.Options{})
	p := &pair{T: t, admin: admin}
	p.first = startReplica(t, s, p.admin.Scheme(), "first")
	p.serves(p.first)
	p.second = startReplica(t, s, p.admin.Scheme(), "second")
	start, end := v1alpha1.IP("10.0.0.1"), v1alpha1.IP("10.0.0.10")
	suite.Create(t, p.admin, &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: poolName},
		Spec:       v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{{Start: &start, End: &end}}, NamePrefix: poolName},
	})
	return p
}

func (p *pair) serves(r *replica) {
	p.Helper()
	suite.Eventually(p.T, patience, func(context.Context) error {
		if !r.ledger.HasCurrentProof() {
			return errors.New("the replica does not serve")
		}
		return nil
	})
}

func (p *pair) claim() *v1alpha1.IPClaim {
	p.Helper()
	c := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: "web"}, Spec: v1alpha1.IPClaimSpec{Pool: corev1.ObjectReference{Name: poolName}}}
	suite.Create(p.T, p.admin, c)
	return c
}

// named waits until a claim names its address.
func (p *pair) named(c *v1alpha1.IPClaim) *v1alpha1.IPAddress {
	p.Helper()
	suite.AwaitObject(p.T, p.admin, c, func(c *v1alpha1.IPClaim) string {
		if c.Status.Address == nil {
			return "it names no address"
		}
		return ""
	})
	return &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Status.Address.Name}}
}

// isOnItsWay waits until the first replica has sent an address.
func (p *pair) isOnItsWay() {
	p.Helper()
	suite.Eventually(p.T, patience, func(context.Context) error {
		if p.first.road.owned("POST ipaddresses") == 0 {
			return errors.New("no address is on its way")
		}
		return nil
	})
}

// takeAway deletes an address as soon as it is there, and leaves it so in address. It
// does not look for its end: there may be another by then.
func (p *pair) takeAway(address *v1alpha1.IPAddress) {
	p.Helper()
	suite.AwaitObject(p.T, p.admin, address, func(*v1alpha1.IPAddress) string { return "" })
	suite.Change(p.T, p.admin, address, func(a *v1alpha1.IPAddress) { a.Finalizers = nil })
	if err := p.admin.Delete(p.Context(), address); err != nil {
		p.Fatal(err)
	}
}

// isMadeAnew waits until an address object with the same name and another UID exists.
func (p *pair) isMadeAnew(address *v1alpha1.IPAddress) {
	p.Helper()
	was := address.UID
	suite.AwaitObject(p.T, p.admin, address, func(a *v1alpha1.IPAddress) string {
		if a.UID == was {
			return "it is the old one"
		}
		return ""
	})
}

func (p *pair) gone(address *v1alpha1.IPAddress) {
	p.Helper()
	suite.AwaitGone(p.T, p.admin, address)
}
