// Package report publishes what happens to the addresses of tenants: status fields and
// conditions, events, and metrics.
package report

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// Field managers of what is written in the management cluster.
const (
	OwnerNetwork        = "butler-ipam"          // initial addresses, finalizer, capacity
	OwnerGrowth         = "butler-ipam-growth"   // LoadBalancerIPsAvailable
	OwnerAdoption       = "butler-ipam-adoption" // AddressesAdopted
	OwnerInfrastructure = "butler-controller/infra-allocation"
)

// ApplyObject returns an apply configuration with some fields of an object. The UID is
// part of the configuration, so that an apply never creates a deleted object again.
func ApplyObject(kind schema.GroupVersionKind, o client.Object, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	u.SetUID(o.GetUID())
	return u
}

// StatusWriter writes status fields by server-side apply.
type StatusWriter struct {
	Client client.Client
	Live   client.Reader // to find out why a write failed
}

// Apply makes owner the field manager of exactly these status fields. The result is nil
// if the object is gone or the name belongs to another object.
func (w StatusWriter) Apply(ctx context.Context, kind schema.GroupVersionKind, o client.Object, owner string, status map[string]any) error {
	u := ApplyObject(kind, o, map[string]any{"status": status})
	err := w.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership)
	return write.IgnoreStale(ctx, w.Live, o, err)
}

// ConditionFields returns a condition as fields of a status, with lastTransitionTime from
// the stored conditions or now, and whether the condition has changed.
func ConditionFields(stored []metav1.Condition, c metav1.Condition, now time.Time) (content map[string]any, changed bool) {
	before := meta.FindStatusCondition(stored, c.Type)
	changed = before == nil || before.Status != c.Status || before.Reason != c.Reason || before.Message != c.Message
	since := metav1.NewTime(now)
	if before != nil && before.Status == c.Status {
		since = before.LastTransitionTime
	}
	return map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message, "lastTransitionTime": since.UTC().Format(time.RFC3339),
	}, changed
}

// maxText bounds text from a tenant in conditions, events and logs, in bytes.
const maxText = 256

// ShortenText returns text from a tenant on one line, of at most 256 bytes.
func ShortenText(text string) string { return fieldtext.SingleLine(text, maxText) }
