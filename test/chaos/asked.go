package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// addresses are what an object has: the range of an allocation, the address of a claim,
// or those of a ProxyVIP, IPv4 first. A place that is not taken is not valid.
type addresses [2]allocator.Range

// all are those that are valid.
func (a addresses) all() (all []allocator.Range) {
	for _, r := range a {
		if r.IsValid() {
			all = append(all, r)
		}
	}
	return all
}

func (a addresses) some() bool { return a != addresses{} }

// complete reports whether a has everything that b has, or nothing yet.
func (a addresses) complete(b addresses) bool {
	for i, r := range b {
		if r.IsValid() && a[i] != r && a.some() {
			return false
		}
	}
	return true
}

// each yields every single address.
func (a addresses) each(yield func(netip.Addr) bool) {
	for _, r := range a.all() {
		for at := range r.Addresses() {
			if !yield(at) {
				return
			}
		}
	}
}

func (a addresses) overlap(b addresses) bool {
	return slices.ContainsFunc(a.all(), func(r allocator.Range) bool { return slices.ContainsFunc(b.all(), r.Overlaps) })
}

func (a addresses) String() string {
	var texts []string
	for _, r := range a.all() {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, " and ")
}

// addressesOf is what a claim has, or asks for exactly.
func addressesOf(o client.Object) (a addresses) {
	switch o := o.(type) {
	case *butlerv1.IPAllocation:
		if o.Spec.PinnedRange != nil {
			a[0], _ = allocator.ParseRange(o.Spec.PinnedRange.StartAddress + "-" + o.Spec.PinnedRange.EndAddress)
		}
	case *novaedgev1.ProxyVIP:
		for i, text := range []string{o.Spec.Address, o.Spec.IPv6Address} {
			if p, err := netip.ParsePrefix(text); err == nil {
				a[i] = allocator.RangeOfPrefix(p)
			}
		}
	default:
		if at, err := netip.ParseAddr(o.GetAnnotations()[metal3v1.AnnotationIPAddress]); err == nil {
			a[0] = allocator.Range{First: at, Last: at}
		}
	}
	return a
}

// sizesOf is how many addresses a claim is to have in each place.
func sizesOf(o client.Object) (n [2]int64) {
	switch o := o.(type) {
	case *butlerv1.IPAllocation:
		if o.Spec.Count != nil {
			n[0] = int64(*o.Spec.Count)
		} else {
			n[0] = addressesOf(o)[0].Size()
		}
	case *novaedgev1.ProxyVIP:
		n[0] = 1
		if o.Spec.AddressFamily == novaedgev1.FamilyDual {
			n[1] = 1
		}
	default:
		n[0] = 1
	}
	return n
}

// stateOf is what the conditions of a claim say.
func stateOf(o client.Object) (ready, flagged bool) {
	switch o := o.(type) {
	case *butlerv1.IPAllocation:
		if c := meta.FindStatusCondition(o.Status.Conditions, butlerv1.ConditionReady); c != nil {
			return c.Status == metav1.ConditionTrue, c.Reason == butlerv1.ReasonAddressConflict
		}
	case *novaedgev1.ProxyVIP:
		return meta.IsStatusConditionTrue(o.Status.Conditions, novaedgev1.ConditionBound), meta.IsStatusConditionTrue(o.Status.Conditions, novaedgev1.ConditionConflict)
	case *metal3v1.IPClaim:
		return o.Status.Address != nil && o.Status.ErrorMessage == nil, metal3.IsFlagged(o)
	case *ipamv1.IPAddressClaim:
		return meta.IsStatusConditionTrue(o.Status.Conditions, clusterv1.ReadyCondition), clusterapi.IsFlagged(o)
	}
	return false, false
}

// waits reports whether a claim was granted nothing yet: it carries no token, and is not
// Ready. It may name addresses.
func waits(o client.Object) bool {
	ready, _ := stateOf(o)
	return !ready && o.GetAnnotations()[butlerv1.AnnotationGrant] == ""
}

// whole tells whether a claim carries all of an answer: every address, the token and,
// where it has one, the finalizer.
func whole(o client.Object) bool {
	if o.GetAnnotations()[butlerv1.AnnotationGrant] == "" {
		return false
	}
	owned := addressesOf(o)
	if _, is := o.(*butlerv1.IPAllocation); is {
		return owned.some() && slices.Contains(o.GetFinalizers(), butlerv1.FinalizerIPAllocation)
	}
	for i, n := range sizesOf(o) {
		if n > 0 && !owned[i].IsValid() {
			return false
		}
	}
	return true
}

// vipPool is the ProxyIPPool of the run. Its IPv4 part lies in those of the shared
// NetworkPools.
const vipPool = "vips"

var vipNetworks = []string{"10.0.4.0/23", "fd00:c4a0::/118"}

