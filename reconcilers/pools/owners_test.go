package pools

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/claims"
)

func TestNameOwners(t *testing.T) {
	of := func(ns string, names ...string) (keys []ledger.Key) {
		for _, name := range names {
			keys = append(keys, ledger.Key{Resource: butler.ResourceIPAllocation, Namespace: ns, Name: name})
		}
		return keys
	}
	for name, tc := range map[string]struct {
		keys  []ledger.Key
		total int
		place string
		want  string
	}{
		"one":                                    {of("a", "x"), 1, "a", "by ipallocations/x"},
		"three":                                  {of("a", "z", "y", "x"), 3, "a", "by ipallocations/x, by ipallocations/y and by ipallocations/z"},
		"five":                                   {of("a", "e", "d", "c", "b", "a"), 5, "a", "by ipallocations/a, by ipallocations/b, by ipallocations/c and by 2 more"},
		"two ranges of one owner":                {of("a", "x", "x"), 1, "a", "by ipallocations/x"},
		"more that are being deleted":            {of("a", "x"), 2, "a", "by ipallocations/x and by 1 more"},
		"other namespace":                        {of("b", "x"), 1, "a", "in another namespace"},
		"namespaced owner, cluster-scoped place": {of("b", "x"), 1, "", "by a namespaced object"},
		"cluster-scoped owner":                   {[]ledger.Key{{Resource: novaedge.ResourceProxyVIP, Name: "svc-b.web"}}, 1, "", "by proxyvips/svc-b.web"},
	} {
		if got := nameOwners(tc.keys, tc.total, tc.place); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A text that changes has an event after ever longer pauses. A text that stays has an
// event every reportEvery.
func TestOwnersReport_Pace(t *testing.T) {
	for name, tc := range map[string]struct {
		changes bool
		want    []time.Duration
	}{
		"text changes": {true, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 640 * time.Second, 1240 * time.Second}},
		"text stays":   {false, []time.Duration{5 * time.Second, 640 * time.Second, 1240 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				r        ownersReport
				reported []time.Duration
			)
			began := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
			for after := time.Duration(0); after <= 30*time.Minute; after += time.Second {
				now, text := began.Add(after), "owners"
				if tc.changes {
					text += after.String()
				}
				if r.mayDescribe(now) && r.mayReport(text, now) {
					reported = append(reported, after)
				}
				if !r.due.After(now) {
					t.Fatalf("after %s: the next description is due at once", after)
				}
			}
			if !slices.Equal(reported, tc.want) {
				t.Errorf("events after %s, want %s", reported, tc.want)
			}
		})
	}
}

// store is a journal.Store of one replica.
type store struct{ journal.Revision }

func (s *store) Read(context.Context) (journal.Revision, error) { return s.Revision, nil }

func (s *store) Write(_ context.Context, v journal.Revision) (string, error) {
	n, _ := strconv.Atoi(s.ResourceVersion) // 0 for ""
	v.ResourceVersion = strconv.Itoa(n + 1)
	s.Revision = v
	return v.ResourceVersion, nil
}

// source is a ledger.Source of observed objects.
type source struct{ ledger.Source }

func (source) AnyStored(context.Context) (bool, error)                    { return false, nil }
func (source) HasObjects(context.Context, string) (bool, error)           { return true, nil }
func (source) AppliedVersion(string) uint64                               { return 1 << 60 }
func (source) ReadAccess(string) ledger.ReadAccess                        { return ledger.ReadAccess{} }
func (source) Refresh(context.Context, string, bool) error                { return nil }
func (source) MovedRecords(context.Context) ([]ledger.MovedRecord, error) { return nil, nil }

// The event about the owners of a pool that is being deleted names the action that helps:
// none, while their release waits for late writes of an earlier leader.
func TestDescribeOwners_BeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(ledger.Config{Store: &store{}, Identity: "a", ClaimResources: []string{metal3.ResourceIPClaim}, PoolResources: []string{metal3.ResourceIPPool}})
		address := netip.MustParseAddr("10.0.0.1")
		r := allocator.Range{First: address, Last: address}
		pool := metal3.IPPoolKey("ns", "pool")
		l.ObservePool(ledger.Pool{Key: pool, UID: "pool", ResourceVersion: 1, Deleting: true, Window: []allocator.Range{r}})
		l.ObserveClaim(ledger.Claim{
			Key: ledger.Key{Resource: metal3.ResourceIPClaim, Namespace: "ns", Name: "web"}, UID: "web", ResourceVersion: 2, Pool: pool, Ranges: []allocator.Range{r},
			Token: journal.Token{1}, Deleting: true,
		})
		go func() { _ = l.Run(t.Context(), source{}) }()
		for !l.MayGrant() {
			time.Sleep(10 * time.Millisecond)
		}
		d := &deps{Deps: claims.NewDeps(claims.Config{Ledger: l, Wall: time.Now})}
		until := time.Now().Add(l.ReleasesAwaited(pool)).UTC().Format(time.RFC3339)
		want := "addresses are owned by ipclaims/web, being deleted: wait until " + until + ", as the API server may still store what an earlier leader has written"
		if got := d.describeOwners(pool, 1); got != want {
			t.Errorf("after a change of the leader: %q, want %q", got, want)
		}
		time.Sleep(ledger.DefaultGrantLife)
		want = "addresses are owned by ipclaims/web, being deleted: remove what keeps it (metadata.finalizers other than Butler IPAM's)"
		if got := d.describeOwners(pool, 1); got != want {
			t.Errorf("later: %q, want %q", got, want)
		}
	})
}
