package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/webhooks/review"
)

// maxEntries bounds each list and map in the metadata of an object. The API server bounds
// only the size of the whole object: a million empty finalizers pass, and the text of a
// fault has a thousand times the size of a finalizer.
const maxEntries = 4096

// findMetadataFaults returns lists and maps with more than maxEntries entries, and faults
// for which the API server would deny the object later, after the object has cost a
// grant.
func findMetadataFaults(o metav1.Object) field.ErrorList {
	for _, part := range []struct {
		name    string
		entries int
	}{
		{"labels", len(o.GetLabels())},
		{"annotations", len(o.GetAnnotations())},
		{"ownerReferences", len(o.GetOwnerReferences())},
		{"finalizers", len(o.GetFinalizers())},
	} {
		if part.entries > maxEntries {
			return field.ErrorList{field.TooMany(field.NewPath("metadata", part.name), part.entries, maxEntries)}
		}
	}
	m := metav1.ObjectMeta{
		Name: o.GetName(), GenerateName: o.GetGenerateName(), Namespace: o.GetNamespace(), Labels: o.GetLabels(),
		Annotations: o.GetAnnotations(), OwnerReferences: o.GetOwnerReferences(), Finalizers: o.GetFinalizers(),
	}
	if m.Name == "" && m.GenerateName != "" {
		// The name is generated between the mutating and the validating webhooks, from
		// the first 58 characters of generateName.
		m.Name = m.GenerateName[:min(len(m.GenerateName), 58)] + "00000"
	}
	return validation.ValidateObjectMeta(&m, m.Namespace != "", validation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// describeType describes the values of a field.
func describeType(at *json.UnmarshalTypeError, resource string) string {
	switch at.Type.Kind() {
	case reflect.Int32:
		return fmt.Sprintf("write a whole number, of at most %d", math.MaxInt32)
	case reflect.Int64:
		return fmt.Sprintf("write a whole number, of at most %d", math.MaxInt64)
	default:
		return fmt.Sprintf("see kubectl explain %s.%s", resource, at.Field)
	}
}

// decode decodes an object or parts of it. A type error names its field where the field
// is known.
func decode(raw []byte, into any, resource string) error {
	err := json.Unmarshal(raw, into)
	if at := (*json.UnmarshalTypeError)(nil); errors.As(err, &at) && at.Field != "" {
		return review.InvalidError{field.Invalid(field.NewPath(at.Field), field.OmitValueType{},
			fmt.Sprintf("%s does not fit here: %s", at.Value, describeType(at, resource)))}
	}
	if err != nil {
		return review.BadRequestError(fmt.Sprintf("the object cannot be read: %v", err))
	}
	return nil
}

// readError converts the error of a read of a pool.
func readError(err error, pool ledger.Key) error {
	if errors.Is(err, errTooManyReads) {
		return err
	}
	unread := (*cache.ErrResourceNotCached)(nil)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || errors.As(err, &unread) { // the last two: the API of the pool is not served here
		return &ledger.NoPoolError{Pool: pool}
	}
	return &ledger.NotServingError{Reason: fmt.Sprintf("pool %s cannot be read: %v", pool, err), RetryAfter: time.Second}
}
