package inventory

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// The argument of a pool names no other pool: not one of another kind, namespace or scope
// with the same name.
func TestArgumentOf(t *testing.T) {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), ResourceVersion: "1"}
	}
	i := New(now, nil)
	for _, o := range []metav1.Object{
		&butlerv1.NetworkPool{ObjectMeta: meta("ns", "edge")}, &butlerv1.NetworkPool{ObjectMeta: meta("ns", "web")}, &butlerv1.NetworkPool{ObjectMeta: meta("other", "web")},
		&metal3v1.IPPool{ObjectMeta: meta("ns", "edge")}, &metal3v1.IPPool{ObjectMeta: meta("ns", "vips")}, &metal3v1.IPPool{ObjectMeta: meta("ippool", "vips")},
		&novaedgev1.ProxyIPPool{ObjectMeta: meta("", "vips")}, &novaedgev1.ProxyIPPool{ObjectMeta: meta("", "own")},
	} {
		i.Add(o)
	}
	metal := func(namespace, name string) Key {
		return Key{Resource: metal3.ResourceIPPool, Namespace: namespace, Name: name}
	}
	for k, want := range map[Key]string{
		butler.NetworkPoolKey("ns", "edge"): "NetworkPool/ns/edge", metal("ns", "edge"): "IPPool/ns/edge", butler.NetworkPoolKey("ns", "web"): "ns/web", metal("ns", "vips"): "ns/vips",
		metal("ippool", "vips"):                                "IPPool/ippool/vips", // ippool/vips is also KIND/NAME of the other
		{Resource: novaedge.ResourceProxyIPPool, Name: "vips"}: "ProxyIPPool/vips", {Resource: novaedge.ResourceProxyIPPool, Name: "own"}: "own",
	} {
		got := i.ArgumentOf(k)
		named := slices.DeleteFunc(i.Pools(), func(p *Pool) bool { return !IsNamed(p.Key, got) })
		if got != want || len(named) != 1 || named[0].Key != k {
			t.Errorf("%s: argument %q, want %q; it names %d pools", TitleOf(k), got, want, len(named))
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"vlan40", "vlan41", "edge", "butler-system/vlan40"}
	for text, want := range map[string][]string{
		"vlna40": {"vlan40"}, "vlan4": {"vlan40", "vlan41"}, "VLAN42": {"vlan40", "vlan41"}, "edgee": {"edge"}, "egde": {"edge"}, "x": nil, "ed": nil, "corp": nil,
		"butler-systm/vlan40": {"butler-system/vlan40"},
	} {
		if got := Nearest(text, names); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
