package allocator

import "testing"

func TestAmount_IsReadable(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7":      "1",
		"10.0.0.0/8":    "16777216",
		"2001:db8::/66": "4611686018427387904",
		"2001:db8::/65": "about 2^63",
		"2001:db8::/64": "about 2^64",
		"8000::/1":      "about 2^127",
		"2001:db8::-2001:db8:0:2:ffff:ffff:ffff:ffff": "about 2^65.6",
	} {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := AmountOf(r); got != want {
			t.Errorf("%s has %s addresses, want %s", text, got, want)
		}
	}
}

func TestCounted_AgreesWithTheNumber(t *testing.T) {
	for want, got := range map[string]string{
		"0 claims":    Counted(0, "claim"),
		"1 claim":     Counted(1, "claim"),
		"1 address":   Counted(int64(1), "address"),
		"2 addresses": Counted(int32(2), "address"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
