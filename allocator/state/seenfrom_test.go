package state

import (
	"net/netip"
	"testing"

	"butlerlabs.dev/ipam/allocator"
)

func TestKey_SeenFromNamesOwnersOnlyToTheirReaders(t *testing.T) {
	claim := Key{Resource: "ipallocations.butler.butlerlabs.dev", Namespace: "team", Name: "db"}
	vip := Key{Resource: "proxyvips.novaedge.io", Name: "gateway"}
	ofService := Key{Resource: "proxyvips.novaedge.io", Name: "svc-team.web"}
	for _, tc := range []struct {
		owner    Key
		from     string
		wantText string
	}{
		{claim, "team", "by ipallocations/db"},
		{claim, "other", "in another namespace"},
		{claim, "", "by a namespaced object"},
		{claim, placeOfLog, "by ipallocations/db in namespace team"},
		{vip, "team", "by proxyvips/gateway"},
		{vip, "", "by proxyvips/gateway"},
		{ofService, "team", "by proxyvips/svc-team.web"},
		{ofService, "other", "for a Service of another namespace"},
		{ofService, "", "by proxyvips/svc-team.web"},
		{ofService, placeOfLog, "by proxyvips/svc-team.web"},
		{claim, Key{Resource: vip.Resource, Name: "mine"}.Place(), "by a namespaced object"},
		{vip, Key{Resource: vip.Resource, Name: "mine"}.Place(), "by proxyvips/gateway"},
		{ofService, Key{Resource: vip.Resource, Name: "mine"}.Place(), "for a Service of another namespace"},
		{ofService, Key{Resource: vip.Resource, Name: "svc-other.web"}.Place(), "for a Service of another namespace"},
		{ofService, Key{Resource: vip.Resource, Name: "svc-team.web.next"}.Place(), "by proxyvips/svc-team.web"},
		{ofService, claim.Place(), "by proxyvips/svc-team.web"},
	} {
		if got := tc.owner.SeenFrom(tc.from); got != tc.wantText {
			t.Errorf("%s from namespace %q: %q, want %q", tc.owner, tc.from, got, tc.wantText)
		}
	}
}

func TestPoolError_SeenFrom(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.5")
	rng := allocator.Range{First: addr, Last: addr}
	shared := Key{Resource: "proxyippools.novaedge.io", Name: "shared"}
	prod := Key{Resource: "networkpools.butler.butlerlabs.dev", Namespace: "there", Name: "prod"}
	mine := Key{Resource: "proxyvips.novaedge.io", Name: "svc-here.web"}
	gateway := Key{Resource: "proxyvips.novaedge.io", Name: "gateway"}
	blocked := &PoolError{Pool: shared, By: prod, Err: &allocator.BlockedError{Range: rng}}
	owned := func(owner Key) *PoolError {
		return &PoolError{Pool: shared, Err: &OwnedError{Range: rng, Owner: owner}}
	}
	full := &PoolError{Pool: shared, Err: &allocator.ExhaustedError{Requested: 1}, Withheld: &OwnedError{Range: rng, Owner: prod, Withheld: true}}
	const exhausted = "pool exhausted: pool shared: 1 address requested, 0 free, largest free block 0: the pool offers no address that is not reserved: reserve fewer or enlarge the pool, or wait: "
	for name, tc := range map[string]struct {
		err   *PoolError
		place string
		want  string
	}{
		"pool of another namespace":            {blocked, mine.StatusPlace(), "pool shared: in a pool of another namespace 10.0.0.5 is reserved: choose a range outside it"},
		"pool of the Service's namespace":      {blocked, "there", "pool shared: in pool there/prod 10.0.0.5 is reserved: choose a range outside it"},
		"pool, to a cluster-scoped reader":     {blocked, gateway.StatusPlace(), "pool shared: in pool there/prod 10.0.0.5 is reserved: choose a range outside it"},
		"pool, to a cluster-scoped author":     {blocked, gateway.Place(), "pool shared: in pool there/prod 10.0.0.5 is reserved: choose a range outside it"},
		"Service of another namespace":         {owned(Key{Resource: mine.Resource, Name: "svc-there.secret"}), mine.StatusPlace(), "pool shared: 10.0.0.5 is owned for a Service of another namespace"},
		"Service of the namespace":             {owned(Key{Resource: mine.Resource, Name: "svc-here.other"}), mine.StatusPlace(), "pool shared: 10.0.0.5 is owned by proxyvips/svc-here.other"},
		"Service, to a cluster-scoped reader":  {owned(Key{Resource: mine.Resource, Name: "svc-there.secret"}), gateway.StatusPlace(), "pool shared: 10.0.0.5 is owned by proxyvips/svc-there.secret"},
		"cluster-scoped owner":                 {owned(gateway), mine.StatusPlace(), "pool shared: 10.0.0.5 is owned by proxyvips/gateway"},
		"claim of another namespace":           {owned(Key{Resource: "ipallocations.butler.butlerlabs.dev", Namespace: "there", Name: "db.1"}), mine.StatusPlace(), "pool shared: 10.0.0.5 is owned in another namespace"},
		"claim of the namespace":               {owned(Key{Resource: "ipclaims.ipam.metal3.io", Namespace: "here", Name: "web"}), mine.StatusPlace(), "pool shared: 10.0.0.5 is owned by ipclaims/web"},
		"withheld by another namespace's pool": {full, mine.StatusPlace(), exhausted + withheldText(rng, "a pool", full.Until)},
		"withheld by the namespace's own pool": {full, "there", exhausted + withheldText(rng, "pool there/prod", full.Until)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.err.SeenFrom(tc.place); got != tc.want {
				t.Errorf("from %q: %q, want %q", tc.place, got, tc.want)
			}
		})
	}
}
