package pools

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/write"
)

const (
	etcdLimit       = 3 << 19   // 1.5 MiB: bytes of one request to etcd
	annotationLimit = 256 << 10 // of an object
	spare           = 64 << 10  // for the spec, conditions and metadata
	longAddress     = "2001:0db8:0000:0000:0000:0000:0000:ffff"
)

func jsonSize(t *testing.T, o any) int {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

func longName(n int) string { return fmt.Sprintf("%0253d", n) }

// A NetworkPool with the longest names in each list of its status can be stored: released
// allocations always get their record.
func TestStatus_NetworkPoolFitsIntoEtcd(t *testing.T) {
	p := &v1alpha1.NetworkPool{}
	var used []v1alpha1.InfrastructureAllocation
	for n := range 5_000 {
		used = append(used, v1alpha1.InfrastructureAllocation{
			IP: longAddress, Source: "metallb", ServiceRef: &v1alpha1.ServiceReference{Name: longName(n), Namespace: longName(n)[:63]},
			NodeRef: &v1alpha1.NodeReference{Name: longName(n)}, MachineRef: &v1alpha1.MachineReference{Name: longName(n), Namespace: longName(n)[:63]},
		})
	}
	p.Status.InfrastructureAllocations = butler.BoundInfrastructure(used)
	p.Status.InfrastructureConsumedIPs = int64(len(used))
	if !NetworkPools.(networkPools).IsListFull(p) || len(p.Status.InfrastructureAllocations) < 200 {
		t.Errorf("%d of %d addresses are listed", len(p.Status.InfrastructureAllocations), len(used))
	}
	managed := len(p.Status.InfrastructureAllocations) * 200
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	for n := range maxReleases {
		p.Status.Releases = append(p.Status.Releases, v1alpha1.Release{
			Name: longName(n), Tenant: v1alpha1.RecordedReference{Name: longName(n), Namespace: longName(n)[:63]}, StartAddress: longAddress, EndAddress: longAddress,
			AllocatedAt: &now, ReleasedAt: now, ReusableAt: &now,
		})
	}
	for range 512 {
		p.Status.UnmanagedRanges = append(p.Status.UnmanagedRanges, v1alpha1.UnmanagedRange{Start: longAddress, End: longAddress})
	}
	if size := jsonSize(t, p) + managed + annotationLimit + spare; size > etcdLimit {
		t.Errorf("%d bytes, and etcd stores %d", size, etcdLimit)
	}
}

// With names of usual length, thousands of addresses are listed.
func TestBoundInfrastructure_UsualNames(t *testing.T) {
	var used []v1alpha1.InfrastructureAllocation
	for n := range 5_000 {
		used = append(used, v1alpha1.InfrastructureAllocation{IP: fmt.Sprintf("10.0.%d.%d", n>>8, n&255), Source: "node", NodeRef: &v1alpha1.NodeReference{Name: fmt.Sprint("worker-", n)}})
	}
	if listed := len(butler.BoundInfrastructure(used)); listed < 900 || listed > 4096 {
		t.Errorf("%d listed", listed)
	}
	if listed := len(butler.BoundInfrastructure(used[:800])); listed != 800 {
		t.Errorf("%d of 800 listed", listed)
	}
}

func TestStatus_IPPoolFitsIntoEtcd(t *testing.T) {
	for length, claims := range map[int]int{232: 6_500, 45: 22_000, 6: 60_000} {
		p := &metal3v1.IPPool{}
		p.Status.Indexes = map[string]metal3v1.IP{}
		for n := range claims {
			p.Status.Indexes[fmt.Sprintf("%0*d", length, n)] = longAddress
		}
		unlisted := metal3.BoundIndexes(p.Status.Indexes)
		if len(p.Status.Indexes)+unlisted != claims || unlisted == 0 || len(p.Status.Indexes) > 49152 || !IPPools.(ipPools).IsListFull(p) {
			t.Errorf("%d claims with names of %d bytes: %d listed, %d not", claims, length, len(p.Status.Indexes), unlisted)
		}
		if size := jsonSize(t, p) + annotationLimit + spare; size > etcdLimit {
			t.Errorf("%d claims with names of %d bytes: %d bytes, and etcd stores %d", claims, length, size, etcdLimit)
		}
	}
	few := map[string]metal3v1.IP{"a": "10.0.0.1", "b": "10.0.0.2"}
	if unlisted := metal3.BoundIndexes(few); unlisted != 0 || len(few) != 2 {
		t.Errorf("%d of two claims are not listed", unlisted)
	}
}

func TestStatus_ProxyIPPoolFitsIntoEtcd(t *testing.T) {
	p := &novaedgev1.ProxyIPPool{}
	for n := range maxAllocations {
		p.Status.Allocations = append(p.Status.Allocations, novaedgev1.ProxyIPAllocation{Address: longAddress, VIPRef: longName(n)})
	}
	if size := jsonSize(t, p) + annotationLimit + spare; size > etcdLimit {
		t.Errorf("%d bytes, and etcd stores %d", size, etcdLimit)
	}
}

// Errors as the API server returns them when etcd, or its client of etcd, denies a
// request.
func TestIsTooLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":            {nil, false},
		"etcd":            {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), true},
		"client of etcd":  {apierrors.NewInternalError(errors.New("rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100000 vs. 2097152)")), true},
		"body":            {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"wrapped":         {fmt.Errorf("status: %w", apierrors.NewRequestEntityTooLargeError("limit is 3145728")), true},
		"another failure": {apierrors.NewInternalError(errors.New(strings.Repeat("x", 100))), false},
	} {
		if got := write.IsTooLarge(tc.err); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