// offered is the addresses of vipPool: networks without their edges.
func offered(at netip.Addr) bool {
	for _, text := range vipNetworks {
		p := netip.MustParsePrefix(text)
		if p.Contains(at) && at != p.Addr() && (at.Is6() || p.Contains(at.Next())) {
			return true
		}
	}
	return false
}

// askVIP is a new ProxyVIP: any address of one family or of both, one of its own choice,
// or one of the pool's and any of the other family.
func (w *worker) askVIP() *novaedgev1.ProxyVIP {
	w.n++
	v := &novaedgev1.ProxyVIP{
		TypeMeta:   metav1.TypeMeta{APIVersion: novaedgev1.GroupVersion.String(), Kind: "ProxyVIP"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("v%d-%d", w.id, w.n)},
		Spec: novaedgev1.ProxyVIPSpec{
			Mode: novaedgev1.ModeBGP, Ports: []int32{80}, AddressFamily: novaedgev1.FamilyIPv4, PoolRef: &novaedgev1.PoolReference{Name: vipPool},
		},
	}
	within := netip.MustParsePrefix(vipNetworks[0])
	switch w.random.IntN(6) {
	case 0, 1:
		v.Spec.AddressFamily = novaedgev1.FamilyDual
	case 2:
		v.Spec.Address = plus(within.Addr(), 1+w.random.IntN(510)).String() + "/32"
	case 3:
		v.Spec.PoolRef, v.Spec.Address = nil, plus(netip.MustParsePrefix(cidrs["wide"]).Addr(), w.random.IntN(4096)).String()+"/32"
	case 4:
		v.Spec.AddressFamily, v.Spec.Address = novaedgev1.FamilyDual, plus(within.Addr(), 1+w.random.IntN(510)).String()+"/32"
	}
	if w.random.IntN(6) == 0 {
		v.Name, v.GenerateName = "", v.Name+"-"
	}
	return v
}

// ipPool is the IPPool of the run, with the addresses of the widest NetworkPool: it has
// room for claims whose release waits, too, since one that finds it full is stored
// without an address.
const ipPool = "nodes"

// restoredIPPool is an IPPool of the same addresses. Its claims are not moved, so that it
// lists no moved ranges and may be lost.
const restoredIPPool = "racks"

const ipNetwork = "10.0.0.0/20"

// askClaim is a new IPClaim, or IPAddressClaim of the IPPool or of a NetworkPool: for any
// address, or for a certain one.
func (w *worker) askClaim(addressClaim bool) (o client.Object) {
	w.n++
	m := metav1.ObjectMeta{Name: fmt.Sprintf("m%d-%d", w.id, w.n), Namespace: namespace}
	if w.random.IntN(6) == 0 {
		at := plus(netip.MustParsePrefix(ipNetwork).Addr(), w.random.IntN(512))
		m.Annotations = map[string]string{metal3v1.AnnotationIPAddress: at.String()}
	}
	if w.random.IntN(6) == 0 {
		m.Name, m.GenerateName = "", m.Name+"-"
	}
	pool := ipPool
	if w.faults.any(losePool) && w.random.IntN(3) == 0 {
		pool = restoredIPPool
	}
	if !addressClaim {
		return &metal3v1.IPClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: metal3v1.GroupVersion.String(), Kind: "IPClaim"}, ObjectMeta: m,
			Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: pool}},
		}
	}
	m.Name, m.GenerateName = strings.Replace(m.Name, "m", "k", 1), strings.Replace(m.GenerateName, "m", "k", 1)
	c := &ipamv1.IPAddressClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim"}, ObjectMeta: m,
		Spec: ipamv1.IPAddressClaimSpec{PoolRef: ipamv1.IPPoolReference{APIGroup: metal3v1.GroupVersion.Group, Kind: "IPPool", Name: pool}},
	}
	if w.random.IntN(2) == 0 {
		c.Spec.PoolRef = ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "wide"}
	}
	return c
}

// windowOf is the pool of a claim.
func (w *worker) windowOf(o client.Object) (networks []string) {
	switch o := o.(type) {
	case *butlerv1.IPAllocation:
		return []string{w.cidrOf(o.Spec.PoolRef.Name)}
	case *novaedgev1.ProxyVIP:
		if o.Spec.PoolRef == nil {
			return []string{cidrs["wide"]}
		}
		if o.Spec.PoolRef.Name == servicePool {
			return serviceNetworks
		}
		return vipNetworks
	case *ipamv1.IPAddressClaim:
		if o.Spec.PoolRef.Kind == "NetworkPool" {
			return []string{cidrs["wide"]}
		}
	}
	return []string{ipNetwork}
}

// lacks reports whether a claim with these addresses has fewer than it asks for.
func lacks(o client.Object, has addresses) bool {
	for i, n := range sizesOf(o) {
		if n > 0 && !has[i].IsValid() {
			return true
		}
	}
	return false
}
