package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// poolOf returns a NetworkPool ns/name with tenant ranges.
func poolOf(name, cidr string, ranges ...string) *butlerv1.NetworkPool {
	p := newPool(cidr)
	p.Name, p.UID = name, types.UID(name)
	p.Spec.TenantAllocation = &butlerv1.TenantAllocation{}
	for _, text := range ranges {
		first, last, _ := strings.Cut(text, "-")
		p.Spec.TenantAllocation.Ranges = append(p.Spec.TenantAllocation.Ranges, butlerv1.IPRange{Start: first, End: last})
	}
	return p
}

// answerTexts returns the range, the state and the offering pools of each answer.
func answerTexts(answers []Answer) (texts []string) {
	for _, a := range answers {
		text := a.Segment.Range.String() + " " + string(a.Segment.State)
		for _, p := range a.Pools {
			text += " " + p.Key.Name
		}
		texts = append(texts, text)
	}
	return texts
}

// Who divides a run where the set of offering pools changes, up to both ends of the
// address space.
func TestWho_DividesRunsAtPoolBorders(t *testing.T) {
	i := New(now, nil)
	i.Add(poolOf("pool", "10.40.0.0/23", "10.40.0.10-10.40.0.254"))
	i.Add(poolOf("wide", "10.40.0.0/16", "10.40.0.200-10.40.3.255"))
	i.Add(poolOf("top", "255.255.255.0/24", "255.255.255.250-255.255.255.255"))
	i.Add(newAllocation("web", "10.40.0.64", "10.40.0.71", butlerv1.TypeNodes))
	i.Add(newAllocation("shared", "10.40.0.199", "10.40.0.200", butlerv1.TypeNodes))
	for network, want := range map[string][]string{
		"10.40.0.0/23": {
			"10.40.0.0-10.40.0.9 free", "10.40.0.10-10.40.0.63 free pool", "10.40.0.64-10.40.0.71 owned pool", "10.40.0.72-10.40.0.198 free pool",
			"10.40.0.199 owned pool", "10.40.0.200 owned pool wide", "10.40.0.201-10.40.0.254 free pool wide", "10.40.0.255-10.40.1.255 free wide",
		},
		"0.0.0.0/0": {
			"0.0.0.0-10.40.0.9 free", "10.40.0.10-10.40.0.63 free pool", "10.40.0.64-10.40.0.71 owned pool", "10.40.0.72-10.40.0.198 free pool",
			"10.40.0.199 owned pool", "10.40.0.200 owned pool wide", "10.40.0.201-10.40.0.254 free pool wide", "10.40.0.255-10.40.3.255 free wide",
			"10.40.4.0-255.255.255.249 free", "255.255.255.250-255.255.255.255 free top",
		},
		"10.40.0.72":    {"10.40.0.72 free pool"},
		"2001:db8::/64": {"2001:db8::-2001:db8::ffff:ffff:ffff:ffff free"},
	} {
		if got := answerTexts(i.Who("", mustRange(t, network))); !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", network, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// Each answer about a range equals the answer about each address of the range, and the
// answers cover the range.
func TestWho_EqualsTheAnswerOfEachAddress(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 50 {
		i := New(now, nil)
		for n := range 4 {
			first := random.IntN(200)
			p := poolOf(fmt.Sprint("pool-", n), "10.0.0.0/24", fmt.Sprintf("10.0.0.%d-10.0.0.%d", first, first+10+random.IntN(40)))
			p.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: fmt.Sprintf("10.0.0.%d/28", random.IntN(16)*16), Description: "routers"}}
			released := random.IntN(200)
			p.Status.Releases = []butlerv1.Release{{
				Name: "gone", StartAddress: fmt.Sprintf("10.0.0.%d", released), EndAddress: fmt.Sprintf("10.0.0.%d", released+3), ReleasedAt: metav1.NewTime(now.Add(-time.Hour)),
			}}
			i.Add(p)
			address := fmt.Sprintf("10.0.0.%d", first+n)
			a := newAllocation(fmt.Sprint("a-", n), address, address, butlerv1.TypeNodes)
			a.Spec.PoolRef.Name = p.Name
			i.Add(a)
		}
		whole := mustRange(t, "10.0.0.0/24")
		next := whole.First
		for _, a := range i.Who("", whole) {
			if a.Segment.Range.First != next {
				t.Fatalf("round %d: an answer begins at %s, want %s", round, a.Segment.Range.First, next)
			}
			next = a.Segment.Range.Last.Next()
			for address := range a.Segment.Range.Addresses() {
				alone := i.Who("", allocator.Range{First: address, Last: address})[0]
				if alone.Segment.State != a.Segment.State || alone.Segment.Owner != a.Segment.Owner || !slices.Equal(alone.Pools, a.Pools) {
					t.Errorf("round %d: %s is %v, in %s %v", round, address, answerTexts([]Answer{alone}), a.Segment.Range, answerTexts([]Answer{a}))
				}
				if alone.ReservedBy != nil && (a.ReservedBy == nil || a.Reservation == "") {
					t.Errorf("round %d: %s is reserved by %v, and %s by no pool", round, address, alone.ReservedBy.Key, a.Segment.Range)
				}
				for _, r := range alone.Releases {
					if !slices.Contains(a.Releases, r) {
						t.Errorf("round %d: the answer about %s lacks the release of %s", round, a.Segment.Range, r.Range)
					}
				}
			}
		}
		if next != whole.Last.Next() {
			t.Errorf("round %d: the answers end before %s", round, next)
		}
	}
}

// largeInventory returns an Inventory of pools that each have 500 claims, 200 reserved
// networks and 200 releases.
func largeInventory(pools int) *Inventory {
	i := New(now, nil)
	for n := range pools {
		p := poolOf(fmt.Sprint("pool-", n), "10.0.0.0/8", fmt.Sprintf("10.%d.0.0-10.%d.255.255", n, n))
		for k := range 200 {
			p.Spec.Reserved = append(p.Spec.Reserved, butlerv1.ReservedRange{CIDR: fmt.Sprintf("10.%d.%d.8/29", n, k), Description: "routers"})
			address := fmt.Sprintf("10.%d.%d.16", n, k)
			p.Status.Releases = append(p.Status.Releases, butlerv1.Release{Name: "gone", StartAddress: address, EndAddress: address, ReleasedAt: metav1.NewTime(now.Add(-time.Hour))})
		}
		i.Add(p)
		for k := range 500 {
			first := 32 + k*64
			a := newAllocation(fmt.Sprint("a-", n, "-", k), fmt.Sprintf("10.%d.%d.%d", n, first/256, first%256), fmt.Sprintf("10.%d.%d.%d", n, first/256, first%256+7), butlerv1.TypeNodes)
			a.Spec.PoolRef.Name = p.Name
			i.Add(a)
		}
	}
	return i
}
