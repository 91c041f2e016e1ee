package tenancy

import (
	"context"
	"time"

	"butlerlabs.dev/ipam/reconcilers/overtaken"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applied is an object as far as we write it, by server-side apply. It names the UID, so that it never makes one anew that is gone.
func applied(kind schema.GroupVersionKind, o client.Object, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	u.SetUID(o.GetUID())
	return u
}

// applyStatus writes some fields of a status as one of its owners. An object that is gone, or is another one now, needs none.
func (d *desk) applyStatus(ctx context.Context, kind schema.GroupVersionKind, o client.Object, owner string, status map[string]any) error {
	u := applied(kind, o, map[string]any{"status": status})
	err := d.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership)
	return overtaken.Ignore(ctx, d.live, o, err)
}

// condition is one as a status holds it, with the time of its last change.
func condition(before []metav1.Condition, c metav1.Condition, now time.Time) (fields map[string]any, changed bool) {
	was := meta.FindStatusCondition(before, c.Type)
	changed = was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message
	since := metav1.NewTime(now)
	if was != nil && was.Status == c.Status {
		since = was.LastTransitionTime
	}
	return map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message, "lastTransitionTime": since.UTC().Format(time.RFC3339),
	}, changed
}
