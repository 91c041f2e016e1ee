package review

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func addresses(first, last string) allocator.Range {
	return allocator.Range{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}
}

func TestStatus_NamesCauseAndRemedy(t *testing.T) {
	const namespace = "team-a"
	pool := butler.NetworkPoolKey(namespace, "vlan40")
	owned := addresses("10.0.0.0", "10.0.0.3")
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
			err:         InvalidError{field.Required(field.NewPath("spec", "type"), "say which")},
			wantCode:    http.StatusUnprocessableEntity,
			wantReason:  metav1.StatusReasonInvalid,
			wantMessage: `IPAllocation.butler.butlerlabs.dev "web" is invalid: spec.type: Required value: say which`,
			wantCauses:  []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueRequired, Field: "spec.type", Message: "Required value: say which"}},
		},
		"a range outside the pool": {
			err:        in(&allocator.OutsideError{Range: owned, Window: []allocator.Range{addresses("10.1.0.0", "10.1.0.9")}}),
			wantCode:   http.StatusUnprocessableEntity,
			wantReason: metav1.StatusReasonInvalid,
			wantMessage: `IPAllocation.butler.butlerlabs.dev "web" is invalid: spec.pinnedRange: Invalid value: ` +
				`pool team-a/vlan40: 10.0.0.0-10.0.0.3 is outside the pool: it must lie inside one of 10.1.0.0-10.1.0.9`,
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.pinnedRange", Message: "Invalid value: " +
				"pool team-a/vlan40: 10.0.0.0-10.0.0.3 is outside the pool: it must lie inside one of 10.1.0.0-10.1.0.9"}},
		},
		"a range that is reserved": {
			err:        in(&allocator.BlockedError{Range: owned}),
			wantCode:   http.StatusUnprocessableEntity,
			wantReason: metav1.StatusReasonInvalid,
			wantMessage: `IPAllocation.butler.butlerlabs.dev "web" is invalid: spec.pinnedRange: Invalid value: ` +
				`pool team-a/vlan40: 10.0.0.0-10.0.0.3 is reserved: choose a range outside it`,
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.pinnedRange", Message: "Invalid value: " +
				"pool team-a/vlan40: 10.0.0.0-10.0.0.3 is reserved: choose a range outside it"}},
		},
		"what the pool keeps for the claim and cannot give": {
			err:        fmt.Errorf("%w: the pool keeps %q for a claim of this name, which is in none of its entries", annotated.FailureOutside, "10.0.0.3"),
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
			wantMessage: "pool exhausted: pool team-a/vlan40: 9 addresses requested, 7 free, largest free block 4: " +
				"ask for fewer, release some or enlarge the pool",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.count", Message: "pool exhausted: pool team-a/vlan40: " +
				"9 addresses requested, 7 free, largest free block 4: ask for fewer, release some or enlarge the pool"}},
		},
		"an exhausted pool with addresses in cooldown": {
			err:        &ledger.PoolError{Pool: pool, Err: &allocator.ExhaustedError{Requested: 9, Available: 7, Largest: 4}, Until: until},
			wantCode:   http.StatusForbidden,
			wantReason: metav1.StatusReasonForbidden,
			wantMessage: "pool exhausted: pool team-a/vlan40: 9 addresses requested, 7 free, largest free block 4: ask for fewer, release some or enlarge the pool, " +
				"or wait: released addresses are in cooldown, the first of them until 2026-05-04T03:02:01Z",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.count", Message: "pool exhausted: pool team-a/vlan40: " +
				"9 addresses requested, 7 free, largest free block 4: ask for fewer, release some or enlarge the pool, " +
				"or wait: released addresses are in cooldown, the first of them until 2026-05-04T03:02:01Z"}},
		},
		"a range that a neighbour holds": {
			err:         in(&ledger.OwnedError{Range: owned, Owner: butler.IPAllocationKey(namespace, "db")}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned by ipallocations/db: ask for another range, or have the owner deleted first",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned by ipallocations/db: ask for another range, or have the owner deleted first"},
				{Type: v1alpha1.CauseOwner, Message: "ipallocations.butler.butlerlabs.dev/team-a/db"}},
		},
		"a range that a stranger holds": {
			err:         in(&ledger.OwnedError{Range: owned, Owner: butler.IPAllocationKey("team-b", "secret")}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned in another namespace: ask for another range, or have the owner deleted first",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned in another namespace: ask for another range, or have the owner deleted first"}},
		},
		"a range that a create under way has": {
			err:         in(&ledger.OwnedError{Range: owned, Owner: butler.IPAllocationKey(namespace, ""), Promised: true}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned by a create that is in flight: ask for another range, or try again in two minutes: a grant of a failed create has ended by then",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned by a create that is in flight: ask for another range, or try again in two minutes: a grant of a failed create has ended by then"},
				{Type: v1alpha1.CauseTransient, Message: "10.0.0.0-10.0.0.3"}},
		},
		"a range that a create of a name has": {
			err:         in(&ledger.OwnedError{Range: owned, Owner: butler.IPAllocationKey(namespace, "db"), Promised: true}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned by ipallocations/db, whose create is in flight or has failed: ask for another range, or try again in two minutes: a grant of a failed create has ended by then",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is owned by ipallocations/db, whose create is in flight or has failed: ask for another range, or try again in two minutes: a grant of a failed create has ended by then"},
				{Type: v1alpha1.CauseTransient, Message: "10.0.0.0-10.0.0.3"}},
		},
		"a range in cooldown": {
			err:         in(&ledger.OwnedError{Range: owned, Until: until}),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 was released and is in cooldown until 2026-05-04T03:02:01Z: wait, or ask for another range",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 was released and is in cooldown until 2026-05-04T03:02:01Z: wait, or ask for another range"}},
		},
		"a range that a change under way takes away": {
			err:        in(&ledger.OwnedError{Range: owned, Owner: pool, Withheld: true, Until: until}),
			wantCode:   http.StatusForbidden,
			wantReason: metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is withheld, as an update of pool team-a/vlan40 that removes it was admitted and is not observed yet: " +
				"if the update is not stored, it is free again at 2026-05-04T03:02:01Z: ask for another range, or try again later",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec.pinnedRange",
				Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 is withheld, as an update of pool team-a/vlan40 that removes it was admitted and is not observed yet: " +
					"if the update is not stored, it is free again at 2026-05-04T03:02:01Z: ask for another range, or try again later"},
				{Type: v1alpha1.CauseTransient, Message: "10.0.0.0-10.0.0.3"}},
		},
		"a pool that is going": {
			err:         &ledger.PoolDeletingError{Pool: pool},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40 is being deleted and allocates no more addresses: use another pool",
		},
		"a pool that breaks a rule": {
			err:         &ledger.FaultyPoolError{Pool: pool, Fault: "spec.cidr: no"},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40 breaks a rule and allocates no addresses until it is corrected: spec.cidr: no",
		},
		"a pool change that takes away what a neighbour holds": {
			err:         &ledger.InUseError{Pool: pool, What: "would become reserved", Else: "leave the range out of the reserved ranges", Range: owned, Owner: butler.IPAllocationKey(namespace, "db")},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 would become reserved while it is owned by ipallocations/db: delete the owner first, or leave the range out of the reserved ranges",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec", Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 " +
				"would become reserved while it is owned by ipallocations/db: delete the owner first, or leave the range out of the reserved ranges"}},
		},
		"a pool change that takes away what a stranger holds": {
			err:         &ledger.InUseError{Pool: pool, What: "would become reserved", Else: "leave the range out of the reserved ranges", Range: owned, Owner: butler.IPAllocationKey("team-b", "secret")},
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 would become reserved while it is owned in another namespace: delete the owner first, or leave the range out of the reserved ranges",
			wantCauses: []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: "spec", Message: "pool team-a/vlan40: 10.0.0.0-10.0.0.3 " +
				"would become reserved while it is owned in another namespace: delete the owner first, or leave the range out of the reserved ranges"}},
		},
		"a pool in use that is deleted": {
			err:         fmt.Errorf("pool team-a/vlan40 cannot be deleted: %w", ErrInUse),
			wantCode:    http.StatusForbidden,
			wantReason:  metav1.StatusReasonForbidden,
			wantMessage: "pool team-a/vlan40 cannot be deleted: in use",
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
			err:         &ledger.NotServingError{Reason: "the journal is full of open grants", RetryAfter: 1100 * time.Millisecond, NoOtherReplica: true},
			wantCode:    http.StatusServiceUnavailable,
			wantReason:  metav1.StatusReasonServiceUnavailable,
			wantMessage: "cannot allocate now: the journal is full of open grants: try again",
			wantRetry:   2,
		},
		"a replica without the journal": {
			err:         &ledger.NotServingError{Reason: "this replica does not lead"},
			wantCode:    http.StatusServiceUnavailable,
			wantReason:  metav1.StatusReasonServiceUnavailable,
			wantMessage: "cannot allocate now: this replica does not lead: try again",
			wantRetry:   1,
		},
		"a name that is taken": {
			err:         &ExistsError{},
			wantCode:    http.StatusConflict,
			wantReason:  metav1.StatusReasonAlreadyExists,
			wantMessage: `ipallocations.butler.butlerlabs.dev "web" already exists`,
		},
		"a name that is taken by an object that is being deleted": {
			err:         &ExistsError{Deleting: true},
			wantCode:    http.StatusConflict,
			wantReason:  metav1.StatusReasonAlreadyExists,
			wantMessage: `object is being deleted: ipallocations.butler.butlerlabs.dev "web" already exists`,
		},
		"a request for another webhook": {
			err:         BadRequestError("wrong kind"),
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
			req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: "web", Namespace: namespace, Resource: metav1.GroupVersionResource{Group: "butler.butlerlabs.dev", Resource: "ipallocations"}}}
			got := statusOf(tc.err, claims, req)
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
func TestStatus_IsShortForLongQuotes(t *testing.T) {
	const longest = 8 << 10
	large := strings.Repeat("x", 1<<20)
	path := field.NewPath("metadata", "annotations").Key(large)
	type mode string
	for name, err := range map[string]error{
		"a value of its own type":    InvalidError{field.NotSupported(path, mode(large), []mode{"a"})},
		"the value of a field":       InvalidError{field.Invalid(path, large, "must be short")},
		"a rule that quotes":         InvalidError{field.Forbidden(path, "it is "+large)},
		"a value that is not served": InvalidError{field.NotSupported(path, large, []string{"a"})},
		"a pool":                     &ledger.NoPoolError{Pool: butler.NetworkPoolKey("team-a", large)},
		"a refusal with a cause":     &ledger.PoolError{Pool: butler.NetworkPoolKey("team-a", large), Err: &allocator.ExhaustedError{}},
		"a bug":                      errors.New(large),
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(err, claims, &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: large, Namespace: "team-a"}})
			if text, _ := json.Marshal(status); len(text) > longest {
				t.Errorf("the answer has %d bytes, want no more than %d: %.200s", len(text), longest, text)
			}
			if status.Message == "" || !utf8.ValidString(status.Message) {
				t.Errorf("the message is %q", status.Message)
			}
		})
	}
}

