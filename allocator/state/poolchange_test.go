package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

func TestWithheldRanges_AreNamedInDenials(t *testing.T) {
	s := newTestState(t)
	if _, err := s.UpdatePool(s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.7")); err != nil {
		t.Fatal(err)
	}
	const text = "10.0.0.0-10.0.0.7 is withheld, as an update of pool ns/pool that removes it was admitted and is not observed yet"
	_, err := s.Preview(Request{Claim: key("a"), Pool: modelPool, Ranges: []RangeRequest{{Count: 4}}})
	if err == nil || !strings.HasSuffix(err.Error(), "or wait: "+text) {
		t.Errorf("before the commit of the journal: %v", err)
	}
	s.commit()
	until := ": if the update is not stored, it is free again at " + s.now.Add(DefaultGrantLife).UTC().Format("2006-01-02T15:04:05Z")
	_, err = s.requestGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Count: 4}}})
	if err == nil || !errors.Is(err, allocator.ErrExhausted) || !strings.HasSuffix(err.Error(), "or wait: "+text+until) {
		t.Errorf("a count of addresses: %v", err)
	}
	_, err = s.requestGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.2")}}})
	if owned := (*OwnedError)(nil); !errors.As(err, &owned) || !owned.Withheld || owned.SeenFrom("ns") != strings.Replace(text+until, "10.0.0.0-10.0.0.7", "10.0.0.2", 1) {
		t.Errorf("an exact address: %v", err)
	} else if elsewhere := owned.SeenFrom("other"); strings.Contains(elsewhere, "ns/pool") {
		t.Errorf("in another namespace: %s", elsewhere)
	}
}

func TestWithheldRanges_CountInTheShareOfTheirNamespace(t *testing.T) {
	s := newTestState(t)
	update := func(i int) error {
		_, err := s.UpdatePool(s.nextPool("10.0.0.0-10.0.0.9", fmt.Sprintf("10.0.0.%d", i)))
		return err
	}
	n := 0
	var full *NotServingError
	for ; n < 9; n++ {
		if err := update(n); errors.As(err, &full) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 || n > 4 || full == nil || !strings.Contains(full.Reason, "namespace ns has used up its share of the journal") {
		t.Errorf("%d updates were admitted, then: %v", n, full)
	}
	if _, err := s.requestGrant(Request{Claim: Key{Resource: modelClaims, Namespace: "other", Name: "a"}}); err != nil {
		t.Errorf("a claim of another namespace: %v", err)
	}
}

// A denied update names one owner and counts the others, up to a bound. Readers in
// another namespace get the number, and no name.
func TestUpdatePool_CountsTheOwners(t *testing.T) {
	s := newTestState(t)
	denied := func(p Pool) (*InUseError, string) {
		t.Helper()
		var inUse *InUseError
		if _, err := s.UpdatePool(p); !errors.As(err, &inUse) {
			t.Fatalf("got %v", err)
		}
		return inUse, inUse.SeenFrom("ns")
	}
	for i := range 4 {
		s.observeStored(fmt.Sprint("c-", i), fmt.Sprintf("10.0.0.%d", 2*i), journal.Token{}, ready)
	}
	domain := s.nextPool("10.0.0.0-10.0.0.9")
	domain.RoutingDomain = "other"
	for name, tc := range map[string]struct {
		pool Pool
		want string
	}{
		"all reserved":   {s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.9"), "10.0.0.0 would become reserved while it is owned by claims/c-0, and further addresses by 3 others: delete the owners first, or leave"},
		"two reserved":   {s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.4-10.0.0.9"), "10.0.0.4 would become reserved while it is owned by claims/c-2, and further addresses by 1 other: delete the owners first, or leave"},
		"one reserved":   {s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.6"), "10.0.0.6 would become reserved while it is owned by claims/c-3: delete the owner first, or leave"},
		"smaller":        {s.nextPool("10.0.0.6-10.0.0.9"), "10.0.0.0 would leave the pool's ranges while it is owned by claims/c-0, and further addresses by 2 others: delete the owners first, or keep"},
		"another domain": {domain, "10.0.0.0 would change its routing domain while it is owned by claims/c-0, and further addresses by 3 others: delete the owners first, or leave"},
	} {
		if _, text := denied(tc.pool); !strings.HasPrefix(text, "pool ns/pool: "+tc.want) {
			t.Errorf("%s: %s", name, text)
		}
	}
	inUse, _ := denied(s.nextPool("10.0.0.6-10.0.0.9"))
	if text := inUse.SeenFrom("elsewhere"); !strings.Contains(text, "owned in another namespace, and further addresses by 2 others") || strings.Contains(text, "c-") {
		t.Errorf("in another namespace: %s", text)
	}

	s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.255.255"))
	for i := range maxCountedOwners + 50 {
		s.observeStored(fmt.Sprint("d-", i), fmt.Sprintf("10.0.%d.%d", 1+i/200, i%200), journal.Token{}, ready)
	}
	if inUse, text := denied(s.nextPool("10.0.0.0-10.0.0.9")); inUse.Others != maxCountedOwners || !strings.Contains(text, "by at least 1000 others") {
		t.Errorf("got %+v: %s", inUse, text)
	}
}
