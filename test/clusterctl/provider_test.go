package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// provider stores objects as Metal3's own address manager leaves them: nothing of the
// answer is on a claim, all of it in the address that the claim and the pool own, and in
// statuses, which a move leaves behind.
type provider struct {
	place
	cluster metav1.OwnerReference
	given   map[string]string // claim, as addresses names it -> address
}

// pool is one that belongs to the Cluster.
func (p provider) pool(name, start, end string) *metal3v1.IPPool {
	p.t.Helper()
	pool := ipPool(name, start, end)
	pool.Labels = map[string]string{clusterv1.ClusterNameLabel: "workload", metal3v1.LabelProvider: metal3v1.Provider}
	pool.Finalizers, pool.OwnerReferences = []string{metal3v1.FinalizerIPPool}, []metav1.OwnerReference{p.cluster}
	p.create(pool)
	return pool
}

func (p provider) meta(name, finalizer string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{finalizer}, OwnerReferences: owners}
}

func owned(group, kind string, o client.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: group, Kind: kind, Name: o.GetName(), UID: o.GetUID()}
}

// ipClaim is one with an address, or without where that is empty.
func (p provider) ipClaim(name string, pool *metal3v1.IPPool, address string) *metal3v1.IPClaim {
	p.t.Helper()
	c := &metal3v1.IPClaim{ObjectMeta: p.meta(name, metal3v1.FinalizerIPClaim, p.cluster), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: pool.Name}}}
	p.create(c)
	if address == "" {
		c.Status.ErrorMessage = ptr.To("Exhausted IP Pools")
	} else {
		group := metal3v1.GroupVersion.String()
		a := p.ipAddress(name, pool, address, owned(group, "IPPool", pool), owned(group, "IPClaim", c))
		a.Finalizers = []string{metal3v1.FinalizerIPAddress}
		p.create(a)
		c.Status.Address = &corev1.ObjectReference{Namespace: namespace, Name: a.Name}
		p.given["IPClaim/"+name] = address
	}
	if err := p.Status().Update(p.t.Context(), c); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// ipAddress is one for a claim that need not exist.
func (provider) ipAddress(claim string, pool *metal3v1.IPPool, address string, owners ...metav1.OwnerReference) *metal3v1.IPAddress {
	return &metal3v1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pool.Spec.NamePrefix + "-" + strings.ReplaceAll(address, ".", "-"), OwnerReferences: owners},
		Spec: metal3v1.IPAddressSpec{
			Claim: corev1.ObjectReference{Namespace: namespace, Name: claim}, Pool: corev1.ObjectReference{Namespace: namespace, Name: pool.Name},
			Address: metal3v1.IP(address), Prefix: 24,
		},
	}
}

// ipAddressClaim is ipClaim for Cluster API's kind.
func (p provider) ipAddressClaim(name string, pool *metal3v1.IPPool, address string) {
	p.t.Helper()
	c := secondClaim(p.meta(name, metal3v1.FinalizerClusterAPIClaim, p.cluster))
	p.create(c)
	if address == "" {
		c.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: ipamv1.IPAddressClaimReadyPoolExhaustedReason, LastTransitionTime: metav1.Now(),
		}}
	} else {
		a := &ipamv1.IPAddress{
			ObjectMeta: p.meta(pool.Spec.NamePrefix+"-"+strings.ReplaceAll(address, ".", "-"), metal3v1.FinalizerClusterAPIAddress,
				owned(metal3v1.GroupVersion.String(), "IPPool", pool), owned(ipamv1.GroupVersion.String(), "IPAddressClaim", c)),
			Spec: ipamv1.IPAddressSpec{ClaimRef: ipamv1.IPAddressClaimReference{Name: name}, PoolRef: c.Spec.PoolRef, Address: address, Prefix: ptr.To[int32](24)},
		}
		p.create(a)
		c.Status.AddressRef.Name = a.Name
		p.given["IPAddressClaim/"+name] = address
	}
	if err := p.Status().Update(p.t.Context(), c); err != nil {
		p.t.Fatal(err)
	}
}

