package review

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
)

// Hook is one webhook.
type Hook struct {
	Name    string // in metrics and logs
	Subject Subject
	// Func answers a request for an object of the subject's kind, without subresource. An error denies the request with the status of statusOf.
	Func HookFunc
}

// HookFunc answers an admission request.
type HookFunc func(context.Context, *admission.Request) (admission.Response, error)

// Subject is the kind of object of a webhook.
type Subject struct {
	Kind schema.GroupVersionKind
	// ExactPath is the field by which a claim requests a certain range, CountPath a number of addresses, FamilyPath an IP family; nil for other
	// objects.
	ExactPath             func(allocator.Range) *field.Path
	CountPath, FamilyPath *field.Path
	ClusterScoped         bool
}

// InvalidError lists the faults of an object.
type InvalidError field.ErrorList

func (e InvalidError) Error() string { return field.ErrorList(e).ToAggregate().Error() }

// BadRequestError is a request that a correctly configured API server never sends.
type BadRequestError string

func (e BadRequestError) Error() string { return string(e) }

// ErrInUse is wrapped by errors that deny the deletion of an object in use.
var ErrInUse = errors.New("in use")
