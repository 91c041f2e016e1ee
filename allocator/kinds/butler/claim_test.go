package butler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const pinned = `pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}`

func TestClaimHoldsTheRangeThatItsObjectStates(t *testing.T) {
	cases := map[string]struct {
		object     string
		wantRange  string
		wantSource butler.RangeSource
		wantErr    string
	}{
		"nothing yet": {
			object: `{spec: {count: 8}, status: {phase: Pending}}`,
		},
		"in spec": {
			object:    `{spec: {` + pinned + `}}`,
			wantRange: "10.40.0.100-10.40.0.109", wantSource: butler.RangeInSpec,
		},
		"in spec, not answered by us yet": {
			object:    `{spec: {` + pinned + `}, status: {phase: Pending}}`,
			wantRange: "10.40.0.100-10.40.0.109", wantSource: butler.RangeInSpec,
		},
		"in spec, whatever status says": {
			object:    `{spec: {` + pinned + `}, status: {phase: Allocated, startAddress: 10.40.0.1, endAddress: 10.40.0.2}}`,
			wantRange: "10.40.0.100-10.40.0.109", wantSource: butler.RangeInSpec,
		},
		"in the status of an earlier allocator's object": {
			object:    `{status: {phase: Allocated, startAddress: 10.40.0.1, endAddress: 10.40.0.2}}`,
			wantRange: "10.40.0.1-10.40.0.2", wantSource: butler.RangeInStatus,
		},
		"in the status of one that is going": {
			object:    `{status: {phase: Released, startAddress: 10.40.0.1, endAddress: 10.40.0.2}}`,
			wantRange: "10.40.0.1-10.40.0.2", wantSource: butler.RangeInStatus,
		},
		"IPv6 in a form of its own": {
			object:    `{spec: {pinnedRange: {startAddress: "2001:DB8::0001", endAddress: "2001:db8::f"}}}`,
			wantRange: "2001:db8::1-2001:db8::f", wantSource: butler.RangeInSpec,
		},
		"unreadable": {
			object:     `{spec: {pinnedRange: {startAddress: 10.40.0, endAddress: 10.40.0.109}}}`,
			wantSource: butler.RangeInSpec,
			wantErr:    `spec.pinnedRange.startAddress: Invalid value: "10.40.0": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
		},
		"reversed": {
			object:     `{spec: {pinnedRange: {startAddress: 10.40.0.109, endAddress: 10.40.0.100}}}`,
			wantSource: butler.RangeInSpec,
			wantErr:    `spec.pinnedRange: Invalid value: "10.40.0.109-10.40.0.100": range 10.40.0.109-10.40.0.100 is reversed, write the lower address first`,
		},
		"unreadable status": {
			object:     `{status: {phase: Allocated, startAddress: 10.40.0.1, endAddress: "?"}}`,
			wantSource: butler.RangeInStatus,
			wantErr:    `status.endAddress: Invalid value: "?": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := claimWith(t, tc.object)
			got, source, err := butler.FindRange(a)
			if source != tc.wantSource {
				t.Errorf("want source %d, got %d", tc.wantSource, source)
			}
			if text := message(err); text != tc.wantErr {
				t.Errorf("want error %q, got %q", tc.wantErr, text)
			}
			owned := butler.ConvertClaim(a).Ranges
			if tc.wantRange == "" {
				if got.IsValid() || len(owned) > 0 {
					t.Errorf("want no range, got %s, owned %v", got, owned)
				}
				return
			}
			if diff := cmp.Diff(ranges(t, tc.wantRange), owned, compareAddresses); diff != "" || got != owned[0] {
				t.Errorf("range %s, owned (-want +got):\n%s", got, diff)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestClaimTellsTheLedgerWhoItIs(t *testing.T) {
	token := journal.Token{1, 2, 3}
	a := claimWith(t, `{spec: {`+pinned+`}}`)
	a.UID, a.ResourceVersion = "a1b2", "815"
	a.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000, 0))
	a.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_001, 0)}
	a.Labels = map[string]string{"butler.butlerlabs.dev/routing-domain": "lab"}
	a.Annotations = map[string]string{"butler.butlerlabs.dev/grant": token.String()}
	a.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
	want := ledger.Claim{
		Key:             ledger.Key{Resource: "ipallocations.butler.butlerlabs.dev", Namespace: "butler-system", Name: "my-cluster-lb"},
		UID:             "a1b2",
		ResourceVersion: 815,
		Created:         a.CreationTimestamp.Time,
		Pool:            ledger.Key{Resource: "networkpools.butler.butlerlabs.dev", Namespace: "butler-system", Name: "vlan40-pool"},
		RoutingDomain:   "lab",
		Ranges:          ranges(t, "10.40.0.100-10.40.0.109"),
		Token:           token,
		Ready:           true,
		Deleting:        true,
	}
	if diff := cmp.Diff(want, butler.ConvertClaim(a), compareAddresses); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}

	a.Annotations["butler.butlerlabs.dev/grant"] = "not a token"
	a.Status.Conditions[0].Status = metav1.ConditionFalse
	want.Token, want.Ready = journal.Token{}, false
	if diff := cmp.Diff(want, butler.ConvertClaim(a), compareAddresses); diff != "" {
		t.Errorf("claim with a spoilt token (-want +got):\n%s", diff)
	}
}

