package object

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
)

// ResourceVersion returns the resourceVersion of an object; 0 before the object is
// stored.
func ResourceVersion(o metav1.Object) uint64 { return ParseVersion(o.GetResourceVersion()) }

// ParseVersion parses a resourceVersion; 0 for an empty or invalid text. Versions of one
// resource compare as numbers (apimachinery's util/resourceversion).
func ParseVersion(text string) uint64 {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// NewErrors returns the errors of an update that the stored object does not have: an
// update of one field of an object stored under earlier rules need not correct the other
// fields.
func NewErrors(old, updated field.ErrorList) field.ErrorList {
	known := map[string]bool{}
	for _, err := range old {
		known[err.Error()] = true
	}
	return slices.DeleteFunc(updated, func(err *field.Error) bool { return known[err.Error()] })
}

// Summarize returns validation errors in one line; "" without errors.
func Summarize(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return fieldtext.SingleLine(errs.ToAggregate().Error(), fieldtext.MaxQuoted)
}

// LabelValue returns the name of an object as a label value. A name of more than 63
// characters becomes its first 52 characters, a dash, and 10 hexadecimal digits of the
// SHA-256 of the name.
func LabelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	const digits = 10
	sum := sha256.Sum256([]byte(name))
	return name[:validation.LabelValueMaxLength-1-digits] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// UnfitError is the error of a request that the rules of a kind deny before the ledger is
// asked. A newer version of the pool may permit the request.
type UnfitError interface {
	error
	// Fault returns the field of the claim that causes the denial, and the remedy.
	Fault() (at *field.Path, remedy string)
}
