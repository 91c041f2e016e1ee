package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
	"butlerlabs.dev/ipam/webhooks"
)

// grantExpiry is the flag of the managers: how long a grant stays in the journal without
// an object.
const grantExpiry = 45 * time.Second

// standbyEntries returns the entries of the journal that belong to no create yet.
func standbyEntries(t *testing.T) []journal.Entry {
	t.Helper()
	return slices.DeleteFunc(journalEntries(t), func(e journal.Entry) bool { return !e.IsStandby() })
}

// answeredFromStandby makes a manager answer a create with a standby grant, and returns
// the object that the API server would go on with.
func answeredFromStandby(t *testing.T, m *sandbox.Manager, namespace, name string) *v1alpha1.IPAllocation {
	t.Helper()
	for i := range 20 { // the first create of an idle pool has no standby grant
		before := standbyEntries(t)
		a := ask(t.Context(), m, webhooks.MutateIPAllocation, load.Claim(namespace, fmt.Sprintf("%s-%d", name, i)))
		if a.err != nil || a.response == nil || !a.response.Allowed {
			t.Fatalf("%s: %+v", name, a)
		}
		token := a.stored.Annotations[v1alpha1.AnnotationGrant]
		if slices.ContainsFunc(before, func(e journal.Entry) bool { return e.Token.String() == token }) {
			return &a.stored
		}
	}
	t.Fatal("no create is answered from a standby grant")
	return nil
}

// approves asks a manager to validate an object, and reports whether the manager approves
// it.
func approves(t *testing.T, m *sandbox.Manager, a *v1alpha1.IPAllocation) bool {
	t.Helper()
	is := ask(t.Context(), m, webhooks.ValidateIPAllocation, a)
	if is.err != nil {
		t.Errorf("%s, asked about %s: %v", m.Name(), a.Name, is.err)
	}
	return is.code == http.StatusOK && is.response != nil && is.response.Allowed
}

// The leader is lost between its response to a create, from a standby grant, and the
// validating call. The next leader knows the grant, and approves the create.
func TestFailover_BetweenResponseAndValidation(t *testing.T) {
	for how, lose := range map[string]func(t *testing.T, m *sandbox.Manager) (back func()){
		"killed": func(t *testing.T, m *sandbox.Manager) func() {
			if err := m.Kill(); err != nil {
				t.Fatal(err)
			}
			return func() { startAgain(t, m) }
		},
		"frozen": func(t *testing.T, m *sandbox.Manager) func() {
			if err := m.Freeze(); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := m.Thaw(); err != nil {
					t.Error(err)
				}
			}
		},
		"cut off": func(t *testing.T, m *sandbox.Manager) func() { return cutOff(t, m, true, sandbox.Silent) },
	} {
		t.Run(how, func(t *testing.T) {
			namespace := newPool(t, 24)
			was := leader(t)
			answered := answeredFromStandby(t, was, namespace, "answered")
			back := sync.OnceFunc(lose(t, was))
			t.Cleanup(back)
			is := nextLeader(t, was)
			suite.Eventually(t, patience, func(context.Context) error { // it may still be catching up
				if !approves(t, is, answered) {
					return fmt.Errorf("%s does not approve %s", is.Name(), answered.Name)
				}
				return nil
			})
			back()
			taken := load.Claim(namespace, "taken")
			created(t, taken)
			if taken.Spec.PinnedRange.StartAddress == answered.Spec.PinnedRange.StartAddress {
				t.Errorf("%s is given again", taken.Spec.PinnedRange.StartAddress)
			}
		})
	}
}

