package webhooks

import (
	"errors"
	"testing"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/webhooks/review"
)

func TestPoolInUse_NamesOwnersAndIsADenial(t *testing.T) {
	o := Options{ownerKinds: map[string]ownerKind{}}
	for _, api := range []API{Butler, NovaEdge, Metal3, ClusterAPI} {
		api(o, map[string]review.Hook{})
	}
	err := &poolInUse{
		pool:   butler.NetworkPoolKey("team-a", "vlan40"),
		owners: map[string]int{"ipallocations.butler.butlerlabs.dev": 3, "ipaddressclaims.ipam.cluster.x-k8s.io": 1},
		kinds:  o.ownerKinds,
	}
	const want = "pool team-a/vlan40 cannot be deleted while 1 ipaddressclaim and 3 ipallocations own addresses of the pool: delete them first, see kubectl get ipaddressclaims.ipam.cluster.x-k8s.io,ipallocations.butler.butlerlabs.dev -n team-a"
	if err.Error() != want || !errors.Is(err, review.ErrInUse) {
		t.Errorf("got %q, want %q as review.ErrInUse", err, want)
	}
}
