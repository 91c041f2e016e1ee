package webhooks

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// invalid is the faults of an object.
type invalid field.ErrorList

func (e invalid) Error() string { return field.ErrorList(e).ToAggregate().Error() }

// badRequest is a request that no API server sends which is configured well.
type badRequest string

func (e badRequest) Error() string { return string(e) }

// poolInUse is a pool that cannot be deleted, with those who have addresses of it: kind -> how many.
type poolInUse struct {
	pool    ledger.Key
	holders map[string]int
}

func (e *poolInUse) Error() string {
	var (
		counted, resources []string
		total              int
	)
	for _, kind := range slices.Sorted(maps.Keys(e.holders)) {
		counted = append(counted, allocator.Counted(e.holders[kind], strings.ToLower(ownerKinds[kind].Kind)))
		resources = append(resources, kind) // with its group: Kubernetes has ipaddresses of its own
		total += e.holders[kind]
	}
	where := ""
	if e.pool.Namespace != "" {
		where = " -n " + e.pool.Namespace
	}
	return fmt.Sprintf("pool %s cannot be deleted while %s %s addresses of it: delete %s first, see kubectl get %s%s",
		e.pool, strings.Join(counted, " and "), allocator.Agree(total, "holds", "hold"), allocator.Agree(total, "it", "them"), strings.Join(resources, ","), where)
}

// statusOf words an error for whoever made the request.
//
//	a field breaks a rule                    422 Invalid             each fault with its field, as the API server's own
//	a range outside the pool, or reserved    422 Invalid             on the field that asks for it: the same range is refused until somebody
//	                                                                 changes the pool, as with a clusterIP outside the service network
//	exhausted, held; pool faulty, going,     403 Forbidden           the object is right, what is there stands against it; never 409, which
//	or in use                                                        clients repeat at once
//	pool missing, another offers the range   403 Forbidden
//	not what was granted                     403 Forbidden
//	an update of a pool that is gone         404 NotFound
//	cannot serve now                         503 ServiceUnavailable  with the seconds after which to try again
//	not an object of the webhook's kind      400 BadRequest
//	anything else is a bug                   500 InternalError
//
// The denial of an address that another object owns carries the owner in a cause of type CauseOwner, too, for programs.
//
// Who holds an address is named within the namespace of the request only; of another one it says no more than that it is held.
func statusOf(err error, s subject, req *admission.Request) *metav1.Status {
	var (
		faults     invalid
		bad        badRequest
		notServing *ledger.NotServingError
		outside    *allocator.OutsideError
		blocked    *allocator.BlockedError
		exhausted  *allocator.ExhaustedError
		held       *ledger.HeldError
		inUse      *ledger.InUseError
		deleting   *ledger.PoolDeletingError
		faulty     *ledger.FaultyPoolError
		manual     *ledger.NotAutomaticError
		family     *ledger.FamilyError
		missing    *ledger.NoPoolError
		populated  *poolInUse
		unserved   metal3.Failure
		provides   *providerInUse
	)
	switch {
	case errors.As(err, &faults):
		return invalidStatus(s, req, field.ErrorList(faults))
	case errors.As(err, &outside):
		return invalidStatus(s, req, field.ErrorList{field.Invalid(s.exact(outside.Range), field.OmitValueType{}, err.Error())})
	case errors.As(err, &blocked):
		return invalidStatus(s, req, field.ErrorList{field.Invalid(s.exact(blocked.Range), field.OmitValueType{}, err.Error())})
	case errors.As(err, &manual):
		return invalidStatus(s, req, field.ErrorList{field.Required(s.exact(allocator.Range{}), err.Error())})
	case errors.As(err, &family):
		return invalidStatus(s, req, field.ErrorList{field.Invalid(s.family, field.OmitValueType{}, err.Error())})
	case errors.As(err, &exhausted):
		return refusal(s, req, s.count, err.Error())
	case errors.As(err, &unserved) && !errors.As(err, &held):
		at, way := s.exact(allocator.Range{}), "leave the annotation out, or ask for an address that the pool can give to this claim"
		if unserved == metal3.FailureOutside {
			at, way = field.NewPath("metadata", "name"), "take another name, or have the pool's spec.preAllocations corrected"
		}
		return invalidStatus(s, req, field.ErrorList{field.Invalid(at, field.OmitValueType{}, err.Error()+": "+way)})
	case errors.As(err, &held):
		status := refusal(s, req, s.exact(held.Range), heldMessage(err, held, placeOf(req)))
		if owner, known := held.OwnerSeenFrom(placeOf(req)); known {
			status.Details.Causes = append(status.Details.Causes, ownerCause(owner))
		}
		return status
	case errors.As(err, &inUse):
		return refusal(s, req, field.NewPath("spec"), inUse.SeenFrom(placeOf(req)))
	case errors.As(err, &missing):
		return failure(s, req, http.StatusNotFound, metav1.StatusReasonNotFound, err.Error())
	case errors.As(err, &deleting), errors.As(err, &faulty), errors.As(err, &populated), errors.As(err, &provides), errors.Is(err, ledger.ErrForged):
		return refusal(s, req, nil, err.Error())
	case errors.As(err, &notServing):
		status := failure(s, req, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error()+": try again")
		status.Details.RetryAfterSeconds = int32(max(wholeSeconds(notServing.RetryAfter), time.Second) / time.Second)
		return status
	case errors.As(err, &bad):
		return failure(s, req, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	default:
		return failure(s, req, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
	}
}

// maxFaults are told of at once: who has mended those hears of the others.
const maxFaults = 32

func invalidStatus(s subject, req *admission.Request, faults field.ErrorList) *metav1.Status {
	var told field.ErrorList
	for _, fault := range faults[:min(len(faults), maxFaults)] {
		told = append(told, shortened(fault))
	}
	return &apierrors.NewInvalid(s.kind.GroupKind(), fields.Short(req.Name), told).ErrStatus
}

// shortened is a fault whose texts are no longer than anybody reads: what a user wrote may have megabytes, and goes to the logs of the API server too.
func shortened(fault *field.Error) *field.Error {
	short := *fault
	short.Field, short.Detail = fields.Short(fault.Field), fields.Short(fault.Detail)
	if value := reflect.ValueOf(fault.BadValue); value.Kind() == reflect.String { // of any type, such as that of a mode
		short.BadValue = fields.Short(value.String())
	}
	return &short
}

// refusal of an object that is right in itself. at is the field that asks for what cannot be given; nil where there is none.
func refusal(s subject, req *admission.Request, at *field.Path, message string) *metav1.Status {
	status := failure(s, req, http.StatusForbidden, metav1.StatusReasonForbidden, message)
	if at != nil {
		status.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeForbidden, Field: at.String(), Message: status.Message}}
	}
	return status
}

