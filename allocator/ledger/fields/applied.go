package fields

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AppliedIn lists the fields of a part of an object, such as spec, that somebody applied: those owned by a manager of server-side apply, and those in
// the manifest of the last `kubectl apply`. Texts that cannot be read list nothing.
func AppliedIn(o metav1.Object, part string) map[string]bool {
	applied := map[string]bool{}
	for _, entry := range o.GetManagedFields() {
		if entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var owned map[string]json.RawMessage
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		var names map[string]json.RawMessage
		_ = json.Unmarshal(owned["f:"+part], &names) // no such part, no names
		for name := range names {
			applied[strings.TrimPrefix(name, "f:")] = true
		}
	}
	var manifest map[string]json.RawMessage
	_ = json.Unmarshal([]byte(o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]), &manifest) // none where it was not applied so
	var names map[string]json.RawMessage
	_ = json.Unmarshal(manifest[part], &names)
	for name, value := range names {
		if text := string(value); text != "null" && text != `""` {
			applied[name] = true
		}
	}
	return applied
}
