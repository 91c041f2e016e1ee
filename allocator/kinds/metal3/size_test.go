package metal3

import (
	"testing"

	"butlerlabs.dev/ipam/test/scenarios"
)

func TestSizeOfAnEntryAsMetal3CountsIt(t *testing.T) {
	all, err := scenarios.ReadEntries("testdata/entries.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range all {
		e, _ := parseEntry(0, tc.Entry)
		if got, ok := e.countAddresses(); ok != (tc.Size != nil) || ok && got != *tc.Size {
			t.Errorf("%s: got %d, countable: %v", tc.Name, got, ok)
		}
	}
}
