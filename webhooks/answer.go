package webhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// answer is the answer of a mutating call, with the fields of spec from which the answer
// follows. Webhooks of other programs that the API server calls later, and clients, may
// change all other fields of the object, and may not change these before the object is
// stored.
//
// An answer stays in the memory of the leader as long as the grant is open. After a
// take-over between the two calls there is no answer: the ranges, the pool, the routing
// domain and the token of the object are checked with the journal then, and the other
// fields are not.
type answer struct {
	spec                map[string]json.RawMessage // field -> value, without unreadFields
	labels, annotations map[string]string          // that the call wrote
	finalizers          []string                   // that the call wrote
}

// unreadFielder is implemented by adapters of kinds with fields of spec that neither
// decide about the addresses nor contain the addresses.
type unreadFielder interface {
	unreadFields() []string
}

// newAnswer returns the answer of a call that changed the fields of an object from before
// to after.
func newAnswer(before, after fields, unread []string) (*answer, error) {
	a := &answer{labels: written(before.labels, after.labels), annotations: written(before.annotations, after.annotations)}
	for _, name := range after.finalizers {
		if !slices.Contains(before.finalizers, name) {
			a.finalizers = append(a.finalizers, name)
		}
	}
	if after.err != nil {
		return nil, after.err
	}
	if err := json.Unmarshal(after.spec, &a.spec); err != nil {
		return nil, err
	}
	for _, name := range unread {
		delete(a.spec, name)
	}
	return a, nil
}

// written returns the entries of after that before lacks, or has with another value.
func written(before, after map[string]string) map[string]string {
	entries := map[string]string{}
	for key, value := range after {
		if was, present := before[key]; !present || was != value {
			entries[key] = value
		}
	}
	return entries
}

// check returns a *review.ChangedError for the first field of the answer that an object
// does not have.
func (a *answer) check(is fields, unread []string) error {
	spec, metadata := field.NewPath("spec"), field.NewPath("metadata")
	now, err := newAnswer(fields{}, is, unread)
	if err != nil {
		return err
	}
	names := slices.Compact(slices.Sorted(func(yield func(string) bool) {
		maps.Keys(a.spec)(yield)
		maps.Keys(now.spec)(yield)
	}))
	for _, name := range names {
		if !bytes.Equal(a.spec[name], now.spec[name]) {
			return &review.ChangedError{Field: spec.Child(name), Is: string(now.spec[name]), Answered: string(a.spec[name])}
		}
	}
	for _, part := range []struct {
		name          string
		answered, now map[string]string
	}{{"labels", a.labels, now.labels}, {"annotations", a.annotations, now.annotations}} {
		for _, key := range slices.Sorted(maps.Keys(part.answered)) {
			if part.now[key] != part.answered[key] {
				return &review.ChangedError{Field: metadata.Child(part.name).Key(key), Is: quote(part.now[key]), Answered: quote(part.answered[key])}
			}
		}
	}
	for _, name := range a.finalizers {
		if !slices.Contains(now.finalizers, name) {
			return &review.ChangedError{Field: metadata.Child("finalizers"), Is: quote(strings.Join(now.finalizers, ",")), Answered: quote(name)}
		}
	}
	return nil
}

// quote quotes a value; "" is an absent value.
func quote(value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf("%q", value)
}

func (k *ownerWebhooks[T]) unreadFields() []string {
	if adapter, some := k.ownerAdapter.(unreadFielder); some {
		return adapter.unreadFields()
	}
	return nil
}

// rememberAnswer keeps the answer of a call with the open grant whose token the answer
// contains.
func (k *ownerWebhooks[T]) rememberAnswer(before, after fields) error {
	token, err := journal.ParseToken(after.annotations[v1alpha1.AnnotationGrant])
	if err != nil || token.IsZero() {
		return nil // nothing is granted
	}
	a, err := newAnswer(before, after, k.unreadFields())
	if err == nil {
		k.ledger.RememberAnswer(token, a)
	}
	return err
}

// checkAnswer denies an object that differs from the answer of the mutating call.
// CheckGrant has been called before, so this replica leads.
func (k *ownerWebhooks[T]) checkAnswer(o T, token journal.Token) error {
	if a, known := k.ledger.Answer(token).(*answer); known {
		return a.check(k.recordFields(o), k.unreadFields())
	}
	return nil
}

// checkRestored denies an update of a claim with addresses that lacks what the mutating
// call restores.
func (k *claims[T]) checkRestored(stored, c T) error {
	again := c.DeepCopyObject().(T)
	k.adapter.restoreSpec(stored, again)
	setAnnotations(again, findAbsent(again, stored, v1alpha1.AnnotationGrant, v1alpha1.AnnotationOrigin))
	is := k.recordFields(c)
	a, err := newAnswer(is, k.recordFields(again), nil)
	if err != nil {
		return err
	}
	return a.check(is, nil)
}