func TestStatus_ListsFaultsUpToABound(t *testing.T) {
	faults := make(InvalidError, 4096)
	for i := range faults {
		faults[i] = field.Invalid(field.NewPath("metadata", "finalizers").Index(i), "", "must be non-empty")
	}
	status := statusOf(faults, claims, &admission.Request{})
	if text, _ := json.Marshal(status); len(status.Details.Causes) != maxFaults || len(text) > 64<<10 {
		t.Errorf("the answer has %d bytes and %d causes", len(text), len(status.Details.Causes))
	}
}

func TestStatus_NamesNoPoolOfAnotherNamespaceToAService(t *testing.T) {
	at := addresses("10.0.0.5", "10.0.0.5")
	vips := Subject{
		Kind:      schema.GroupVersionKind{Group: "novaedge.io", Version: "v1alpha1", Kind: "ProxyVIP"},
		ExactPath: func(allocator.Range) *field.Path { return field.NewPath("spec", "address") },
	}
	err := &ledger.PoolError{Pool: novaedge.ProxyIPPoolKey("shared"), By: butler.NetworkPoolKey("there", "prod"), Err: &allocator.BlockedError{Range: at}}
	for name, want := range map[string]string{
		"svc-here.web":  "in a pool of another namespace 10.0.0.5 is reserved",
		"svc-there.web": "in pool there/prod 10.0.0.5 is reserved",
		"gateway":       "in pool there/prod 10.0.0.5 is reserved",
	} {
		req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: name, Resource: metav1.GroupVersionResource{Group: "novaedge.io", Resource: "proxyvips"}}}
		if got := statusOf(err, vips, req); !strings.Contains(got.Message, want) || !strings.Contains(got.Details.Causes[0].Message, want) {
			t.Errorf("ProxyVIP %s: %+v, want it to contain %q", name, got, want)
		}
	}
}
