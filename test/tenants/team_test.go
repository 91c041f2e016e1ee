package tenants

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// Label team of the allocations of a tenant is the team of its TenantCluster, also of
// allocations that others created or that were stored before the team was known. A label
// that a tool applies stays.
func TestTeamLabel(t *testing.T) {
	pool(t, "team", "10.56.0.0/24", "10.56.0.0", "10.56.0.63")
	provider(t, "team", `{mode: ipam, poolRefs: [{name: team}], loadBalancer: {defaultPoolSize: 4}}`, true)
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "web", "team", ", teamRef: {name: backend-team}")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	byHand := func(name string, labels string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: *read[map[string]any](t, fmt.Sprintf(`{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: IPAllocation,
			metadata: {namespace: %s, name: %s, labels: {%s}}, spec: {poolRef: {name: team}, type: nodes, count: 1, tenantClusterRef: {namespace: %s, name: web}}}`,
			cluster.Namespace(), name, labels, ns))}
	}
	hand, authors, applied := byHand("team-hand", ""), byHand("team-authors", v1alpha1.LabelTeam+": authors"), byHand("team-applied", v1alpha1.LabelTeam+": "+ns)
	suite.CreateForTest(t, admin, hand)
	if team := hand.GetLabels()[v1alpha1.LabelTeam]; team != ns { // the webhooks do not know the team
		t.Errorf("label team in the response of a create is %q, want %q", team, ns)
	}
	suite.CreateForTest(t, admin, authors)
	apply := func() {
		t.Helper()
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied.DeepCopy()), client.FieldOwner("flux")); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), applied) })
	teams := func(want map[string]string) {
		t.Helper()
		for name, team := range want {
			a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: name}}
			suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAllocation) string {
				if got := a.Labels[v1alpha1.LabelTeam]; got != team || a.Annotations[v1alpha1.AnnotationTenantUID] != string(c.UID) {
					return fmt.Sprintf("%s: label team is %q, want %q; annotations %v", name, got, team, a.Annotations)
				}
				return ""
			})
		}
	}
	nodes, lb := ns+"-web-nodes", ns+"-web-lb"
	teams(map[string]string{lb: "backend-team", nodes: "backend-team", "team-hand": "backend-team", "team-authors": "authors", "team-applied": ns})
	selected := &v1alpha1.IPAllocationList{}
	if err := admin.List(t.Context(), selected, client.MatchingLabels{v1alpha1.LabelTeam: "backend-team"}); err != nil || len(selected.Items) != 3 {
		t.Errorf("%d allocations of the team, want 3: %v", len(selected.Items), err)
	}
	apply() // no conflict

	// An earlier release wrote the namespace.
	for _, name := range []string{lb, "team-hand"} {
		a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: name}}
		suite.Change(t, admin, a, func(a *v1alpha1.IPAllocation) { a.Labels[v1alpha1.LabelTeam] = ns })
	}
	teams(map[string]string{lb: "backend-team", "team-hand": "backend-team"})

	// Another team takes over the tenant. What others created keeps its team.
	suite.Change(t, admin, c, func(c *v1alpha1.TenantCluster) { c.Spec.TeamRef.Name = "other-team" })
	teams(map[string]string{lb: "other-team", nodes: "other-team", "team-hand": "backend-team", "team-authors": "authors", "team-applied": ns})
	suite.Change(t, admin, c, func(c *v1alpha1.TenantCluster) { c.Spec.TeamRef = nil })
	teams(map[string]string{lb: ns, nodes: ns})
}
