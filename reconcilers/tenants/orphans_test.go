package tenants

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestOrphanReconciler_CountsFromFirstObservation(t *testing.T) {
	now := noon
	r := newOrphanReconciler(&deps{Options: Options{Now: func() time.Time { return now }}})
	orphan := func(condition time.Time) (plan.Relation, time.Time) {
		a := &v1alpha1.IPAllocation{}
		a.UID, a.Annotations = "1", map[string]string{v1alpha1.AnnotationTenantUID: "gone"}
		a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTenantClusterMissing, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(condition)}}
		relation, at := plan.RelationOf(r.useOwnClock(a), "", 5*time.Minute, now)
		if got := a.Status.Conditions[0].LastTransitionTime; !got.Time.Equal(condition) {
			t.Errorf("the stored condition is changed: %s", got)
		}
		return relation, at
	}
	for _, ahead := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		condition := noon.Add(ahead)
		first := now
		for range 5 {
			if relation, at := orphan(condition); relation != plan.Orphaned || !at.Equal(first.Add(5*time.Minute)) {
				t.Fatalf("condition %s ahead: %d until %s", ahead, relation, at)
			}
			now = now.Add(time.Minute)
		}
		if relation, _ := orphan(condition); relation != plan.Abandoned {
			t.Errorf("condition %s ahead: %d after five minutes", ahead, relation)
		}
	}
}
