package novaedge

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// vipOf is a ProxyVIP whose spec and status are written in YAML; what it does not say is
// valid.
func vipOf(t *testing.T, text string) *v1alpha1.ProxyVIP {
	t.Helper()
	v := &v1alpha1.ProxyVIP{}
	v.Name, v.Spec.Mode, v.Spec.Ports = "web", v1alpha1.ModeBGP, []int32{80}
	if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func texts(ranges []allocator.Range) []string {
	all := []string{}
	for _, r := range ranges {
		all = append(all, r.Text())
	}
	return all
}

func TestUsableAddresses(t *testing.T) {
	for network, want := range map[string]string{
		"10.0.0.0/8":           "10.0.0.1-10.255.255.254",
		"10.0.0.0/15":          "10.0.0.1-10.1.255.254",
		"10.0.0.200/28":        "10.0.0.193-10.0.0.206",
		"10.0.0.0/30":          "10.0.0.1-10.0.0.2",
		"10.0.0.0/31":          "10.0.0.0-10.0.0.1",
		"10.0.0.7/32":          "10.0.0.7",
		"2001:db8::/64":        "2001:db8::1-2001:db8::ffff:ffff:ffff:ffff",
		"2001:db8::/126":       "2001:db8::1-2001:db8::3",
		"2001:db8::/127":       "2001:db8::-2001:db8::1",
		"2001:db8::5/128":      "2001:db8::5",
		"ffff:ffff::/32":       "ffff:ffff::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"255.255.255.254/31":   "255.255.255.254-255.255.255.255",
		"255.255.255.255/32":   "255.255.255.255",
		"0.0.0.0/0":            "0.0.0.1-255.255.255.254",
		"2001:db8:0:1::/64":    "2001:db8:0:1::1-2001:db8:0:1:ffff:ffff:ffff:ffff",
		"2001:db8::ffff:0/112": "2001:db8::ffff:1-2001:db8::ffff:ffff",
	} {
		window, errs := parseWindow(&v1alpha1.ProxyIPPool{Spec: v1alpha1.ProxyIPPoolSpec{CIDRs: []string{network}}})
		if len(errs) > 0 || len(window) != 1 || window[0].String() != want {
			t.Errorf("%s: %v, %v; want %s", network, window, errs, want)
		}
	}
}

func TestWhatAVIPHolds(t *testing.T) {
	for name, tc := range map[string]struct {
		vip  string
		want []string
		all  bool
	}{
		"nothing":                       {`{spec: {poolRef: {name: p}}}`, []string{}, false},
		"in spec":                       {`{spec: {address: 10.0.0.1/32}}`, []string{"10.0.0.1/32"}, true},
		"bare, with a network's length": {`{spec: {address: 10.0.0.1/24}}`, []string{"10.0.0.1/32"}, true},
		"half of two":                   {`{spec: {addressFamily: dual, address: 10.0.0.1/32}}`, []string{"10.0.0.1/32"}, false},
		"two":                           {`{spec: {addressFamily: dual, address: 10.0.0.1, ipv6Address: "2001:db8::1"}}`, []string{"10.0.0.1/32", "2001:db8::1/128"}, true},
		"IPv6 where IPv4 stands":        {`{spec: {addressFamily: ipv6, address: "2001:db8::1/128"}}`, []string{"2001:db8::1/128"}, true},
		"status alone":                  {`{spec: {poolRef: {name: p}}, status: {allocatedAddress: 10.0.0.1/32}}`, []string{"10.0.0.1/32"}, true},
		"status of the other family":    {`{spec: {poolRef: {name: p}}, status: {allocatedAddress: "2001:db8::1/128"}}`, []string{"2001:db8::1/128"}, true},
		"spec before status":            {`{spec: {address: 10.0.0.1}, status: {allocatedAddress: 10.0.0.2/32}}`, []string{"10.0.0.1/32"}, true},
		"unreadable":                    {`{spec: {address: nonsense}}`, []string{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := vipOf(t, tc.vip)
			if diff := cmp.Diff(tc.want, texts(ConvertClaim(v).Ranges)); diff != "" {
				t.Error(diff)
			}
			if got := FindAddresses(v).IsComplete(v); got != tc.all {
				t.Errorf("all it is to have: %v, want %v", got, tc.all)
			}
		})
	}
}

// What an update may do: fill stands for what is put back, asks for whether the ledger is
// asked, faults for what is refused.
func TestUpdatesOfAVIPThatHasItsAddresses(t *testing.T) {
	const four, dual = `{spec: {poolRef: {name: p}, address: 10.0.0.1/32}}`, `{spec: {addressFamily: dual, poolRef: {name: p}, address: 10.0.0.1/32, ipv6Address: "2001:db8::1/128"}}`
	for name, tc := range map[string]struct {
		old, updated string
		restored     map[string]string
		asks         bool
		faults       []string
	}{
		"nothing changes":          {four, four, map[string]string{}, false, nil},
		"the address left out":     {four, `{spec: {poolRef: {name: p}}}`, map[string]string{"address": "10.0.0.1/32"}, false, nil},
		"written otherwise":        {four, `{spec: {poolRef: {name: p}, address: 10.0.0.1}}`, map[string]string{}, false, nil},
		"another address":          {four, `{spec: {poolRef: {name: p}, address: 10.0.0.2/32}}`, map[string]string{}, true, nil},
		"the pool left":            {four, `{spec: {}}`, map[string]string{"address": "10.0.0.1/32"}, false, nil},
		"another pool":             {four, `{spec: {poolRef: {name: q}}}`, map[string]string{"address": "10.0.0.1/32"}, false, []string{"spec.poolRef"}},
		"a family more":            {four, `{spec: {addressFamily: dual, poolRef: {name: p}}}`, map[string]string{"address": "10.0.0.1/32"}, true, nil},
		"a family less":            {dual, `{spec: {poolRef: {name: p}}}`, map[string]string{"address": "10.0.0.1/32"}, false, nil},
		"the other family":         {four, `{spec: {addressFamily: ipv6, poolRef: {name: p}}}`, map[string]string{}, true, nil},
		"both left out":            {dual, `{spec: {addressFamily: dual, poolRef: {name: p}}}`, map[string]string{"address": "10.0.0.1/32", "ipv6Address": "2001:db8::1/128"}, false, nil},
		"status alone, unanswered": {`{spec: {poolRef: {name: p}}, status: {allocatedAddress: 10.0.0.1/32}}`, `{spec: {poolRef: {name: p}}}`, map[string]string{}, false, nil},
		"status alone, adopted":    {`{spec: {poolRef: {name: p}}, status: {allocatedAddress: "2001:db8::1/128"}}`, `{spec: {poolRef: {name: p}, address: "2001:db8::1/128"}}`, map[string]string{}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			old, updated := vipOf(t, tc.old), vipOf(t, tc.updated)
			if diff := cmp.Diff(tc.restored, changedBy(updated, func() { RestoreSpec(old, updated) })); diff != "" {
				t.Errorf("put back (-want +got):\n%s", diff)
			}
			if got := ChangesAddresses(old, updated); got != tc.asks {
				t.Errorf("asks the ledger: %v, want %v", got, tc.asks)
			}
			if diff := cmp.Diff(tc.faults, paths(ValidateProxyVIPUpdate(old, updated))); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFitFamily(t *testing.T) {
	const (
		auto   = `metadata: {annotations: {butler.butlerlabs.dev/origin: auto}}`
		dual   = `{` + auto + `, spec: {addressFamily: dual, address: 10.0.0.1/32, ipv6Address: "2001:db8::1/128"}}`
		four   = `{` + auto + `, spec: {address: 10.0.0.1/32}}`
		six    = `{` + auto + `, spec: {addressFamily: ipv6, address: "2001:db8::1/128"}}`
		pinned = `{metadata: {annotations: {butler.butlerlabs.dev/origin: pinned}}, spec: {addressFamily: dual, address: 10.0.0.1/32, ipv6Address: "2001:db8::1/128"}}`
		both   = `address: 10.0.0.1/32, ipv6Address: "2001:db8::1/128"`
	)
	type values = map[string]string
	half := func(origin, chosen string) string {
		return `{metadata: {annotations: {butler.butlerlabs.dev/origin: ` + origin + `, butler.butlerlabs.dev/chosen: "` + chosen + `"}}, spec: {addressFamily: dual, ` + both + `}}`
	}
	for name, tc := range map[string]struct {
		stored, updated string
		want            values
	}{
		"dual to ipv4":             {dual, `{spec: {addressFamily: ipv4, ` + both + `}}`, values{"ipv6Address": ""}},
		"dual to the default":      {dual, `{spec: {` + both + `}}`, values{"ipv6Address": ""}},
		"dual to ipv6":             {dual, `{spec: {addressFamily: ipv6, ` + both + `}}`, values{"address": ""}},
		"ipv4 to ipv6":             {four, `{spec: {addressFamily: ipv6, address: 10.0.0.1/32}}`, values{"address": ""}},
		"ipv4 to dual":             {four, `{spec: {addressFamily: dual, address: 10.0.0.1/32}}`, values{}},
		"ipv6 to dual":             {six, `{spec: {addressFamily: dual, address: "2001:db8::1/128"}}`, values{"address": "", "ipv6Address": "2001:db8::1/128"}},
		"ipv6 to ipv4":             {six, `{spec: {address: "2001:db8::1/128"}}`, values{"address": ""}},
		"same family":              {dual, `{spec: {addressFamily: dual, ` + both + `}}`, values{}},
		"another address written":  {dual, `{spec: {addressFamily: ipv4, address: 10.0.0.1/32, ipv6Address: "2001:db8::2/128"}}`, values{}},
		"left out already":         {dual, `{spec: {addressFamily: ipv4, address: 10.0.0.1/32}}`, values{}},
		"pinned":                   {pinned, `{spec: {addressFamily: ipv4, ` + both + `}}`, values{}},
		"IPv4 written":             {half("pinned", "2001:db8::1"), `{spec: {addressFamily: ipv6, ` + both + `}}`, values{}},
		"IPv6 chosen":              {half("pinned", "2001:db8::1"), `{spec: {addressFamily: ipv4, ` + both + `}}`, values{"ipv6Address": ""}},
		"IPv4 adopted from spec":   {half("adopted", "2001:db8::1"), `{spec: {addressFamily: ipv6, ` + both + `}}`, values{}},
		"IPv6 adopted from status": {half("adopted", "2001:db8::1"), `{spec: {addressFamily: ipv4, ` + both + `}}`, values{"ipv6Address": ""}},
		"another address chosen":   {half("pinned", "2001:db8::2"), `{spec: {addressFamily: ipv4, ` + both + `}}`, values{}},
		"not allocated":            {`{spec: {addressFamily: dual, ` + both + `}}`, `{spec: {addressFamily: ipv4, ` + both + `}}`, values{}},
		"in the applied manifest":  {dual, `{metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"ipv6Address":"2001:db8::1/128"}}'}}, spec: {` + both + `}}`, values{}},
		"manifest without address": {dual, `{metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"ipv6Address":""}}'}}, spec: {` + both + `}}`, values{"ipv6Address": ""}},
		"applied to the server": {dual, `{metadata: {managedFields: [{manager: flux, operation: Apply, fieldsV1: {"f:spec": {"f:ipv6Address": {}}}}]}, spec: {` + both + `}}`,
			values{}},
		"owned by an update": {dual, `{metadata: {managedFields: [{manager: kubectl, operation: Update, fieldsV1: {"f:spec": {"f:ipv6Address": {}}}}]}, spec: {` + both + `}}`,
			values{"ipv6Address": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			stored, updated := vipOf(t, tc.stored), vipOf(t, tc.updated)
			if diff := cmp.Diff(tc.want, changedBy(updated, func() { FitFamily(stored, updated) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// origin and chosen are the annotations of the answer. Without a stored VIP the request
// is a create.
func TestSetOrigin(t *testing.T) {
	const (
		all    = `addressFamily: dual, address: 10.0.0.1/32, ipv6Address: "2001:db8::1/128"`
		auto   = `metadata: {annotations: {butler.butlerlabs.dev/origin: auto}}`
		pinned = `metadata: {annotations: {butler.butlerlabs.dev/origin: pinned}}`
		six    = "2001:db8::1"
	)
	for name, tc := range map[string]struct {
		stored, requested, origin string
		wantOrigin, wantChosen    string
	}{
		"both chosen":                        {"", `{spec: {addressFamily: dual}}`, "auto", "auto", ""},
		"both written":                       {"", `{spec: {` + all + `}}`, "pinned", "pinned", ""},
		"one written":                        {"", `{spec: {addressFamily: dual, address: 10.0.0.1}}`, "auto", "pinned", six},
		"no answer":                          {"", `{spec: {addressFamily: dual, address: 10.0.0.1}}`, "", "", ""},
		"one chosen, widened":                {`{` + auto + `, spec: {address: 10.0.0.1/32}}`, `{spec: {addressFamily: dual, address: 10.0.0.1/32}}`, "auto", "auto", ""},
		"one written, widened":               {`{` + pinned + `, spec: {address: 10.0.0.1/32}}`, `{spec: {addressFamily: dual, address: 10.0.0.1/32}}`, "auto", "pinned", six},
		"both chosen, one changed":           {`{` + auto + `, spec: {addressFamily: dual, address: 10.0.0.2/32, ipv6Address: "2001:db8::1/128"}}`, `{spec: {` + all + `}}`, "pinned", "pinned", six},
		"no pool before, one written":        {`{spec: {addressFamily: dual, address: 10.0.0.1/32}}`, `{spec: {addressFamily: dual, address: 10.0.0.1/32}}`, "auto", "pinned", six},
		"adopted from spec":                  {`{spec: {` + all + `}}`, `{spec: {` + all + `}}`, "adopted", "adopted", ""},
		"adopted from status":                {`{spec: {addressFamily: ipv6}, status: {allocatedAddress: "2001:db8::1/128"}}`, `{spec: {addressFamily: ipv6}, status: {allocatedAddress: "2001:db8::1/128"}}`, "adopted", "adopted", six},
		"pinned after an allocator's choice": {`{` + auto + `, spec: {address: 10.0.0.2/32}}`, `{spec: {address: 10.0.0.1}}`, "pinned", "pinned", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stored *v1alpha1.ProxyVIP
			if tc.stored != "" {
				stored = vipOf(t, tc.stored)
			}
			requested := vipOf(t, tc.requested)
			answered := requested.DeepCopy()
			answered.Annotations = map[string]string{butlerv1.AnnotationChosen: "stale"}
			if tc.origin != "" {
				answered.Annotations[butlerv1.AnnotationOrigin] = tc.origin
			}
			var granted []allocator.Range
			for _, q := range BuildRequests(requested) {
				if free := (map[int]string{32: "10.0.0.1", 128: six})[q.Bits]; free != "" {
					a := netip.MustParseAddr(free)
					granted = append(granted, allocator.Range{First: a, Last: a})
				}
			}
			FillSpec(answered, granted)
			SetOrigin(stored, answered, BuildRequests(requested))
			if got := answered.Annotations[butlerv1.AnnotationOrigin]; got != tc.wantOrigin {
				t.Errorf("origin %q, want %q", got, tc.wantOrigin)
			}
			if got := answered.Annotations[butlerv1.AnnotationChosen]; got != tc.wantChosen {
				t.Errorf("chosen %q, want %q", got, tc.wantChosen)
			}
		})
	}
}

// changedBy returns the address fields of a VIP's spec that change changes: field -> new
// value.
func changedBy(v *v1alpha1.ProxyVIP, change func()) map[string]string {
	before, changed := v.DeepCopy(), map[string]string{}
	change()
	if v.Spec.Address != before.Spec.Address {
		changed["address"] = v.Spec.Address
	}
	if v.Spec.IPv6Address != before.Spec.IPv6Address {
		changed["ipv6Address"] = v.Spec.IPv6Address
	}
	return changed
}

func paths(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Field)
	}
	return all
}
