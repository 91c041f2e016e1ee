package webhooks

import (
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patch collects JSON patch operations (RFC 6902). They are written by hand: the difference of two marshalled objects would also touch
// fields that this version does not know.
type patch []jsonpatch.JsonPatchOperation

// set adds a field, or replaces it. Its parent must exist.
func (p *patch) set(value any, path ...string) {
	*p = append(*p, jsonpatch.NewOperation("add", pointer(path), value))
}

// remove takes away a field, which must exist.
func (p *patch) remove(path ...string) {
	*p = append(*p, jsonpatch.NewOperation("remove", pointer(path), nil))
}

// entries sets entries of a map of metadata. present is the map as it is, nil where the object has none.
func (p *patch) entries(field string, present, entries map[string]string) {
	if len(entries) == 0 {
		return
	}
	if present == nil {
		p.set(entries, "metadata", field)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if value, ok := present[key]; !ok || value != entries[key] {
			p.set(entries[key], "metadata", field, key)
		}
	}
}

// unlabel removes a label, which must exist, from the patched object and from o.
func (p *patch) unlabel(o metav1.Object, label string) {
	p.remove("metadata", "labels", label)
	labels := maps.Clone(o.GetLabels())
	delete(labels, label)
	o.SetLabels(labels)
}

// finalizer adds one that is not there.
func (p *patch) finalizer(o metav1.Object, name string) {
	switch present := o.GetFinalizers(); {
	case slices.Contains(present, name):
	case present == nil:
		p.set([]string{name}, "metadata", "finalizers")
	default:
		p.set(name, "metadata", "finalizers", "-")
	}
}

// annotations sets those that have a value and takes away those that have "".
func (p *patch) annotations(o metav1.Object, want map[string]string) {
	present := o.GetAnnotations()
	entries := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if want[key] != "" {
			entries[key] = want[key]
		} else if _, ok := present[key]; ok {
			p.remove("metadata", "annotations", key)
		}
	}
	p.entries("annotations", present, entries)
}

// unowned takes away the managedFields of an object that is being created and not applied. They are for who applies it, and where there are none the API
// server keeps none until somebody does, who then finds what was there under "before-first-apply". They are half of an object, and are read and
// compared at each of its writes: of a claim that nobody applies, that costs the API server a third of its work.
func (p *patch) unowned(o metav1.Object) {
	owners := o.GetManagedFields()
	_, applied := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if len(owners) == 1 && owners[0].Operation == metav1.ManagedFieldsOperationUpdate && !applied {
		p.remove("metadata", "managedFields")
	}
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is the JSON pointer (RFC 6901) of a path.
func pointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		b.WriteByte('/')
		b.WriteString(escape.Replace(step))
	}
	return b.String()
}
