package health

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// textsOf returns the message and the remedy of the only finding of a defect.
func textsOf(t *testing.T, i *inventory.Inventory, d Defect) (message, remedy string) {
	t.Helper()
	found := 0
	for _, f := range Check(i, grace).Findings {
		if f.Defect == d {
			message, remedy = f.Message, f.Remedy
			found++
		}
	}
	if found != 1 {
		t.Fatalf("%d findings of %s: %+v", found, d.ID, Check(i, grace).Findings)
	}
	return message, remedy
}

// released returns a pool whose addresses first to last are in cooldown for 25 s.
func released(cidr, first, last string) *butlerv1.NetworkPool {
	return changedPool(cidr, func(p *butlerv1.NetworkPool) {
		reusable := metav1.NewTime(now.Add(25 * time.Second))
		p.Spec.ReuseDelay = &metav1.Duration{Duration: time.Minute}
		p.Status.Releases = []butlerv1.Release{{
			Name: "gone", Tenant: butlerv1.RecordedReference{Namespace: "team", Name: "old"}, StartAddress: first, EndAddress: last,
			ReleasedAt: metav1.NewTime(now.Add(-35 * time.Second)), ReusableAt: &reusable,
		}}
	})
}

// The findings about a pool without many free addresses name the addresses in cooldown,
// and the time at which the first is free.
func TestCapacity_NamesCooldowns(t *testing.T) {
	for name, test := range map[string]struct {
		pool            *butlerv1.NetworkPool
		first, last     string
		defect          Defect
		message, remedy string
	}{
		"full": {
			pool: released("10.0.0.0/29", "10.0.0.4", "10.0.0.7"), first: "10.0.0.0", last: "10.0.0.3", defect: Full,
			message: "NetworkPool ns/pool is full: 8 of 8 addresses are allocated; 4 are in cooldown: the first becomes free in 25s",
			remedy:  "wait until 2026-01-02T03:04:30Z, or enlarge the pool, or delete claims: kubectl ipam claims --pool ns/pool",
		},
		"nearly full": {
			pool: released("10.0.0.0/24", "10.0.0.248", "10.0.0.251"), first: "10.0.0.0", last: "10.0.0.247", defect: NearlyFull,
			message: "NetworkPool ns/pool has 4 free addresses of 256; 4 are in cooldown: the first becomes free in 25s",
			remedy:  "wait until 2026-01-02T03:04:30Z, or enlarge the pool, or delete claims: kubectl ipam claims --pool ns/pool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := inventory.New(now, nil)
			i.Add(test.pool)
			i.Add(allocation("a", test.first, test.last, ready))
			if message, remedy := textsOf(t, i, test.defect); message != test.message || remedy != test.remedy {
				t.Errorf("got\n%s\n%s\nwant\n%s\n%s", message, remedy, test.message, test.remedy)
			}
		})
	}
}

// The remedy for a full pool names the pools whose claims own its addresses.
func TestCapacity_NamesPoolsOfOwners(t *testing.T) {
	i := inventory.New(now, nil)
	i.Add(changedPool("10.0.0.0/30", func(*butlerv1.NetworkPool) {}))
	i.Add(changedPool("10.0.0.0/29", func(p *butlerv1.NetworkPool) { p.Name, p.UID = "wide", "wide" }))
	i.Add(allocation("a", "10.0.0.0", "10.0.0.3", ready, func(a *butlerv1.IPAllocation) { a.Spec.PoolRef.Name = "wide" }))
	if _, remedy := textsOf(t, i, Full); remedy != "enlarge the pool, or delete claims: kubectl ipam claims --pool ns/wide" {
		t.Error(remedy)
	}
}

// A pool is full if its status has no free address and its claims were not read.
func TestCapacity_OfHiddenOwners(t *testing.T) {
	i := inventory.New(now, nil)
	i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Status.TotalIPs = 256 }))
	i.LeaveOut(butler.ResourceIPAllocation, "ns")
	if message, _ := textsOf(t, i, Full); message != "NetworkPool ns/pool is full: 256 of 256 addresses are allocated; the status has 0 free: claims that you may not list own the others" {
		t.Error(message)
	}
}

// The finding about a missing pool names a pool of the same name in another namespace.
func TestPoolMissing_NamesPoolOfAnotherNamespace(t *testing.T) {
	i := inventory.New(now, nil)
	i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Namespace, p.Name = "butler-system", "mid" }))
	i.Add(allocation("a", "", "", func(a *butlerv1.IPAllocation) { a.Spec.PoolRef.Name = "mid" }))
	message, _ := textsOf(t, i, PoolMissing)
	if want := "IPAllocation ns/a waits for NetworkPool ns/mid, which does not exist (butler-system/mid exists: a claim uses a pool of its own namespace)"; message != want {
		t.Errorf("got %s, want %s", message, want)
	}
}

// An owner keeps its addresses whatever becomes of its pool: a finding names the
// addresses and the pool.
func TestOwner_WhosePoolDoesNotOfferItsAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*inventory.Inventory)
		defect  Defect
		message string
	}{
		"pool gone": {
			func(*inventory.Inventory) {}, PoolMissing,
			"IPAllocation ns/a owns 10.0.0.0-10.0.0.3, and its pool, NetworkPool ns/pool, does not exist",
		},
		"pool made again elsewhere": {
			func(i *inventory.Inventory) { i.Add(changedPool("10.7.0.0/24", unchanged)) }, NotOffered,
			"IPAllocation ns/a owns 10.0.0.0-10.0.0.3, and pool ns/pool does not offer 10.0.0.0-10.0.0.3",
		},
		"pool made again smaller": {
			func(i *inventory.Inventory) { i.Add(changedPool("10.0.0.0/31", unchanged)) }, NotOffered,
			"IPAllocation ns/a owns 10.0.0.0-10.0.0.3, and pool ns/pool does not offer 10.0.0.2-10.0.0.3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := inventory.New(now, nil)
			i.Add(allocation("a", "10.0.0.0", "10.0.0.3", ready))
			tt.change(i)
			if message, _ := textsOf(t, i, tt.defect); message != tt.message {
				t.Errorf("got %s, want %s", message, tt.message)
			}
		})
	}
}
