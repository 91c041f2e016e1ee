package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator"
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
