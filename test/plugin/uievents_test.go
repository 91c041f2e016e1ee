package plugin

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// The page of a pool shows the events of the manager about the pool, and no event about a
// deleted pool of the same name.
func TestUI_Events(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := networkPool(ns, "pool", "10.97.0.0/28", ns)
	suite.Create(t, admin, pool)
	u := startUI(t, cluster.Kubeconfig())
	viewer := startUI(t, viewerKubeconfig(t, "events-viewer", ns))
	page := "/pool?pool=NetworkPool/" + ns + "/pool"
	for _, u := range []*ui{u, viewer} {
		u.eventually(t, page, "No event: ", true)
	}
	most := suite.Kinds[0].Claim(ns, "most", "10.97.0.0").(*butlerv1.IPAllocation)
	most.Spec.PinnedRange.EndAddress = "10.97.0.11"
	suite.Create(t, admin, most)
	for _, u := range []*ui{u, viewer} {
		u.eventually(t, page, `<td>Warning</td><th scope="row">PoolCapacityWarning</th><td class="n">1</td>`, true)
	}
	suite.Delete(t, admin, most)
	u.eventually(t, page, `<td>Normal</td><th scope="row">PoolCapacityRecovered</th>`, true)
	shown := u.mustGet(t, page)
	if strings.Index(shown, "PoolCapacityRecovered") > strings.Index(shown, "PoolCapacityWarning") {
		t.Error("the newest event is not first")
	}
	suite.Delete(t, admin, pool)
	u.eventually(t, "/pools", ns, false)
	suite.Create(t, admin, networkPool(ns, "pool", "10.97.0.0/28", ns))
	u.eventually(t, page, "No event: ", true)
}

// A user without the right to list events sees a line instead of the events, and no
// warning.
func TestUI_EventsForbidden(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.97.1.0/28", ns), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pools"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{butlerv1.GroupVersion.Group}, Resources: []string{"networkpools"}, Verbs: []string{"list", "watch"}}},
	}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pools"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pools"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "eventless"}},
	})
	suite.AwaitReview(t, admin, authorizationv1.SubjectAccessReviewSpec{
		User: "eventless", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list", Group: butlerv1.GroupVersion.Group, Resource: "networkpools"},
	}, true)
	u := startUI(t, kubeconfigOf(t, "eventless", ns))
	page := u.mustGet(t, "/pool?pool=NetworkPool/"+ns+"/pool")
	if !strings.Contains(page, `<p class="facts">events: not read, as you may not list them</p>`) || strings.Contains(page, "Warning: events") {
		t.Error(page)
	}
}

// The console in the cluster shows the events about a pool only to persons with the right
// to list events.
func TestConsole_Events(t *testing.T) {
	const user = "butler-ipam-console-user"
	ns := suite.CreateNamespace(t, admin)
	pool := networkPool(ns, "pool", "10.97.2.0/28", ns)
	suite.Create(t, admin, pool) // sets the UID in pool
	suite.Create(t, admin, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{butlerv1.GroupVersion.Group}, Resources: []string{"networkpools"}, Verbs: []string{"list"}}},
	}, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ns, Name: "crossed"},
		InvolvedObject: corev1.ObjectReference{APIVersion: butlerv1.GroupVersion.String(), Kind: "NetworkPool", Namespace: ns, Name: pool.Name, UID: pool.UID},
		Type:           corev1.EventTypeWarning, Reason: "PoolCapacityWarning", Message: "70 % are allocated", Count: 3, LastTimestamp: metav1.Now(),
	})
	console := startConsole(t)
	const row = `<th scope="row">PoolCapacityWarning</th><td class="n">3</td><td>70 % are allocated</td>`
	for token, want := range map[string]string{
		suite.CreatePerson(t, admin, ns, "viewer", map[string]string{user: "", "butler-ipam-viewer": ns}): row,
		suite.CreatePerson(t, admin, ns, "eventless", map[string]string{user: "", ns: ns}):                "events: not read, as you may not list them",
	} {
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // wait until the roles have taken effect
			p, err := console.get(ctx, "/pool?pool=NetworkPool/"+ns+"/pool", bearing(token), inNamespace(ns))
			if err == nil && (!strings.Contains(p.body, want) || strings.Contains(p.body, row) != (want == row)) {
				err = fmt.Errorf("no %q: status %d: %s", want, p.code, p.body)
			}
			return err
		})
	}
}
