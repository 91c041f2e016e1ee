package fields

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ResourceVersion is 0 for an object that is not stored yet.
func ResourceVersion(o metav1.Object) uint64 { return Version(o.GetResourceVersion()) }

// Version reads a resourceVersion, 0 for none: those of one kind compare as numbers (apimachinery's util/resourceversion).
func Version(text string) uint64 {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// NewFaults is the errors of an update that its stored object does not have: whoever changes one field of an object that came
// in under older rules is not asked to mend the others.
func NewFaults(old, updated field.ErrorList) field.ErrorList {
	known := map[string]bool{}
	for _, err := range old {
		known[err.Error()] = true
	}
	return slices.DeleteFunc(updated, func(err *field.Error) bool { return known[err.Error()] })
}

// Fault is what is wrong with an object in one line, "" for nothing.
func Fault(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return OneLine(errs.ToAggregate().Error(), longestValue)
}

// LabelValue is the name of an object as the value of a label. A name of up to 63 characters is its own; of a longer one it is
// the first 52, a dash, and 10 hexadecimal digits of the SHA-256 of the whole.
func LabelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	const digits = 10
	sum := sha256.Sum256([]byte(name))
	return name[:validation.LabelValueMaxLength-1-digits] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// CheckName finds fault with a reference to an object: with none, and with a name that no object can have.
func CheckName(path *field.Path, name string, check func(string) []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "name the object that is meant")}
	}
	var errs field.ErrorList
	for _, rule := range check(name) {
		errs = append(errs, field.Invalid(path, name, rule))
	}
	return errs
}
