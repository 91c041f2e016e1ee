package suite

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Kind builds the claims and the pool of one kind, and reads the allocator's answer from
// them.
type Kind struct {
	Name string
	// Resource is the plural resource name of the claims.
	Resource string
	// Pool builds a pool with the addresses from first to last, in a routing domain named
	// after the namespace. The name of the pool is "pool"; a pool without namespace has
	// the name of the namespace.
	Pool func(ns, first, last string) client.Object
	// Resize replaces the addresses of a pool built by Pool.
	Resize func(pool client.Object, first, last string)
	// Claim builds a claim that requests an address of the pool built by Pool. An empty
	// address requests any address.
	Claim func(ns, name, address string) client.Object
	// Repool replaces the pool reference of a claim.
	Repool func(claim client.Object, pool string)
	// Request replaces the address that a claim requests. An empty address removes it.
	Request func(claim client.Object, address string)
	// Address returns the address in the field that the allocator fills, "" if the field
	// is empty.
	Address func(claim client.Object) string
	// Bound reports whether the claim's status confirms the address.
	Bound func(claim client.Object) bool
	// Failure returns the status text that explains why the claim has no address, or not
	// the requested address; "" if there is none.
	Failure func(claim client.Object) string
	// Owners returns the number of owners in the status of a pool.
	Owners func(pool client.Object) int

	// Denied reports whether the create of a claim in a full pool is denied. Otherwise
	// the claim is stored and waits.
	Denied bool
	// Protected reports whether the deletion of a pool with claims is denied. Otherwise
	// the pool is deleted after its last claim.
	Protected bool
	// Cooldown reports whether pools support a cooldown of released addresses. Claims of
	// such pools have a finalizer, so that the release is recorded before the claim is
	// gone.
	Cooldown bool
	// Outside and Taken are parts of the message that denies an exact address: Outside if
	// the pool does not offer the address, Taken if another claim owns it. Missing is the
	// status reason of a claim whose pool does not exist; the status of an IPClaim has no
	// such reason.
	Outside, Taken, Missing string
}

// Kinds contains every kind of claims, once for each kind of pool.
var Kinds = []Kind{
	{
		Name: "IPAllocation", Resource: "ipallocations",
		Pool: networkPool, Resize: resizeNetworkPool,
		Claim: func(ns, name, address string) client.Object {
			a := &butlerv1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: butlerv1.IPAllocationSpec{
				PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, Type: butlerv1.TypeNodes,
				TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: "team", Name: "web"},
			}}
			requestRange(a, address)
			return a
		},
		Repool:  func(o client.Object, pool string) { o.(*butlerv1.IPAllocation).Spec.PoolRef.Name = pool },
		Request: requestRange,
		Address: func(o client.Object) string {
			if r := o.(*butlerv1.IPAllocation).Spec.PinnedRange; r != nil {
				return r.StartAddress
			}
			return ""
		},
		Bound: func(o client.Object) bool {
			return trueCondition(o.(*butlerv1.IPAllocation).Status.Conditions, butlerv1.ConditionReady)
		},
		Failure: func(o client.Object) string {
			return falseCondition(o.(*butlerv1.IPAllocation).Status.Conditions, butlerv1.ConditionReady)
		},
		Owners: networkPoolOwners,
		Denied: true, Protected: true, Cooldown: true, Outside: "is outside the pool", Taken: "is owned by ", Missing: butlerv1.ReasonPoolNotFound,
	},
	{
		Name: "IPClaim", Resource: "ipclaims",
		Pool: ipPool, Resize: resizeIPPool,
		Claim: func(ns, name, address string) client.Object {
			c := &metal3v1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "pool"}}}
			requestAnnotation(c, address)
			return c
		},
		Repool:  func(o client.Object, pool string) { o.(*metal3v1.IPClaim).Spec.Pool.Name = pool },
		Request: requestAnnotation, Address: annotatedAddress,
		Bound:    func(o client.Object) bool { return o.(*metal3v1.IPClaim).Status.Address != nil },
		Failure:  func(o client.Object) string { return ptr.Deref(o.(*metal3v1.IPClaim).Status.ErrorMessage, "") },
		Owners:   ipPoolOwners,
		Cooldown: true, Outside: "Exhausted IP Pools", Taken: "Requested IP not available",
	},
	ipAddressClaim("IPAddressClaim_of_IPPool", metal3v1.GroupVersion.Group, "IPPool", Kind{
		Pool: ipPool, Resize: resizeIPPool, Owners: ipPoolOwners, Outside: "Exhausted IP Pools", Taken: "Requested IP not available",
	}),
	ipAddressClaim("IPAddressClaim_of_NetworkPool", butlerv1.GroupVersion.Group, "NetworkPool", Kind{
		Pool: networkPool, Resize: resizeNetworkPool, Owners: networkPoolOwners, Protected: true, Outside: "is outside the pool", Taken: "Requested IP not available",
	}),
	{
		Name: "ProxyVIP", Resource: "proxyvips",
		Pool: func(ns, first, last string) client.Object {
			p := &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{butlerv1.LabelRoutingDomain: ns}}}
			p.Spec.AutoAssign = true
			resizeProxyIPPool(p, first, last)
			return p
		},
		Resize: resizeProxyIPPool,
		Claim: func(ns, name, address string) client.Object {
			v := &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name}, Spec: novaedgev1.ProxyVIPSpec{
				PoolRef: &novaedgev1.PoolReference{Name: ns}, Mode: novaedgev1.ModeBGP, Ports: []int32{80},
			}}
			v.Spec.Address = address
			return v
		},
		Repool:  func(o client.Object, pool string) { o.(*novaedgev1.ProxyVIP).Spec.PoolRef.Name = pool },
		Request: func(o client.Object, address string) { o.(*novaedgev1.ProxyVIP).Spec.Address = address },
		Address: func(o client.Object) string {
			address, _, _ := strings.Cut(o.(*novaedgev1.ProxyVIP).Spec.Address, "/")
			return address
		},
		Bound: func(o client.Object) bool {
			return trueCondition(o.(*novaedgev1.ProxyVIP).Status.Conditions, novaedgev1.ConditionBound)
		},
		Failure: func(o client.Object) string {
			return falseCondition(o.(*novaedgev1.ProxyVIP).Status.Conditions, novaedgev1.ConditionBound)
		},
		Owners: func(o client.Object) int { return int(o.(*novaedgev1.ProxyIPPool).Status.Allocated) },
		Denied: true, Protected: true, Outside: "is outside the pool", Taken: "is owned by ", Missing: novaedgev1.ReasonPoolNotFound,
	},
}