func TestPinnedRangeAndCIDRTextWriteWhatIsRead(t *testing.T) {
	cases := map[string]struct {
		text     string
		want     v1alpha1.PinnedIPRange
		wantCIDR string
	}{
		"aligned":         {text: "10.40.0.80/29", want: v1alpha1.PinnedIPRange{StartAddress: "10.40.0.80", EndAddress: "10.40.0.87"}, wantCIDR: "10.40.0.80/29"},
		"one address":     {text: "10.40.0.80", want: v1alpha1.PinnedIPRange{StartAddress: "10.40.0.80", EndAddress: "10.40.0.80"}, wantCIDR: "10.40.0.80/32"},
		"not aligned":     {text: "10.40.0.81-10.40.0.88", want: v1alpha1.PinnedIPRange{StartAddress: "10.40.0.81", EndAddress: "10.40.0.88"}},
		"no power of two": {text: "10.40.0.64-10.40.0.68", want: v1alpha1.PinnedIPRange{StartAddress: "10.40.0.64", EndAddress: "10.40.0.68"}},
		"IPv6":            {text: "2001:db8::10/124", want: v1alpha1.PinnedIPRange{StartAddress: "2001:db8::10", EndAddress: "2001:db8::1f"}, wantCIDR: "2001:db8::10/124"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := ranges(t, tc.text)[0]
			if diff := cmp.Diff(&tc.want, butler.FormatPinnedRange(r)); diff != "" {
				t.Errorf("pinned range (-want +got):\n%s", diff)
			}
			if got := butler.FormatCIDR(r); got != tc.wantCIDR {
				t.Errorf("want cidr %q, got %q", tc.wantCIDR, got)
			}
		})
	}
}

func TestMissingLabelsLeavesWhatTheAuthorWrote(t *testing.T) {
	a := claimWith(t, `{metadata: {labels: {butler.butlerlabs.dev/team: backend-team, butler.butlerlabs.dev/tenant: ""}}}`)
	want := map[string]string{
		"butler.butlerlabs.dev/network-pool":    "vlan40-pool",
		"butler.butlerlabs.dev/allocation-type": "loadbalancer",
	}
	if diff := cmp.Diff(want, butler.FindMissingLabels(a, "")); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}

	a.Labels = nil
	want["butler.butlerlabs.dev/team"] = "team-backend"
	want["butler.butlerlabs.dev/tenant"] = "my-cluster"
	want["butler.butlerlabs.dev/routing-domain"] = "lab"
	if diff := cmp.Diff(want, butler.FindMissingLabels(a, "lab")); diff != "" {
		t.Errorf("labels in a routing domain (-want +got):\n%s", diff)
	}
}

func TestLabelValueOfALongNameIsAValidLabelOfItsOwn(t *testing.T) {
	fits := strings.Repeat("a", 63)
	if got := object.LabelValue(fits); got != fits {
		t.Errorf("a name of 63 characters became %q", got)
	}
	one, other := strings.Repeat("pool.", 50)+"one", strings.Repeat("pool.", 50)+"two"
	for _, name := range []string{one, other} {
		if faults := validation.IsValidLabelValue(object.LabelValue(name)); len(faults) > 0 {
			t.Errorf("%q: %v", object.LabelValue(name), faults)
		}
	}
	if object.LabelValue(one) == object.LabelValue(other) {
		t.Error("two names share a label value")
	}
	// Selectors rely on it: the value of a name never changes.
	if want, got := "pool.pool.pool.pool.pool.pool.pool.pool.pool.pool.po-3770ae4287", object.LabelValue(one); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}