// A leader is frozen after its response for longer than the life of a grant: the address
// belongs to another claim by then. The former leader, which finds the validating call at
// its port when it resumes, does not approve the create, and neither does the new leader.
func TestFailover_StandbyGrantOfAReplacedLeader(t *testing.T) {
	namespace := newPool(t, 24)
	was := leader(t)
	answered := answeredFromStandby(t, was, namespace, "answered")
	if err := was.Freeze(); err != nil {
		t.Fatal(err)
	}
	thaw := sync.OnceValue(was.Thaw)
	t.Cleanup(func() { _ = thaw() })
	is := nextLeader(t, was)
	taken := load.Claim(namespace, "taken")
	taken.Spec.Count, taken.Spec.PinnedRange = nil, answered.Spec.PinnedRange
	suite.Eventually(t, patience+2*grantExpiry, func(ctx context.Context) error { return admin.Create(ctx, taken) })
	late := make(chan bool, 1)
	go func() { late <- approves(t, was, answered) }()
	again := make(chan answer, 1)
	go func() {
		again <- ask(t.Context(), was, webhooks.MutateIPAllocation, load.Claim(namespace, "of-the-former-leader"))
	}()
	time.Sleep(time.Second) // the calls wait at its port by then
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	if <-late {
		t.Error("the former leader approves an address that has another owner")
	}
	if approves(t, is, answered) {
		t.Error("the new leader approves an address that has another owner")
	}
	if a := <-again; a.err == nil && a.code == http.StatusOK && a.response.Allowed {
		inJournal(t, &a.stored) // it has forwarded the call
	}
}

// smallPool is a pool that a test fills.
type smallPool struct {
	namespace, name string
	free            int // addresses that the test has not requested yet
	claims          int
}

// newSmallPools creates pools of 1 to 64 addresses in one namespace.
func newSmallPools(t *testing.T, n int) (all []*smallPool) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("sizes of the pools: seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ns, network := suite.CreateNamespace(t, admin), netip.MustParsePrefix(nextNetwork(16)).Addr().As4()
	for i := range n {
		p := &smallPool{namespace: ns, name: fmt.Sprintf("small-%d", i), free: 1 + random.IntN(64)}
		first := fmt.Sprintf("%d.%d.%d.", network[0], network[1], i)
		suite.Create(t, admin, &v1alpha1.NetworkPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: p.name},
			Spec:       v1alpha1.NetworkPoolSpec{CIDR: first + "0/24", TenantAllocation: &v1alpha1.TenantAllocation{Start: first + "0", End: fmt.Sprint(first, p.free-1)}},
		})
		all = append(all, p)
	}
	return all
}

// take allocates n addresses of a pool, count addresses a claim. Creates that fail are
// repeated, denied creates are not.
func (p *smallPool) take(t *testing.T, n, count int) error {
	for ; n > 0; n -= count {
		a := load.Claim(p.namespace, fmt.Sprintf("%s-%d", p.name, p.claims))
		a.Spec.PoolRef.Name, a.Spec.Count = p.name, new(int32(count))
		for deadline := time.Now().Add(patience); ; {
			err := admin.Create(t.Context(), a)
			if apierrors.IsForbidden(err) || err != nil && time.Now().After(deadline) {
				return fmt.Errorf("%d of %d free addresses of pool %s: %w", count, p.free, p.name, err)
			} else if err == nil || apierrors.IsAlreadyExists(err) {
				break
			}
		}
		p.free, p.claims = p.free-count, p.claims+1
	}
	return nil
}

// Pools that are filled right after the leader was killed give all their addresses: the
// standby grants of the dead leader are of no address of a small pool, nor of the part of
// a large pool that a small pool offers too.
func TestFailover_SmallPoolsFillToTheLastAddress(t *testing.T) {
	network := nextNetwork(16)
	large := &smallPool{namespace: load.NewPool(t, admin, network), name: "pool", free: 1 << 16}
	shared := &smallPool{namespace: load.NewPool(t, admin, strings.Replace(network, "/16", "/27", 1)), name: "pool", free: 32 - 4}
	all := append(newSmallPools(t, 200), shared)
	inAll := func(fill func(*smallPool) error) {
		t.Helper()
		var group errgroup.Group
		group.SetLimit(32)
		for _, p := range all {
			group.Go(func() error { return fill(p) })
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	}
	if err := large.take(t, 4, 1); err != nil { // the next creates from the large pool would get the addresses that the small pool offers too
		t.Fatal(err)
	}
	was := leader(t)
	inAll(func(p *smallPool) error { return p.take(t, min(2, p.free-1), 1) }) // each create makes the pool one that is used
	if err := was.Kill(); err != nil {
		t.Fatal(err)
	}
	defer startAgain(t, was)
	inAll(func(p *smallPool) error {
		const ones = 3
		if most := p.free - ones; most > 0 {
			if err := p.take(t, most, most); err != nil {
				return err
			}
		}
		return p.take(t, p.free, 1)
	})
	suite.RequireDenied(t, admin.Create(t.Context(), load.Claim(shared.namespace, "one-more")), http.StatusForbidden, "0 free")
}
