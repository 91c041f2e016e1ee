package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func addresses(first, last string) allocator.Range {
	return allocator.Range{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}
}

func TestRefusalsSayWhatIsWrongAndWhatToDo(t *testing.T) {
	const namespace = "team-a"
	pool := butler.NetworkPoolKey(namespace, "vlan40")
	held := addresses("10.0.0.0", "10.0.0.3")
	until := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	in := func(err error) error { return &ledger.PoolError{Pool: pool, Err: err} }

	for name, tc := range map[string]struct {
		err         error
		wantCode    int32
		wantReason  metav1.StatusReason
		wantMessage string
		wantCauses  []metav1.StatusCause
		wantRetry   int32
	}{
		"a field that breaks a rule": {
			err:         invalid{field.Required(field.NewPath("spec", "type"), "say which")},
			wantCode:    http.StatusUnprocessableEntity,
			wantReason:  metav1.StatusReasonInvalid,
			wantMessage: `IPAllocation.butler.butlerlabs.dev "web" is invalid: spec.type: Required value: say which`,
			wantCauses:  []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueRequired, Field: "spec.type", Message: "Required value: say which"}},
		},
		"a range outside the pool": {
			err:        in(&allocator.OutsideError{Range: held, Window: []allocator.Range{addresses("10.1.0.0", "10.1.0.9")}}),
			wantCode:   http.StatusUnprocessableEntity,
			wantReason: metav1.StatusReasonInvalid,
			wantMessage: `IPAllocation.butler.butlerlabs.dev "web" is invalid: spec.pinnedRange: Invalid value: ` +
				`pool team-a/vlan40: 10.0.0.0-10.0.0.3 is outside the pool: it must lie inside one of 10.1.0.0-10.1.0.9`,
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.pinnedRange", Message: "Invalid value: " +
				"pool team-a/vlan40: 10.0.0.0-10.0.0.3 is outside the pool: it must lie inside one of 10.1.0.0-10.1.0.9"}},
		},
		"a range that is reserved": {
			err:        in(&allocator.BlockedError{Range: held}),
			wantCode:   http.StatusUnprocessableEntity,
			wantReason: metav1.StatusReasonInvalid,
			wantMessage: `IPAllocation.butler.butlerlabs.dev "web" is invalid: spec.pinnedRange: Invalid value: ` +
				`pool team-a/vlan40: 10.0.0.0-10.0.0.3 is reserved: choose a range outside it`,
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.pinnedRange", Message: "Invalid value: " +
				"pool team-a/vlan40: 10.0.0.0-10.0.0.3 is reserved: choose a range outside it"}},
		},
		"what the pool keeps for the claim and cannot give": {
			err:        fmt.Errorf("%w: the pool keeps %q for a claim of this name, which is in none of its entries", metal3.FailureOutside, "10.0.0.3"),
			wantCode:   http.StatusUnprocessableEntity,
			wantReason: metav1.StatusReasonInvalid,
			wantMessage: `IPAllocation.butler.butlerlabs.dev "web" is invalid: metadata.name: Invalid value: Pre-allocated IP out of bounds: ` +
				`the pool keeps "10.0.0.3" for a claim of this name, which is in none of its entries: take another name, or have the pool's spec.preAllocations corrected`,
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.name", Message: "Invalid value: Pre-allocated IP out of bounds: " +
				`the pool keeps "10.0.0.3" for a claim of this name, which is in none of its entries: take another name, or have the pool's spec.preAllocations corrected`}},
		},
		"an exhausted pool": {
			err:        in(&allocator.ExhaustedError{Requested: 9, Available: 7, Largest: 4}),
			wantCode:   http.StatusForbidden,
			wantReason: metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 9 addresses requested, 7 free, largest free block 4: " +
				"ask for fewer, release some or enlarge the pool",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.count", Message: "pool team-a/vlan40: " +
				"9 addresses requested, 7 free, largest free block 4: ask for fewer, release some or enlarge the pool"}},
		},
		"an exhausted pool of which some rests": {
			err:        &ledger.PoolError{Pool: pool, Err: &allocator.ExhaustedError{Requested: 9, Available: 7, Largest: 4}, Until: until},
			wantCode:   http.StatusForbidden,
			wantReason: metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 9 addresses requested, 7 free, largest free block 4: ask for fewer, release some or enlarge the pool, " +
				"or wait: what was released rests, the first of it until 2026-05-04T03:02:01Z",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.count", Message: "pool team-a/vlan40: " +
				"9 addresses requested, 7 free, largest free block 4: ask for fewer, release some or enlarge the pool, " +
				"or wait: what was released rests, the first of it until 2026-05-04T03:02:01Z"}},
		},
		"a range that a neighbour holds": {
			err:         in(&ledger.HeldError{Range: held, Holder: butler.IPAllocationKey(namespace, "db")}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held by ipallocations/db: ask for another range, or have the holder deleted first",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held by ipallocations/db: ask for another range, or have the holder deleted first"},
				{Type: v1alpha1.CauseOwner, Message: "ipallocations.butler.butlerlabs.dev/team-a/db"}},
		},
		"a range that a stranger holds": {
			err:         in(&ledger.HeldError{Range: held, Holder: butler.IPAllocationKey("team-b", "secret")}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held in another namespace: ask for another range, or have the holder deleted first",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held in another namespace: ask for another range, or have the holder deleted first"}},
		},
		"a range that a create under way has": {
			err:         in(&ledger.HeldError{Range: held, Holder: butler.IPAllocationKey(namespace, ""), Promised: true}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held by a create that is under way: ask for another range, or try again in two minutes: what a create that failed was promised is free by then",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held by a create that is under way: ask for another range, or try again in two minutes: what a create that failed was promised is free by then"}},
		},
		"a range that a create of a name has": {
			err:         in(&ledger.HeldError{Range: held, Holder: butler.IPAllocationKey(namespace, "db"), Promised: true}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held by ipallocations/db, whose create is under way or has failed: ask for another range, or try again in two minutes: what a create that failed was promised is free by then",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is held by ipallocations/db, whose create is under way or has failed: ask for another range, or try again in two minutes: what a create that failed was promised is free by then"}},
		},
		"a range that rests": {
			err:         in(&ledger.HeldError{Range: held, Until: until}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 was released and rests until 2026-05-04T03:02:01Z: wait, or ask for another range",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 was released and rests until 2026-05-04T03:02:01Z: wait, or ask for another range"}},
		},
		"a range that a change under way takes away": {
			err:        in(&ledger.HeldError{Range: held, Holder: pool, Withheld: true, Until: until}),
			wantCode:   http.StatusForbidden,
			wantReason: metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is withheld, as an update of pool team-a/vlan40 that removes it was admitted and is not observed yet: " +
				"if the update is not stored, it is free again at 2026-05-04T03:02:01Z: ask for another range, or try again then",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is withheld, as an update of pool team-a/vlan40 that removes it was admitted and is not observed yet: " +
					"if the update is not stored, it is free again at 2026-05-04T03:02:01Z: ask for another range, or try again then"}},
		},
		"a pool that is going": {
			err:         &ledger.PoolDeletingError{Pool: pool},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40 is being deleted and gives out no more addresses: use another pool",
		},
		"a pool that breaks a rule": {
			err:         &ledger.FaultyPoolError{Pool: pool, Fault: "spec.cidr: no"},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40 breaks a rule and gives out no addresses until it is corrected: spec.cidr: no",
		},
		"a pool change that takes away what a neighbour holds": {
			err:         &ledger.InUseError{Pool: pool, What: "would become reserved", Else: "leave it out of what is reserved", Range: held, Holder: butler.IPAllocationKey(namespace, "db")},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 would become reserved while it is held by ipallocations/db: delete the holder first, or leave it out of what is reserved",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec", Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 " +
				"would become reserved while it is held by ipallocations/db: delete the holder first, or leave it out of what is reserved"}},
		},
		"a pool change that takes away what a stranger holds": {
			err:         &ledger.InUseError{Pool: pool, What: "would become reserved", Else: "leave it out of what is reserved", Range: held, Holder: butler.IPAllocationKey("team-b", "secret")},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 would become reserved while it is held in another namespace: delete the holder first, or leave it out of what is reserved",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec", Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 " +
				"would become reserved while it is held in another namespace: delete the holder first, or leave it out of what is reserved"}},
		},
		"a pool in use that is deleted": {
			err:         &poolInUse{pool: pool, holders: map[string]int{"ipallocations.butler.butlerlabs.dev": 3, "ipaddressclaims.ipam.cluster.x-k8s.io": 1}},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40 cannot be deleted while 1 ipaddressclaim and 3 ipallocations hold addresses of it: delete them first, see kubectl get ipaddressclaims.ipam.cluster.x-k8s.io,ipallocations.butler.butlerlabs.dev -n team-a",
		},
		"a pool that is gone": {
			err:         &ledger.NoPoolError{Pool: pool},
			wantCode:    http.StatusNotFound,
			wantReason:  metav1.StatusReasonNotFound,
			wantMessage: "pool team-a/vlan40 does not exist",
		},
		"an answer that somebody changed": {
			err:         fmt.Errorf("range 10.0.0.0: %w", ledger.ErrForged),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "range 10.0.0.0: range and token are not those of an open grant",
		},
		"a full journal": {
			err:         &ledger.NotServingError{Reason: "the journal is full of open grants", RetryAfter: 1100 * time.Millisecond, Here: true},
			wantCode:    http.StatusServiceUnavailable,
			wantReason:  metav1.StatusReasonServiceUnavailable,
			wantMessage: "cannot allocate now: the journal is full of open grants: try again",
			wantRetry:   2,
		},
		"a replica without the journal": {
			err:         &ledger.NotServingError{Reason: "this replica does not hold the journal"},
			wantCode:    http.StatusServiceUnavailable,
			wantReason:  metav1.StatusReasonServiceUnavailable,
			wantMessage: "cannot allocate now: this replica does not hold the journal: try again",
			wantRetry:   1,
		},
		"a request for another webhook": {
			err:         badRequest("wrong kind"),
			wantCode:    http.StatusBadRequest,
			wantReason:  metav1.StatusReasonBadRequest,
			wantMessage: "wrong kind",
		},
		"a bug": {
			err:         errors.New("unheard of"),
			wantCode:    http.StatusInternalServerError,
			wantReason:  metav1.StatusReasonInternalError,
			wantMessage: "unheard of",
		},
	} {
		t.Run(name, func(t *testing.T) {
			req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: "web", Namespace: namespace}}
			got := statusOf(tc.err, ipAllocations{}.subject(), req)
			want := &metav1.Status{
				Status: metav1.StatusFailure, Code: tc.wantCode, Reason: tc.wantReason, Message: tc.wantMessage,
				Details: &metav1.StatusDetails{
					Name: "web", Group: "butler.butlerlabs.dev", Kind: "IPAllocation", Causes: tc.wantCauses, RetryAfterSeconds: tc.wantRetry,
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// What a user wrote may have megabytes, and every answer is kept, logged and sent on.
func TestRefusalsAreShortWhateverTheyQuote(t *testing.T) {
	const longest = 8 << 10
	large := strings.Repeat("x", 1<<20)
	path := field.NewPath("metadata", "annotations").Key(large)
	type mode string
	for name, err := range map[string]error{
		"a value of its own type":    invalid{field.NotSupported(path, mode(large), []mode{"a"})},
		"the value of a field":       invalid{field.Invalid(path, large, "must be short")},
		"a rule that quotes":         invalid{field.Forbidden(path, "it is "+large)},
		"a value that is not served": invalid{field.NotSupported(path, large, []string{"a"})},
		"a pool":                     &ledger.NoPoolError{Pool: butler.NetworkPoolKey("team-a", large)},
		"a refusal with a cause":     &ledger.PoolError{Pool: butler.NetworkPoolKey("team-a", large), Err: &allocator.ExhaustedError{}},
		"a bug":                      errors.New(large),
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(err, ipAllocations{}.subject(), &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: large, Namespace: "team-a"}})
			if text, _ := json.Marshal(status); len(text) > longest {
				t.Errorf("the answer has %d bytes, want no more than %d: %.200s", len(text), longest, text)
			}
			if status.Message == "" || !utf8.ValidString(status.Message) {
				t.Errorf("the message is %q", status.Message)
			}
		})
	}
}
