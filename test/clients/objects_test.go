package clients

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

const (
	butlerGroup     = "butler.butlerlabs.dev"
	metal3Group     = "ipam.metal3.io"
	novaedgeGroup   = "novaedge.io"
	clusterAPIGroup = "ipam.cluster.x-k8s.io"
)

// kind is one that the example has, or that claims of the example bring about.
type kind struct {
	schema.GroupVersionKind
	cluster bool        // cluster-scoped; the example then names its object after the routing domain
	answers [][2]string // claims: where first and last address of each range are, a path with slashes
	proof   string      // claims: a path to what is set when the addresses are confirmed
}

var (
	networkPools  = kind{GroupVersionKind: schema.GroupVersionKind{Group: butlerGroup, Version: "v1alpha1", Kind: "NetworkPool"}}
	ipPools       = kind{GroupVersionKind: schema.GroupVersionKind{Group: metal3Group, Version: "v1alpha1", Kind: "IPPool"}}
	proxyIPPools  = kind{GroupVersionKind: schema.GroupVersionKind{Group: novaedgeGroup, Version: "v1alpha1", Kind: "ProxyIPPool"}, cluster: true}
	ipAllocations = kind{
		GroupVersionKind: schema.GroupVersionKind{Group: butlerGroup, Version: "v1alpha1", Kind: "IPAllocation"},
		answers:          [][2]string{{"spec/pinnedRange/startAddress", "spec/pinnedRange/endAddress"}},
		proof:            "status/startAddress",
	}
	ipClaims = kind{
		GroupVersionKind: schema.GroupVersionKind{Group: metal3Group, Version: "v1alpha1", Kind: "IPClaim"},
		answers:          [][2]string{{"metadata/annotations/ipAddress", "metadata/annotations/ipAddress"}},
		proof:            "status/address/name",
	}
	ipAddressClaims = kind{
		GroupVersionKind: schema.GroupVersionKind{Group: clusterAPIGroup, Version: "v1beta2", Kind: "IPAddressClaim"},
		answers:          [][2]string{{"metadata/annotations/ipAddress", "metadata/annotations/ipAddress"}},
		proof:            "status/addressRef/name",
	}
	proxyVIPs = kind{
		GroupVersionKind: schema.GroupVersionKind{Group: novaedgeGroup, Version: "v1alpha1", Kind: "ProxyVIP"}, cluster: true,
		answers: [][2]string{{"spec/address", "spec/address"}, {"spec/ipv6Address", "spec/ipv6Address"}},
		proof:   "status/allocatedAddress",
	}
	metal3Addresses     = kind{GroupVersionKind: schema.GroupVersionKind{Group: metal3Group, Version: "v1alpha1", Kind: "IPAddress"}}
	clusterAPIAddresses = kind{GroupVersionKind: schema.GroupVersionKind{Group: clusterAPIGroup, Version: "v1beta2", Kind: "IPAddress"}}

	pools  = []kind{networkPools, ipPools, proxyIPPools}
	claims = []kind{ipAllocations, ipClaims, ipAddressClaims, proxyVIPs}
	all    = slices.Concat(pools, claims, []kind{metal3Addresses, clusterAPIAddresses})
)

// list is what is stored of kinds for a namespace and the routing domain of its name, by
// kind/name.
func list(ctx context.Context, namespace string, kinds ...kind) (map[string]*unstructured.Unstructured, error) {
	found := map[string]*unstructured.Unstructured{}
	for _, k := range kinds {
		objects := &unstructured.UnstructuredList{}
		objects.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		if err := stored.List(ctx, objects, client.InNamespace(map[bool]string{false: namespace}[k.cluster])); err != nil {
			return nil, err
		}
		for i, o := range objects.Items {
			if !k.cluster || strings.HasPrefix(o.GetName(), namespace) {
				found[k.Group+" "+k.Kind+"/"+o.GetName()] = &objects.Items[i]
			}
		}
	}
	return found, nil
}

// versions is the resourceVersion of each object.
func versions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	objects, err := list(t.Context(), namespace, all...)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for name, o := range objects {
		found[name] = o.GetResourceVersion()
	}
	return found
}

// ranges waits until this number of claims is stored and all of them have confirmed
// addresses, checks that no address is in two ranges, and returns each claim's ranges.
func ranges(t *testing.T, namespace string, want int) map[string]string {
	t.Helper()
	type interval struct {
		first, last netip.Addr
		claim       string
	}
	found := map[string]string{}
	var intervals []interval
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		clear(found)
		intervals = nil
		for _, k := range claims {
			objects, err := list(ctx, namespace, k)
			if err != nil {
				return err
			}
			for name, o := range objects {
				if text(o, k.proof) == "" {
					return fmt.Errorf("%s has no %s", name, k.proof)
				}
				for _, answer := range k.answers {
					first, err := address(o, answer[0])
					if err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
					last, err := address(o, answer[1])
					if err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
					intervals = append(intervals, interval{first, last, name})
					found[name] += fmt.Sprintf(" %s-%s", first, last)
				}
			}
		}
		if len(found) != want {
			return fmt.Errorf("%d claims are stored, want %d", len(found), want)
		}
		return nil
	})
	slices.SortFunc(intervals, func(a, b interval) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	for i := range intervals[1:] {
		if a, b := intervals[i], intervals[i+1]; b.first.Compare(a.last) <= 0 {
			t.Errorf("%s has %s to %s, and %s has %s to %s", a.claim, a.first, a.last, b.claim, b.first, b.last)
		}
	}
	return found
}

// text is the string at a path with slashes, or "".
func text(o *unstructured.Unstructured, path string) string {
	found, _, _ := unstructured.NestedString(o.Object, strings.Split(path, "/")...)
	return found
}

// address is the one at a path, written with the prefix of a single address where the
// kind has it so.
func address(o *unstructured.Unstructured, path string) (netip.Addr, error) {
	bare, _, _ := strings.Cut(text(o, path), "/")
	return netip.ParseAddr(bare)
}

// nothingLeft waits until no object of the example is stored.
func nothingLeft(t *testing.T, namespace string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		left, err := list(ctx, namespace, all...)
		if err != nil {
			return err
		}
		for name, o := range left {
			return fmt.Errorf("%d objects are left, such as %s with finalizers %q, deleted at %v", len(left), name, o.GetFinalizers(), o.GetDeletionTimestamp())
		}
		return nil
	})
}