// ipAddressClaim adds the fields that are common to Cluster API's claims to k, for one
// kind of pool.
func ipAddressClaim(name, group, pool string, k Kind) Kind {
	k.Name, k.Resource, k.Cooldown, k.Missing = name, "ipaddressclaims", true, ipamv1.IPAddressClaimReadyPoolNotReadyReason
	k.Claim = func(ns, name, address string) client.Object {
		c := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: ipamv1.IPAddressClaimSpec{
			PoolRef: ipamv1.IPPoolReference{APIGroup: group, Kind: pool, Name: "pool"},
		}}
		requestAnnotation(c, address)
		return c
	}
	k.Repool = func(o client.Object, pool string) { o.(*ipamv1.IPAddressClaim).Spec.PoolRef.Name = pool }
	k.Request, k.Address = requestAnnotation, annotatedAddress
	k.Bound = func(o client.Object) bool {
		status := o.(*ipamv1.IPAddressClaim).Status
		return status.AddressRef.Name != "" && trueCondition(status.Conditions, clusterv1.ReadyCondition)
	}
	k.Failure = func(o client.Object) string {
		return falseCondition(o.(*ipamv1.IPAddressClaim).Status.Conditions, clusterv1.ReadyCondition)
	}
	return k
}

func networkPool(ns, first, last string) client.Object {
	p := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool"}}
	p.Spec.RoutingDomain, p.Spec.CIDR = ns, "10.0.0.0/8"
	resizeNetworkPool(p, first, last)
	return p
}

func resizeNetworkPool(o client.Object, first, last string) {
	o.(*butlerv1.NetworkPool).Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: first, End: last}}}
}

func networkPoolOwners(o client.Object) int {
	return int(o.(*butlerv1.NetworkPool).Status.AllocationCount)
}

func ipPool(ns, first, last string) client.Object {
	p := &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool", Labels: map[string]string{butlerv1.LabelRoutingDomain: ns}}}
	p.Spec.NamePrefix, p.Spec.Prefix = "pool", 24
	resizeIPPool(p, first, last)
	return p
}