// late creates claims while the move is under way, from the moment that there are pools,
// and says by which names when stop is closed.
func (p place) late(stop <-chan struct{}) (names []string, err error) {
	for i := 0; i < 10; {
		select {
		case <-stop:
			return names, nil
		case <-time.After(20 * time.Millisecond):
		}
		pools := &metal3v1.IPPoolList{}
		if err := p.List(context.Background(), pools, client.InNamespace(namespace)); err != nil || len(pools.Items) < 2 {
			continue
		}
		m := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("late-%d", i)}
		of := *m.DeepCopy()
		err := errors.Join(
			p.Create(context.Background(), &metal3v1.IPClaim{ObjectMeta: m, Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "first"}}}),
			p.Create(context.Background(), secondClaim(of)))
		if err != nil {
			return names, err
		}
		names = append(names, "IPClaim/"+m.Name, "IPAddressClaim/"+m.Name)
		i++
	}
	return names, nil
}

func TestMove_FromTheExistingProvider(t *testing.T) {
	here, there := startWith(t, 0), start(t)
	p := provider{here, here.cluster(), map[string]string{}}
	first, second := p.pool("first", "10.1.0.1", "10.1.0.60"), p.pool("second", "10.2.0.1", "10.2.0.60")
	waiting := []string{"IPClaim/waiting", "IPAddressClaim/waiting"}
	for i := range 12 { // none has the address that it would get anew
		p.ipClaim(fmt.Sprintf("metal3-%d", i), first, fmt.Sprintf("10.1.0.%d", 13-i))
		p.ipAddressClaim(fmt.Sprintf("second-%d", i), second, fmt.Sprintf("10.2.0.%d", 13-i))
	}
	p.ipClaim("waiting", first, "")
	p.ipAddressClaim("waiting", second, "")
	asked := p.ipClaim("asked", first, "10.1.0.20")
	asked.Annotations = map[string]string{metal3v1.AnnotationIPAddress: "10.1.0.20"}
	if err := here.Update(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	kept := p.ipAddress("nobody", first, "10.1.0.1", owned(metal3v1.GroupVersion.String(), "IPPool", first))
	here.create(kept)

	there.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	stop, done := make(chan struct{}), make(chan error, 1)
	var late []string
	go func() {
		var err error
		late, err = there.late(stop)
		done <- err
	}()
	move(t, clusterctl.MoveOptions{FromKubeconfig: here.kubeconfig(), ToKubeconfig: there.kubeconfig()})
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(late) == 0 {
		t.Fatal("no claim was created during the move")
	}

	all := there.settled(len(p.given) + len(waiting) + len(late))
	owner := map[string]string{"10.1.0.1": "nobody"}
	for claim, address := range all {
		if other, twice := owner[address]; twice {
			t.Errorf("%s and %s have %s", other, claim, address)
		}
		owner[address] = claim
		if want, moved := p.given[claim]; moved && address != want {
			t.Errorf("%s had %s and has %s", claim, want, address)
		}
	}
	for _, claim := range append(waiting, late...) {
		if all[claim] == "" {
			t.Errorf("%s has no address", claim)
		}
	}
	there.read(&metal3v1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kept.Name}})
	here.empty()

	// What came along goes as what is made here does.
	there.releases(&metal3v1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "metal3-0"}},
		&metal3v1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first-10-1-0-13"}})
	there.releases(&ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "second-0"}},
		&ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "second-10-2-0-13"}})
}

// releases deletes a claim and waits until it and its address are gone.
func (p place) releases(claim, address client.Object) {
	p.t.Helper()
	if err := p.Delete(p.t.Context(), claim); err != nil {
		p.t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(p.t.Context(), 50*time.Millisecond, soon, true, func(ctx context.Context) (bool, error) {
		for _, o := range []client.Object{claim, address} {
			if !apierrors.IsNotFound(p.Get(ctx, client.ObjectKeyFromObject(o), o)) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		p.t.Errorf("%T %s or its address are left, with finalizers %v and %v", claim, claim.GetName(), claim.GetFinalizers(), address.GetFinalizers())
	}
}
