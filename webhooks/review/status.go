package review

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// statusOf converts an error to the API status of the response.
//
//	error                                     status                  note
//	a field breaks a rule                     422 Invalid             each fault with its field, as the API server's own
//	range outside the pool, or reserved       422 Invalid             on the requesting field: denied until the pool changes
//	exhausted, owned, pool faulty, pool       403 Forbidden           the object is valid; never 409, which clients repeat at once
//	being deleted or in use
//	differs from the grant                    403 Forbidden
//	update of a missing pool                  404 NotFound
//	create of a name that is taken            409 AlreadyExists       the API server's own status, see ExistsError
//	cannot serve now                          503 ServiceUnavailable  with retryAfterSeconds
//	object of the wrong kind                  400 BadRequest
//	any other error is a bug                  500 InternalError
//
// The denial of an owned address has a cause of type CauseOwner with the owner, for
// programs. An owner is named only within the namespace of the request; of other
// namespaces the status contains only that the address is owned. A cause of type
// CauseTransient means that the address may be free soon.
func statusOf(err error, s Subject, req *admission.Request) *metav1.Status {
	var (
		faults     InvalidError
		bad        BadRequestError
		notServing *ledger.NotServingError
		outside    *allocator.OutsideError
		blocked    *allocator.BlockedError
		exhausted  *allocator.ExhaustedError
		owned      *ledger.OwnedError
		inUse      *ledger.InUseError
		stranded   *ledger.StrandedError
		deleting   *ledger.PoolDeletingError
		faulty     *ledger.FaultyPoolError
		manual     *ledger.NotAutomaticError
		family     *ledger.FamilyError
		missing    *ledger.NoPoolError
		exists     *ExistsError
		unfit      object.UnfitError
		changed    *ChangedError
	)
	switch {
	case errors.As(err, &changed):
		return refusal(s, req, changed.Field, err.Error())
	case errors.As(err, &faults):
		return invalidStatus(s, req, field.ErrorList(faults))
	case errors.As(err, &outside):
		return invalidStatus(s, req, field.ErrorList{field.Invalid(s.ExactPath(outside.Range), field.OmitValueType{}, describe(err, PlaceOf(req)))})
	case errors.As(err, &blocked):
		return invalidStatus(s, req, field.ErrorList{field.Invalid(s.ExactPath(blocked.Range), field.OmitValueType{}, describe(err, PlaceOf(req)))})
	case errors.As(err, &manual):
		return invalidStatus(s, req, field.ErrorList{field.Required(s.ExactPath(allocator.Range{}), err.Error())})
	case errors.As(err, &family):
		return invalidStatus(s, req, field.ErrorList{field.Invalid(s.FamilyPath, field.OmitValueType{}, err.Error())})
	case errors.As(err, &exhausted):
		return refusal(s, req, s.CountPath, describe(err, PlaceOf(req)))
	case errors.As(err, &unfit) && !errors.As(err, &owned):
		at, remedy := unfit.Fault()
		return invalidStatus(s, req, field.ErrorList{field.Invalid(at, field.OmitValueType{}, err.Error()+": "+remedy)})
	case errors.As(err, &owned):
		status := refusal(s, req, s.ExactPath(owned.Range), ownedMessage(err, owned, PlaceOf(req)))
		if owner, known := owned.OwnerSeenFrom(PlaceOf(req)); known {
			status.Details.Causes = append(status.Details.Causes, ownerCause(owner))
		}
		if owned.Promised || owned.Withheld {
			status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: v1alpha1.CauseTransient, Message: owned.Range.String()})
		}
		return status
	case errors.As(err, &inUse):
		return refusal(s, req, field.NewPath("spec"), inUse.SeenFrom(PlaceOf(req)))
	case errors.As(err, &stranded):
		return refusal(s, req, nil, stranded.SeenFrom(PlaceOf(req)))
	case errors.As(err, &missing):
		return failure(s, req, http.StatusNotFound, metav1.StatusReasonNotFound, err.Error())
	case errors.As(err, &exists):
		message := fmt.Sprintf("%s.%s %q already exists", req.Resource.Resource, req.Resource.Group, fieldtext.Shorten(req.Name))
		if exists.Deleting {
			message = "object is being deleted: " + message
		}
		return failure(s, req, http.StatusConflict, metav1.StatusReasonAlreadyExists, message)
	case errors.As(err, &deleting), errors.As(err, &faulty), errors.Is(err, ErrInUse), errors.Is(err, ledger.ErrForged):
		return refusal(s, req, nil, err.Error())
	case errors.As(err, &notServing):
		status := failure(s, req, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error()+": try again")
		status.Details.RetryAfterSeconds = int32(max(roundUpToSeconds(notServing.RetryAfter), time.Second) / time.Second)
		return status
	case errors.As(err, &bad):
		return failure(s, req, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	default:
		return failure(s, req, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
}

// maxFaults bounds the faults of one status.
const maxFaults = 32

func invalidStatus(s Subject, req *admission.Request, faults field.ErrorList) *metav1.Status {
	var reported field.ErrorList
	for _, fault := range faults[:min(len(faults), maxFaults)] {
		reported = append(reported, shortened(fault))
	}
	return &apierrors.NewInvalid(s.Kind.GroupKind(), fieldtext.Shorten(req.Name), reported).ErrStatus
}

// shortened truncates the texts of a fault: a user's text can have megabytes, and the API
// server logs the status.
func shortened(fault *field.Error) *field.Error {
	short := *fault
	short.Field, short.Detail = fieldtext.Shorten(fault.Field), fieldtext.Shorten(fault.Detail)
	if value := reflect.ValueOf(fault.BadValue); value.Kind() == reflect.String { // of any type, such as that of a mode
		short.BadValue = fieldtext.Shorten(value.String())
	}
	return &short
}

// refusal denies a valid object. at is the field whose request cannot be met; nil for
// none.
func refusal(s Subject, req *admission.Request, at *field.Path, message string) *metav1.Status {
	status := failure(s, req, http.StatusForbidden, metav1.StatusReasonForbidden, message)
	if at != nil {
		status.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: at.String(), Message: status.Message}}
	}
	return status
}

