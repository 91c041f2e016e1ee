package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/historyrecord"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// version is one stored version of a ProxyVIP; the zero version is the deletion.
type version struct {
	address string
	granted bool   // the version carries a grant
	bound   string // address in the status, whose condition Bound is True
	flagged bool
}

func (v version) object(n int) client.Object {
	if v == (version{}) {
		return nil
	}
	vip := &novaedgev1.ProxyVIP{
		ObjectMeta: metav1.ObjectMeta{Name: "vip", UID: types.UID("uid"), ResourceVersion: fmt.Sprint(n + 1), Annotations: map[string]string{}},
		Spec:       novaedgev1.ProxyVIPSpec{Address: v.address, PoolRef: &novaedgev1.PoolReference{Name: "pool"}},
	}
	if v.granted {
		vip.Annotations[butlerv1.AnnotationGrant] = journal.Token{byte(n + 1)}.String()
	}
	condition := metav1.Condition{Type: novaedgev1.ConditionBound, Status: metav1.ConditionTrue, Reason: novaedgev1.ReasonAddressAllocated}
	if v.flagged {
		condition.Status, condition.Reason = metav1.ConditionFalse, novaedgev1.ReasonAddressConflict
	}
	if v.bound != "" {
		vip.Status.AllocatedAddress = v.bound
	}
	if v.bound != "" || v.flagged {
		vip.Status.Conditions = []metav1.Condition{condition}
	}
	return vip
}

// Whatever happens to a claim between two statuses: no address has an owner in the
// history after the claim has given the address up.
func TestObserve_BetweenStatuses(t *testing.T) {
	const a, b = "10.0.0.1", "10.0.0.2"
	boundA := version{address: a, granted: true, bound: a}
	gone := version{}
	for name, tt := range map[string]struct {
		versions []version
		want     []string
	}{
		"created and bound":           {[]version{{address: a, granted: true}, boundA, gone}, []string{"Allocated " + a, "Released " + a}},
		"deleted before its status":   {[]version{{address: a, granted: true}, gone}, []string{"Allocated " + a, "Released " + a}},
		"changed and deleted at once": {[]version{boundA, {address: b, granted: true, bound: a}, gone}, []string{"Allocated " + a, "Allocated " + b, "Released " + b}},
		"changed without a grant, as without webhooks": {
			[]version{{address: a, bound: a}, {address: b, bound: a}, gone}, []string{"Allocated " + a, "Released " + a},
		},
		"changed without a grant, and bound later": {
			[]version{{address: a, bound: a}, {address: b, bound: a}, {address: b, bound: b}, gone},
			[]string{"Allocated " + a, "Released " + a, "Allocated " + b, "Released " + b},
		},
		"status lost, and deleted":    {[]version{{address: a, bound: a}, {address: a}, gone}, []string{"Allocated " + a, "Released " + a}},
		"lost in a conflict":          {[]version{boundA, {address: a, granted: true, flagged: true}, gone}, []string{"Allocated " + a, "Released " + a}},
		"named, and never allocated":  {[]version{{address: a}, {address: b}, gone}, nil},
		"changed twice, then deleted": {[]version{boundA, {address: b, granted: true, bound: a}, {address: a, granted: true, bound: a}, gone}, []string{"Allocated " + a, "Allocated " + b, "Allocated " + a, "Released " + a}},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(logr.Discard(), time.Now)
			r.SetLedger(ledger.New(ledger.Config{}))
			convertVIP := func(o client.Object) ledger.Claim { return novaedge.ConvertClaim(o.(*novaedgev1.ProxyVIP)) }
			var before client.Object
			for n, v := range tt.versions {
				after := v.object(n)
				r.Observe(before, after, convertVIP)
				before = after
			}
			var got []string
			var records []historyrecord.Record
			for _, e := range r.kept {
				got = append(got, e.record.Event+" "+e.record.Ranges[0].String())
				records = append(records, e.record)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("recorded %q, want %q", got, tt.want)
			}
			for _, record := range records {
				for _, tenure := range historyrecord.NewHistory(records).Owners("", record.Ranges[0], historyrecord.Period{}) {
					if tenure.Until.IsZero() {
						t.Errorf("%s has an owner for ever", record.Ranges[0])
					}
				}
			}
		})
	}
}