func resizeIPPool(o client.Object, first, last string) {
	o.(*metal3v1.IPPool).Spec.Pools = []metal3v1.Pool{{Start: ptr.To(metal3v1.IP(first)), End: ptr.To(metal3v1.IP(last))}}
}

func ipPoolOwners(o client.Object) int { return len(o.(*metal3v1.IPPool).Status.Indexes) }

func resizeProxyIPPool(o client.Object, first, last string) {
	spec := &o.(*novaedgev1.ProxyIPPool).Spec
	spec.Addresses = nil
	for a := netip.MustParseAddr(first); a.Compare(netip.MustParseAddr(last)) <= 0; a = a.Next() {
		spec.Addresses = append(spec.Addresses, a.String())
	}
}

func requestRange(o client.Object, address string) {
	spec := &o.(*butlerv1.IPAllocation).Spec
	if spec.PinnedRange, spec.Count = nil, ptr.To[int32](1); address != "" {
		spec.PinnedRange, spec.Count = &butlerv1.PinnedIPRange{StartAddress: address, EndAddress: address}, nil
	}
}

func requestAnnotation(o client.Object, address string) {
	annotations := o.GetAnnotations()
	if delete(annotations, metal3v1.AnnotationIPAddress); address != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[metal3v1.AnnotationIPAddress] = address
	}
	o.SetAnnotations(annotations)
}

func annotatedAddress(o client.Object) string {
	return o.GetAnnotations()[metal3v1.AnnotationIPAddress]
}

// trueCondition reports whether a condition is True and the condition Stalled is not
// True.
func trueCondition(conditions []metav1.Condition, name string) bool {
	return meta.IsStatusConditionTrue(conditions, name) && !meta.IsStatusConditionTrue(conditions, "Stalled")
}

// falseCondition returns reason and message of a condition that is False, "" if the
// condition is missing or not False.
func falseCondition(conditions []metav1.Condition, name string) string {
	if c := meta.FindStatusCondition(conditions, name); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason + ": " + c.Message
	}
	return ""
}

// Delay sets the cooldown of a pool.
func (k Kind) Delay(pool client.Object, delay time.Duration) {
	if p, ok := pool.(*butlerv1.NetworkPool); ok {
		p.Spec.ReuseDelay = &metav1.Duration{Duration: delay}
		return
	}
	annotations := pool.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[butlerv1.AnnotationReuseDelay] = delay.String()
	pool.SetAnnotations(annotations)
}

// Gets creates a claim. It fails the test unless the response contains the address want
// and the status confirms the address later.
func (k Kind) Gets(t *testing.T, c client.Client, claim client.Object, want string) {
	t.Helper()
	Create(t, c, claim)
	t.Cleanup(func() { _ = c.Delete(context.Background(), claim) }) // a claim without a namespace outlives its test
	if got := k.Address(claim); got != want {
		t.Fatalf("create of %s %s answered %q, want %q", k.Name, claim.GetName(), got, want)
	}
	k.Binds(t, c, claim, want)
}

// Binds waits until the status of a claim confirms the address want, or any address if
// want is "".
func (k Kind) Binds(t *testing.T, c client.Client, claim client.Object, want string) {
	t.Helper()
	AwaitObject(t, c, claim, func(o client.Object) string {
		if got := k.Address(o); got == "" || want != "" && got != want || !k.Bound(o) || k.Failure(o) != "" {
			return fmt.Sprintf("address %q, want %q; bound %t, failure %q", got, want, k.Bound(o), k.Failure(o))
		}
		return ""
	})
}

// Fails waits until the status of a claim has a failure text that contains part, and
// confirms no address.
func (k Kind) Fails(t *testing.T, c client.Client, claim client.Object, part string) {
	t.Helper()
	AwaitObject(t, c, claim, func(o client.Object) string {
		if text := k.Failure(o); text == "" || !strings.Contains(text, part) || k.Bound(o) {
			return fmt.Sprintf("failure %q, want %q; bound %t", text, part, k.Bound(o))
		}
		return ""
	})
}

// Counts waits until the status of a pool counts want owners.
func (k Kind) Counts(t *testing.T, c client.Client, pool client.Object, want int) {
	t.Helper()
	AwaitObject(t, c, pool, func(o client.Object) string {
		if got := k.Owners(o); got != want {
			return fmt.Sprintf("%d owners, want %d", got, want)
		}
		return ""
	})
}
