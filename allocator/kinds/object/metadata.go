package object

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddLabels adds labels that an object lacks, and reports whether any was missing. Labels
// of the object stay unchanged.
func AddLabels(o metav1.Object, labels map[string]string) bool {
	present, added := o.GetLabels(), false
	for label, value := range labels {
		if _, has := present[label]; has {
			continue
		}
		if present == nil {
			present = map[string]string{}
		}
		present[label], added = value, true
	}
	o.SetLabels(present)
	return added
}

// AddFinalizer adds a finalizer, and reports whether the finalizer was missing.
func AddFinalizer(o metav1.Object, name string) bool {
	present := o.GetFinalizers()
	if slices.Contains(present, name) {
		return false
	}
	o.SetFinalizers(append(slices.Clone(present), name))
	return true
}
