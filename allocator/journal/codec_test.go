package journal

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"butlerlabs.dev/ipam/allocator"
)

func ranges(texts ...string) []allocator.Range {
	var out []allocator.Range
	for _, t := range texts {
		r, err := allocator.ParseRange(t)
		if err != nil {
			panic(err)
		}
		out = append(out, r)
	}
	return out
}

func TestDecode_ReturnsTheEncodedSnapshot(t *testing.T) {
	entry := Entry{Token: Token{1, 2, 3}, RoutingDomain: "", Ranges: ranges("10.0.0.0-10.0.0.7"), Resource: "claims.test", Namespace: "a", NameHash: HashName("x")}
	tests := map[string]Snapshot{
		"nothing":    {},
		"quarantine": {Quarantine: true},
		"resources":  {Applied: map[string]uint64{"claims.test": 1 << 60, "pools.test": 0}},
		"an entry":   {Applied: map[string]uint64{"claims.test": 7}, Entries: []Entry{entry}},
		"all fields": {Applied: map[string]uint64{"claims.test": 7}, Quarantine: true, Entries: []Entry{
			entry,
			{Token: Token{9}, RoutingDomain: "blue", Ranges: ranges("fd00::/64"), Resource: "claims.test", Namespace: "b", StoredName: "pending", UID: "u-1", NameHash: HashName("pending")},
			{Token: Token{10}, RoutingDomain: "blue", Ranges: ranges("10.1.0.0-10.1.0.3", "10.1.0.8", "::-ffff::"), Resource: "pools.test"},
		}},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(want.Encode())
			if err != nil {
				t.Fatal(err)
			}
			addr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), addr); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestEncodedSize_BoundsTheEncoding(t *testing.T) {
	for name, entry := range map[string]Entry{
		"IPv4, some":   {Ranges: ranges("10.0.0.0-10.0.0.7"), Namespace: "butler-system"},
		"IPv4, many":   {Ranges: ranges("10.0.0.0-10.255.255.255"), Namespace: "butler-system"},
		"IPv6":         {Ranges: ranges("fd00::/64")},
		"several":      {Ranges: ranges("10.0.0.1", "10.0.1.0/24", "fd00::1")},
		"stored claim": {Ranges: ranges("10.0.0.1"), StoredName: strings.Repeat("x", 253), UID: "6a3fd2f6-4c38-4bd4-9eb0-ab3ec1a11f5c"},
	} {
		t.Run(name, func(t *testing.T) {
			one := len(Snapshot{Entries: []Entry{entry}}.Encode())
			many := Snapshot{}
			for range 100 {
				many.Entries = append(many.Entries, entry)
			}
			if got, bound := len(many.Encode())-one, 99*entry.EncodedSize(); got > bound || got < bound-3*99 {
				t.Errorf("99 entries take %d bytes, EncodedSize gives %d", got, bound)
			}
		})
	}
}

func TestDecode_NewerFormatIsErrFormat(t *testing.T) {
	b := Snapshot{}.Encode()
	b[0]++
	if _, err := Decode(b); !errors.Is(err, ErrFormat) {
		t.Errorf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add(Snapshot{Quarantine: true}.Encode())
	f.Add(Snapshot{Applied: map[string]uint64{"k": 1}, Entries: []Entry{{Ranges: ranges("10.0.0.0/30"), Resource: "k", StoredName: "s", UID: "u"}}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(r.Encode())
		if err != nil {
			t.Fatalf("%x decodes, but its second encoding does not: %v", b, err)
		}
		if a, b := fmt.Sprint(r), fmt.Sprint(again); a != b {
			t.Fatalf("%s\n%s", a, b)
		}
	})
}

func TestParseToken_ParsesOnlyResultsOfString(t *testing.T) {
	want := Token{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	if got, err := ParseToken(want.String()); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := ParseToken(""); err != nil || !got.IsZero() {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"x", "AQIDBAUGBwgJCgs", "AQIDBAUGBwgJCgsMDQ", "!!!!!!!!!!!!!!!!"} {
		if _, err := ParseToken(bad); err == nil {
			t.Errorf("%q parses as a token", bad)
		}
	}
}