func failure(s subject, req *admission.Request, code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: fields.Short(message),
		Details: &metav1.StatusDetails{Name: fields.Short(req.Name), Group: s.kind.Group, Kind: s.kind.Kind},
	}
}

// ownerCause names the owner of an address for programs, which must not parse the message.
func ownerCause(owner ledger.Key) metav1.StatusCause {
	name := owner.Name
	if owner.Namespace != "" {
		name = owner.Namespace + "/" + name
	}
	return metav1.StatusCause{Type: v1alpha1.CauseOwner, Message: owner.Kind + "/" + name}
}

// placeOf is where the author of a request reads what is told of owners.
func placeOf(req *admission.Request) string {
	return ledger.Key{Kind: req.Resource.Resource + "." + req.Resource.Group, Namespace: req.Namespace, Name: req.Name}.Place()
}

// heldMessage words a clash so that it tells no more about the holder than a reader in a place may know.
func heldMessage(err error, held *ledger.HeldError, place string) string {
	var at *ledger.PoolError
	where := ""
	if errors.As(err, &at) {
		where = fmt.Sprintf("pool %s: ", at.Pool)
	}
	if failure := metal3.Failure(""); errors.As(err, &failure) {
		where = failure.Error() + ": " + where
	}
	switch {
	case held.Withheld:
		return where + held.SeenFrom(place) + ": ask for another range, or try again then"
	case held.Moved:
		return where + held.SeenFrom(place) + fmt.Sprintf(": ask for another range or, if it is free there, take its entry out of annotation %s of the pool that it was taken from",
			v1alpha1.AnnotationResting)
	case !held.Until.IsZero():
		return where + held.SeenFrom(place) + ": wait, or ask for another range"
	case held.Promised:
		return where + held.SeenFrom(place) + ": ask for another range, or try again in two minutes: what a create that failed was promised is free by then"
	}
	return where + held.SeenFrom(place) + ": ask for another range, or have the holder deleted first"
}
