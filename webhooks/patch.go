package webhooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patch collects JSON patch operations (RFC 6902).
type patch []jsonpatch.JsonPatchOperation

// fields are the fields of an object that a webhook may change. A patch is the difference
// of these fields before and after the change, field by field below spec and entry by
// entry below metadata: the difference of two whole marshalled objects would also remove
// fields that this version does not know.
type fields struct {
	labels, annotations map[string]string
	finalizers          []string
	managedFields       bool
	spec                []byte // JSON; the typed spec may be changed in place
	err                 error
}

// readFields copies the fields of an object.
func readFields(metadata metav1.Object, spec any) fields {
	f := fields{
		labels: maps.Clone(metadata.GetLabels()), annotations: maps.Clone(metadata.GetAnnotations()), finalizers: slices.Clone(metadata.GetFinalizers()),
		managedFields: len(metadata.GetManagedFields()) > 0,
	}
	f.spec, f.err = json.Marshal(spec)
	return f
}

// diff returns the operations that turn the fields f into the fields after.
func (f fields) diff(after fields) (patch, error) {
	var p patch
	p.diffEntries("labels", f.labels, after.labels)
	p.diffEntries("annotations", f.annotations, after.annotations)
	switch added := after.finalizers[min(len(f.finalizers), len(after.finalizers)):]; {
	case len(added) == 0: // webhooks append finalizers
	case len(f.finalizers) == 0:
		p.add(added, "metadata", "finalizers")
	default:
		for _, name := range added {
			p.add(name, "metadata", "finalizers", "-")
		}
	}
	if f.managedFields && !after.managedFields {
		p.remove("metadata", "managedFields")
	}
	err := p.diffSpec(f, after)
	return p, err
}

// diffEntries adds the difference of two versions of a map in metadata.
func (p *patch) diffEntries(field string, before, after map[string]string) {
	if len(before) == 0 { // absent, null or {}: an entry would have no parent
		if len(after) > 0 {
			p.add(after, "metadata", field)
		}
		return
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[key]; !kept {
			p.remove("metadata", field, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if value, present := before[key]; !present || value != after[key] {
			p.add(after[key], "metadata", field, key)
		}
	}
}

// diffSpec adds the difference of two versions of spec.
func (p *patch) diffSpec(f, after fields) error {
	if f.err != nil || after.err != nil || bytes.Equal(f.spec, after.spec) {
		return errors.Join(f.err, after.err)
	}
	var before, now map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(f.spec, &before), json.Unmarshal(after.spec, &now)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, kept := now[name]; !kept {
			p.remove("spec", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if value, present := before[name]; !present || !bytes.Equal(value, now[name]) {
			p.add(now[name], "spec", name)
		}
	}
	return nil
}

// add adds or replaces a field. The parent of the field must exist.
func (p *patch) add(value any, path ...string) {
	*p = append(*p, jsonpatch.NewOperation("add", jsonPointer(path), value))
}

// remove removes a field, which must exist.
func (p *patch) remove(path ...string) {
	*p = append(*p, jsonpatch.NewOperation("remove", jsonPointer(path), nil))
}

// setAnnotations sets annotations with a value and removes annotations with "".
func setAnnotations(o metav1.Object, values map[string]string) {
	annotations := o.GetAnnotations()
	for key, value := range values {
		if value == "" {
			delete(annotations, key)
			continue
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	}
	o.SetAnnotations(annotations)
}

// removeManagedFields removes the managedFields of an object that is created without
// apply. managedFields serve apply; without them the API server keeps none until the
// first apply, which records earlier fields under "before-first-apply". managedFields are
// half of an object, and are read and compared at each write: for claims without apply,
// removal saves a third of the API server's work.
func removeManagedFields(o metav1.Object) {
	owners := o.GetManagedFields()
	_, applied := o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if len(owners) == 1 && owners[0].Operation == metav1.ManagedFieldsOperationUpdate && !applied {
		o.SetManagedFields(nil)
	}
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// jsonPointer returns the JSON pointer (RFC 6901) of a path.
func jsonPointer(path []string) string {
	var b strings.Builder
	for _, step := range path {
		b.WriteByte('/')
		b.WriteString(escape.Replace(step))
	}
	return b.String()
}