func failure(s Subject, req *admission.Request, code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: fieldtext.Shorten(message),
		Details: &metav1.StatusDetails{Name: fieldtext.Shorten(req.Name), Group: s.Kind.Group, Kind: s.Kind.Kind},
	}
}

// ownerCause names the owner of an address for programs, which must not parse the
// message.
func ownerCause(owner ledger.Key) metav1.StatusCause {
	name := owner.Name
	if owner.Namespace != "" {
		name = owner.Namespace + "/" + name
	}
	return metav1.StatusCause{Type: v1alpha1.CauseOwner, Message: owner.Resource + "/" + name}
}

// PlaceOf returns where the author of a request reads messages about owners: owners of
// other namespaces are not named there.
func PlaceOf(req *admission.Request) string {
	return ledger.Key{Resource: req.Resource.Resource + "." + req.Resource.Group, Namespace: req.Namespace, Name: req.Name}.Place()
}

// describe returns the message of an error for a reader in a place: a pool of another
// namespace, which a PoolError may contain, is not named.
func describe(err error, place string) string {
	if at := (*ledger.PoolError)(nil); errors.As(err, &at) {
		return at.SeenFrom(place)
	}
	return err.Error()
}

// ownedMessage describes a conflict with an owner, as far as a reader in a place may know
// the owner.
func ownedMessage(err error, owned *ledger.OwnedError, place string) string {
	var at *ledger.PoolError
	where := ""
	if errors.As(err, &at) {
		where = fmt.Sprintf("pool %s: ", at.Pool)
	}
	if unfit := object.UnfitError(nil); errors.As(err, &unfit) {
		where = unfit.Error() + ": " + where
	}
	switch {
	case owned.Withheld:
		return where + owned.SeenFrom(place) + ": ask for another range, or try again later"
	case owned.Moved:
		return where + owned.SeenFrom(place) + fmt.Sprintf(": ask for another range or, if it is free there, remove the entry of the range from annotation %s of its former pool",
			v1alpha1.AnnotationCooldown)
	case !owned.Until.IsZero():
		return where + owned.SeenFrom(place) + ": wait, or ask for another range"
	case owned.Promised:
		return where + owned.SeenFrom(place) + ": ask for another range, or try again in two minutes: a grant of a failed create has ended by then"
	}
	return where + owned.SeenFrom(place) + ": ask for another range, or have the owner deleted first"
}
