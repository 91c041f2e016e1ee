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
)

// maxEntries bounds each list and map in the metadata of an object. The API server has no bound but the size of the whole: a million empty finalizers
// pass through it, and a fault of each takes a thousand times its size.
const maxEntries = 4096

// metadataFaults are those for which the API server will refuse the object later, after it has cost a grant.
func metadataFaults(o metav1.Object) field.ErrorList {
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
		// The name is generated after admission, from as many characters of it.
		m.Name = m.GenerateName[:min(len(m.GenerateName), 58)] + "00000"
	}
	return validation.ValidateObjectMeta(&m, m.Namespace != "", validation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// wanted says what a field takes.
func wanted(at *json.UnmarshalTypeError, resource string) string {
	switch at.Type.Kind() {
	case reflect.Int32:
		return fmt.Sprintf("write a whole number, of at most %d", math.MaxInt32)
	case reflect.Int64:
		return fmt.Sprintf("write a whole number, of at most %d", math.MaxInt64)
	default:
		return fmt.Sprintf("see kubectl explain %s.%s", resource, at.Field)
	}
}

// decode reads an object, or parts of one. What is wrong with it is said of the field, where that is known.
func decode(raw []byte, into any, resource string) error {
	err := json.Unmarshal(raw, into)
	if at := (*json.UnmarshalTypeError)(nil); errors.As(err, &at) && at.Field != "" {
		return invalid{field.Invalid(field.NewPath(at.Field), field.OmitValueType{},
			fmt.Sprintf("%s does not fit here: %s", at.Value, wanted(at, resource)))}
	}
	if err != nil {
		return badRequest(fmt.Sprintf("the object cannot be read: %v", err))
	}
	return nil
}

// readError is what a failed read of a pool means for the call.
func readError(err error, pool ledger.Key) error {
	if errors.Is(err, errTooManyReads) {
		return err
	}
	unread := (*cache.ErrResourceNotCached)(nil)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || errors.As(err, &unread) { // the last two: its API is not served here
		return &ledger.NoPoolError{Pool: pool}
	}
	return &ledger.NotServingError{Reason: fmt.Sprintf("pool %s cannot be read: %v", pool, err), RetryAfter: time.Second}
}
