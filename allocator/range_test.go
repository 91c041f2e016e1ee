package allocator

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestRange_ErrorsNameValueAndRule(t *testing.T) {
	for text, wantParts := range map[string][]string{
		"":                                {`""`, "not an IP address"},
		"-":                               {"not an IP address"},
		"10.0.0.1-":                       {`""`, "not an IP address"},
		"10.0.0":                          {`"10.0.0"`, "not an IP address"},
		"10.0.0.256":                      {"10.0.0.256", "not an IP address"},
		"010.0.0.1":                       {"010.0.0.1", "not an IP address"},
		"10.0.0.0/33":                     {"10.0.0.0/33", "not a CIDR"},
		"10.0.0.0/":                       {"not a CIDR"},
		"10.0.0.0/24/24":                  {"not a CIDR"},
		"10.0.0.0-10.0.0.0/24":            {"not a CIDR"},
		"fe80::/64%eth0":                  {"not a CIDR"},
		"10.0.0.9-10.0.0.1":               {"10.0.0.9-10.0.0.1", "reversed"},
		"2001:db8::2-2001:db8::1":         {"reversed"},
		"10.0.0.1-2001:db8::1":            {"10.0.0.1-2001:db8::1", "mixes IPv4 and IPv6"},
		"fe80::1%eth0":                    {"fe80::1%eth0", "zone"},
		"fe80::1-fe80::2%eth0":            {"fe80::2%eth0", "zone"},
		"::ffff:10.0.0.1":                 {"::ffff:10.0.0.1", "write 10.0.0.1"},
		"::ffff:10.0.0.1-10.0.0.2":        {"write 10.0.0.1"},
		"::ffff:10.0.0.0/120":             {"write 10.0.0.0"},
		"::ffff:0.0.0.0/80":               {"write 0.0.0.0"},
		strings.Repeat("1", 1<<16):        {"not an IP address"},
		"10.0.0.1-10.0.0.2-10.0.0.3":      {"not an IP address"},
		"2001:db8:::1":                    {"not an IP address"},
		"10.0.0.1 10.0.0.2":               {"not an IP address"},
		"10.0.0.0/-1":                     {"not a CIDR"},
		"2001:db8::/129":                  {"not a CIDR"},
		"\x00":                            {"not an IP address"},
		"10.0.0.0/8 - 10.0.0.0":           {"not a CIDR"},
		"255.255.255.255-255.255.255.254": {"reversed"},
	} {
		r, err := ParseRange(text)
		if err == nil {
			t.Errorf("%q is read as %v", text, r)
			continue
		}
		for _, part := range wantParts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error for %q misses %q: %v", text, part, err)
			}
		}
		if r.IsValid() {
			t.Errorf("%q has an error and the range %v", text, r)
		}
	}
	if _, err := NewRange(netip.Addr{}, netip.MustParseAddr("10.0.0.1")); err == nil {
		t.Error("a range without a first address is accepted")
	}
}

// TestRange_InvalidHasNoAddresses builds them by hand, past NewRange.
func TestRange_InvalidHasNoAddresses(t *testing.T) {
	addr := netip.MustParseAddr
	good := mustParse("10.0.0.0/24")
	for name, r := range map[string]Range{
		"zero":          {},
		"half":          {First: addr("10.0.0.1")},
		"reversed":      {addr("10.0.0.9"), addr("10.0.0.1")},
		"mixed":         {addr("10.0.0.1"), addr("2001:db8::1")},
		"zoned":         {addr("fe80::1%eth0"), addr("fe80::2%eth0")},
		"mapped":        {addr("::ffff:10.0.0.1"), addr("::ffff:10.0.0.9")},
		"prefix":        RangeOfPrefix(netip.Prefix{}),
		"mapped prefix": RangeOfPrefix(netip.MustParsePrefix("::ffff:10.0.0.0/120")),
	} {
		if r.IsValid() || r.Size() != 0 || r.Covers(r) || r.Overlaps(r) || good.Covers(r) || good.Overlaps(r) ||
			r.Contains(r.First) || len(slices.Collect(r.Addresses())) != 0 || len(Union([]Range{r})) != 0 {
			t.Errorf("%s: %v has addresses", name, r)
		}
		if _, ok := r.Prefix(); ok || r.String() != "invalid range" || r.Text() != "invalid range" {
			t.Errorf("%s: %q is the text, %q the CIDR", name, r.String(), r.Text())
		}
		if r.IsValid() {
			t.Errorf("%s is valid", name)
		}

		s := NewSpace()
		p := s.SetPool("pool", []Range{r, good}, []Range{r})
		if got := p.Stats(); got.Total != 256 || len(p.Window()) != 1 {
			t.Errorf("%s: a pool that names it has %+v", name, got)
		}
		if others := s.Assign(r, 1); others != nil {
			t.Errorf("%s: others hold %v", name, others)
		}
		s.Release(r, 1)
		if owned := slices.Collect(s.OwnedIn(r)); owned != nil {
			t.Errorf("%s: %v is owned", name, owned)
		}
		if err := p.AllocateExact(r, 1); err == nil || err.Error() == "" {
			t.Errorf("%s: is given as an exact range", name)
		}
		if len(s.blocks) != 0 || s.pieces.count != 0 {
			t.Errorf("%s: left something behind", name)
		}
	}
}

