package object

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AppliedFields lists the fields of a part of an object, such as spec, that a client
// applied: fields owned by a manager of server-side apply, and fields in the manifest of
// the last `kubectl apply`. A text that cannot be decoded lists no fields.
func AppliedFields(o metav1.Object, part string) map[string]bool {
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
		_ = json.Unmarshal(owned["f:"+part], &names) // without the part, names stays empty
		for name := range names {
			applied[strings.TrimPrefix(name, "f:")] = true
		}
	}
	var manifest map[string]json.RawMessage
	_ = json.Unmarshal([]byte(o.GetAnnotations()[corev1.LastAppliedConfigAnnotation]), &manifest) // empty without kubectl apply
	var names map[string]json.RawMessage
	_ = json.Unmarshal(manifest[part], &names)
	for name, value := range names {
		if text := string(value); text != "null" && text != `""` {
			applied[name] = true
		}
	}
	return applied
}
