package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers"
	claimhistory "butlerlabs.dev/ipam/reconcilers/history"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

func networkPool(name, cidr string) *v1alpha1.NetworkPool {
	p := &v1alpha1.NetworkPool{Spec: v1alpha1.NetworkPoolSpec{CIDR: cidr}}
	p.Namespace, p.Name = sandbox.Namespace, name
	return p
}

func pinned(name, first, last string) *v1alpha1.IPAllocation {
	a := claim(name)
	a.Spec.Count, a.Spec.PinnedRange = nil, &v1alpha1.PinnedIPRange{StartAddress: first, EndAddress: last}
	return a
}

// A grant ends on the strength of what the feed says of the API server. The subtests are
// steps with one feed.
func TestFeed(t *testing.T) {
	t.Parallel()
	const namespace = sandbox.Namespace
	s, c := suite.StartSandbox(t, sandbox.Options{}) // nothing else writes here
	mgr, err := manager.New(s.Config(), manager.Options{Scheme: c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Config{ClaimResources: []string{butler.ResourceIPAllocation}, PoolResources: []string{butler.ResourceNetworkPool}})
	recorded := claimhistory.New(logr.Discard(), time.Now)
	recorded.SetLedger(l)
	feed, err := reconcilers.NewFeed(t.Context(), mgr, l, recorded, []reconcilers.API{reconcilers.Butler}, nil)
	if err != nil {
		t.Fatal(err)
	}
	anyStored := func(t *testing.T, want bool) {
		t.Helper()
		if got, err := feed.AnyStored(t.Context()); got != want || err != nil {
			t.Errorf("AnyStored is %t, %v; want %t", got, err, want)
		}
	}
	refresh := func(t *testing.T) {
		t.Helper()
		if err := errors.Join(feed.Refresh(t.Context(), butler.ResourceIPAllocation, true), feed.Refresh(t.Context(), butler.ResourceNetworkPool, true)); err != nil {
			t.Fatal(err)
		}
	}
	fenced := func(t *testing.T, key ledger.Key, uid string, want uint64) {
		t.Helper()
		if got, err := feed.FenceWrites(t.Context(), key, uid); got != want || err != nil {
			t.Errorf("FenceWrites of %v returns %d, %v; want %d", key, got, err, want)
		}
	}

	t.Run("AnyStored", func(t *testing.T) {
		anyStored(t, false)
		suite.Create(t, c, networkPool(poolName, "10.0.0.0/8"))
		anyStored(t, true)
	})

	t.Run("reads_every_page", func(t *testing.T) {
		const total = 1100
		var creates errgroup.Group
		creates.SetLimit(16)
		uids := make([]string, total)
		for i := range total {
			creates.Go(func() error {
				address := fmt.Sprintf("10.0.%d.%d", i/256, i%256)
				a := pinned(fmt.Sprintf("paged-%04d", i), address, address)
				err := c.Create(t.Context(), a)
				uids[i] = string(a.UID)
				return err
			})
		}
		if err := creates.Wait(); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		if err := feed.ScanClaims(t.Context(), butler.ResourceIPAllocation, namespace, func(claim ledger.Claim) { seen[claim.UID] = true }); err != nil || len(seen) != total {
			t.Errorf("a scan sees %d claims, %v; want %d", len(seen), err, total)
		}
		refresh(t)
		for _, uid := range uids {
			if !l.OwnershipOf(uid).Allocated {
				t.Fatalf("the ledger does not know claim %s", uid)
			}
		}
		if usage, known := l.Usage(butler.NetworkPoolKey(namespace, poolName)); !known || usage.Claims != total {
			t.Errorf("usage %+v, known %t; want %d claims", usage, known, total)
		}
		err := feed.ScanClaims(t.Context(), butler.ResourceIPAllocation, "elsewhere", func(claim ledger.Claim) { t.Errorf("claim %+v is of another namespace", claim) })
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("FenceWrites_fails_older_writes_each_time", func(t *testing.T) {
		a := claim("fenced")
		suite.Create(t, c, a)
		for range 2 {
			older := a.DeepCopy()
			version, err := feed.FenceWrites(t.Context(), butler.IPAllocationKey(namespace, a.Name), string(a.UID))
			if err != nil {
				t.Fatal(err)
			}
			older.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: "10.9.0.0", EndAddress: "10.9.0.0"}
			if err := c.Update(t.Context(), older); !apierrors.IsConflict(err) {
				t.Errorf("an update of the version before says %v, want a conflict", err)
			}
			if got := object.ResourceVersion(suite.Read(t, c, a)); got != version {
				t.Errorf("version %d is stored, FenceWrites returned %d", got, version)
			}
		}
	})

	t.Run("FenceWrites_leaves_answered_claims_alone", func(t *testing.T) {
		a := pinned("answered", "10.9.1.0", "10.9.1.3")
		suite.Create(t, c, a)
		version := a.ResourceVersion
		fenced(t, butler.IPAllocationKey(namespace, a.Name), string(a.UID), object.ResourceVersion(a))
		if got := suite.Read(t, c, a).ResourceVersion; got != version {
			t.Errorf("version %s is stored, was %s", got, version)
		}
		fenced(t, butler.IPAllocationKey(namespace, a.Name), "another-uid", 0)
		fenced(t, butler.IPAllocationKey(namespace, "missing"), string(a.UID), 0)
	})

	t.Run("FenceWrites_of_pools", func(t *testing.T) {
		p := suite.Read(t, c, networkPool(poolName, ""))
		fenced(t, butler.NetworkPoolKey(namespace, poolName), "", object.ResourceVersion(p))
		fenced(t, butler.NetworkPoolKey(namespace, "missing"), "", 0)
	})

	// What was read live and is gone before the informers have come that far has no
	// event.
	t.Run("forgets_what_the_informers_never_show", func(t *testing.T) {
		p, a, stays := networkPool("brief", "10.60.0.0/24"), pinned("brief", "10.60.0.0", "10.60.0.3"), pinned("stays", "10.0.99.0", "10.0.99.3")
		a.Spec.PoolRef.Name = p.Name
		suite.Create(t, c, p, a, stays)
		refresh(t)
		observed := func() bool { return l.OwnershipOf(string(a.UID)).Observed }
		if !observed() {
			t.Error("the claim is not observed after a live read")
		}
		for _, o := range []client.Object{a, p} {
			if err := c.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if !observed() {
				t.Fatal("the ledger forgets the claim before the informers run")
			}
		}
		ended := make(chan error, 1)
		ctx, end := context.WithCancel(context.Background())
		go func() { ended <- mgr.Start(ctx) }()
		defer func() {
			end()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		suite.Eventually(t, suite.Soon, func(context.Context) error {
			if _, known := l.Usage(butler.NetworkPoolKey(namespace, p.Name)); known || observed() {
				return fmt.Errorf("the ledger still knows the pool (%t) or the claim", known)
			}
			return nil
		})
		if !l.OwnershipOf(string(stays.UID)).Allocated {
			t.Error("the ledger has forgotten the claim that stays")
		}
	})
}
