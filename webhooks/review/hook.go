package review

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
)

// Hook is one webhook.
type Hook struct {
	Name    string // in metrics and logs
	Subject Subject
	// Func answers a request for an object of the subject's kind, without subresource. An
	// error denies the request with the status of statusOf.
	Func HookFunc
}

// HookFunc answers an admission request.
type HookFunc func(context.Context, *admission.Request) (admission.Response, error)

// Subject is the kind of object of a webhook.
type Subject struct {
	Kind schema.GroupVersionKind
	// ExactPath is the field by which a claim requests a certain range, CountPath a
	// number of addresses, FamilyPath an IP family; nil for other objects.
	ExactPath             func(allocator.Range) *field.Path
	CountPath, FamilyPath *field.Path
	ClusterScoped         bool
}

// InvalidError lists the faults of an object.
type InvalidError field.ErrorList

func (e InvalidError) Error() string { return field.ErrorList(e).ToAggregate().Error() }

// ChangedError denies an object that differs from the answer of the allocator's mutating
// call. Is and Answered are values of the field; "" for an absent field.
type ChangedError struct {
	Field        *field.Path
	Is, Answered string
}

func (e *ChangedError) Error() string {
	text := func(value string) string {
		if value == "" {
			return "absent"
		}
		return fieldtext.Shorten(value)
	}
	return fmt.Sprintf("%s is %s, and the allocator answered %s: another webhook or client has changed the allocator's answer: find and correct that webhook or client",
		e.Field, text(e.Is), text(e.Answered))
}

// BadRequestError is a request that a correctly configured API server never sends.
type BadRequestError string

func (e BadRequestError) Error() string { return string(e) }

// ExistsError denies the create of an object whose name is taken, as the API server does.
type ExistsError struct {
	Deleting bool // the stored object is being deleted
}

func (e *ExistsError) Error() string {
	if e.Deleting {
		return "the object already exists, and is being deleted"
	}
	return "the object already exists"
}

// ErrInUse is wrapped by errors that deny the deletion of an object in use.
var ErrInUse = errors.New("in use")
