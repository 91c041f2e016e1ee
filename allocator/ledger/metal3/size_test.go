package metal3

import (
	"testing"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

func TestSizeOfAnEntryAsMetal3CountsIt(t *testing.T) {
	cases := map[string]struct {
		entry string
		want  int64 // negative: cannot be counted
	}{
		"start to end":             {entry: `{start: 192.168.0.10, end: 192.168.0.20}`, want: 11},
		"one address":              {entry: `{start: 192.168.0.10, end: 192.168.0.10}`, want: 1},
		"reversed":                 {entry: `{start: 192.168.0.20, end: 192.168.0.10}`, want: -1},
		"start in a subnet":        {entry: `{start: 192.168.0.10, subnet: 192.168.0.0/24}`, want: 246},
		"start outside a subnet":   {entry: `{start: 192.168.0.250, subnet: 192.168.1.0/24}`, want: 262},
		"a subnet":                 {entry: `{subnet: 192.168.0.0/24}`, want: 255},
		"a subnet with host bits":  {entry: `{subnet: 192.168.0.10/24}`, want: 255},
		"a subnet of one":          {entry: `{subnet: 192.168.0.10/32}`, want: 0},
		"start, end and a subnet":  {entry: `{start: 192.168.0.1, end: 192.168.0.10, subnet: 192.168.0.0/30}`, want: 10},
		"start alone":              {entry: `{start: 192.168.0.10}`, want: -1},
		"end alone":                {entry: `{end: 192.168.0.10}`, want: -1},
		"nothing":                  {entry: `{}`, want: -1},
		"start IPv4, end IPv6":     {entry: `{start: 192.168.0.10, end: "2001:db8::1"}`, want: -1},
		"as much as can be":        {entry: `{subnet: "2001:db8::/65"}`, want: 1<<63 - 1},
		"more than can be":         {entry: `{subnet: "2001:db8::/64"}`, want: -1},
		"one more than can be":     {entry: `{start: "2001:db8::", end: "2001:db8::7fff:ffff:ffff:ffff"}`, want: -1},
		"an IPv6 network of a /32": {entry: `{subnet: "2001:db8::/32"}`, want: -1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var p v1alpha1.Pool
			if err := yaml.UnmarshalStrict([]byte(tc.entry), &p); err != nil {
				t.Fatal(err)
			}
			e, _ := readEntry(nil, p)
			got, ok := e.size()
			if !ok {
				got = -1
			}
			if got != tc.want {
				t.Errorf("want %d, got %d", tc.want, got)
			}
		})
	}
}