func TestRange_Size(t *testing.T) {
	for text, want := range map[string]int64{
		"0.0.0.0/0":                  1 << 32,
		"10.0.0.0/8":                 1 << 24,
		"255.255.255.255":            1,
		"2001:db8::/65":              math.MaxInt64,
		"2001:db8::/66":              1 << 62,
		"2001:db8::/64":              math.MaxInt64,
		"2001:db8::-2001:db8::ff":    256,
		"::/0":                       math.MaxInt64,
		"8000::/1":                   math.MaxInt64,
		"::fffe:ffff:ffff-::1:0:0:0": 2, // IPv4 lies between the two
	} {
		r := mustParse(text)
		if got := r.Size(); got != want {
			t.Errorf("%s has %d addresses, want %d", text, got, want)
		}
		if strings.Contains(text, "/") && r.Text() != text {
			t.Errorf("%s is written %s", text, r.Text())
		}
	}
}

func TestRange_AddressesEndAtTheLast(t *testing.T) {
	for text, want := range map[string][]string{
		"255.255.255.254-255.255.255.255":              {"255.255.255.254", "255.255.255.255"},
		"0.0.0.0/31":                                   {"0.0.0.0", "0.0.0.1"},
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127":  {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"2001:db8::ffff:ffff:ffff:ffff-2001:db8:0:1::": {"2001:db8::ffff:ffff:ffff:ffff", "2001:db8:0:1::"},
		"::fffe:ffff:ffff-::1:0:0:0":                   {"::fffe:ffff:ffff", "::1:0:0:0"},
	} {
		var got []string
		for a := range mustParse(text).Addresses() {
			got = append(got, a.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s yields %v, want %v", text, got, want)
		}
	}
}

func TestSet_KeepsFamiliesApart(t *testing.T) {
	parse := func(texts ...string) (ranges []Range) {
		for _, text := range texts {
			ranges = append(ranges, mustParse(text))
		}
		return ranges
	}
	whole := parse("::/0", "0.0.0.0/0")
	for name, tc := range map[string]struct{ got, want []Range }{
		"overlapping and adjacent merge": {
			Union(parse("10.0.0.8/29", "10.0.0.0/29", "10.0.0.4/30", "10.0.0.32")),
			parse("10.0.0.0/28", "10.0.0.32")},
		"the last of IPv4 and the next of IPv6 do not": {
			Union(parse("255.255.255.255", "::1:0:0:0", "0.0.0.0", "::fffe:ffff:ffff")),
			parse("::fffe:ffff:ffff", "0.0.0.0", "255.255.255.255", "::1:0:0:0")},
		"IPv6 leaves IPv4 out": {
			Union(parse("::/0")), parse("::-::fffe:ffff:ffff", "::1:0:0:0-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")},
		"all without IPv6 is IPv4": {Subtract(whole, parse("::/0")), parse("0.0.0.0/0")},
		"all without all":          {Subtract(whole, whole), nil},
		"a hole":                   {Subtract(parse("10.0.0.0/29"), parse("10.0.0.2/31")), parse("10.0.0.0/31", "10.0.0.4/30")},
		"both ends":                {Subtract(parse("10.0.0.0/29"), parse("9.0.0.0-10.0.0.0", "10.0.0.7-11.0.0.0")), parse("10.0.0.1-10.0.0.6")},
		"one cut through two":      {Subtract(parse("10.0.0.0/30", "10.0.0.8/30"), parse("10.0.0.2-10.0.0.8")), parse("10.0.0.0/31", "10.0.0.9-10.0.0.11")},
		"the ends of the numbers":  {Subtract(parse("255.255.255.254/31", "0.0.0.0/31"), parse("255.255.255.255", "0.0.0.0")), parse("0.0.0.1", "255.255.255.254")},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, tc.got, tc.want)
		}
	}
}

// FuzzParseRange checks that what can be read can be written and read again.
func FuzzParseRange(f *testing.F) {
	for _, text := range []string{"10.0.0.0/24", "10.0.0.1 - 10.0.0.9", "10.0.0.5", "2001:db8::/64", "::/0", "fe80::1%eth0", "::ffff:10.0.0.1", "-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRange(text)
		if (err == nil) != r.IsValid() {
			t.Fatalf("%q: range %v, error %v", text, r, err)
		}
		if err != nil {
			return
		}
		for _, again := range []string{r.String(), r.Text()} {
			if got, err := ParseRange(again); err != nil || got != r {
				t.Errorf("%q is %v, written %q and read as %v, %v", text, r, again, got, err)
			}
		}
		if r.Size() < 1 || !r.Contains(r.First) || !r.Contains(r.Last) || !r.Covers(r) {
			t.Errorf("%q: %v does not contain itself", text, r)
		}
	})
}

func TestRange_At(t *testing.T) {
	for r, want := range map[string]map[int64]string{
		"10.0.0.250-10.0.1.5":             {-1: "", 0: "10.0.0.250", 6: "10.0.1.0", 11: "10.0.1.5", 12: "", math.MaxInt64: ""},
		"255.255.255.255":                 {0: "255.255.255.255", 1: ""},
		"::1-ffff::":                      {0: "::1", math.MaxInt64: "::8000:1:0:0"},      // 2^32 of the numbers between are IPv4
		"::fffe:ffff:ffff-::1:0:0:0":      {0: "::fffe:ffff:ffff", 1: "::1:0:0:0", 2: ""}, // over IPv4, which lies between
		"2001:db8::-2001:db8::":           {0: "2001:db8::", 1: ""},
		"ffff:ffff::fffe-ffff:ffff::ffff": {1: "ffff:ffff::ffff", 2: "", math.MinInt64: ""},
	} {
		for n, want := range want {
			got := ""
			if a, ok := mustParse(r).At(n); ok {
				got = a.String()
			}
			if got != want {
				t.Errorf("%s at %d: want %q, got %q", r, n, want, got)
			}
		}
	}
	if a, ok := (Range{}).At(0); ok {
		t.Errorf("a range without addresses has %s", a)
	}
}
