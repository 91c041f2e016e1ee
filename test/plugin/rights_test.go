package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// auditedUser is the user of the commands in the audit log. The audit log also contains
// the calls of the console.
const auditedUser = "viewer-of-all"

// auditPolicy selects the calls of auditedUser and of the console for the audit log,
// without bodies.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
  {"level": "Metadata", "users": ["` + auditedUser + `", "system:serviceaccount:` + sandbox.ManagerNamespace + ":" + suite.ConsoleAccount + `"]}
]}`

// beyondViewer maps calls that the commands try, and that the viewer role does not allow,
// to the purpose of the call.
var beyondViewer = map[string]string{
	"get leases.coordination.k8s.io":                       "open grants; without the journal they count as free",
	"get providerconfigs.butler.butlerlabs.dev":            "fit --provider; ProviderConfigs belong to the platform, as TenantClusters do",
	"list providerconfigs.butler.butlerlabs.dev":           "the quota on the page of a tenant",
	"create selfsubjectaccessreviews.authorization.k8s.io": "whether a dry run is allowed; every user may ask",
}

// From the audit log: the commands use each right of the viewer role, and beyond the role
// only try the calls in beyondViewer. The command check needs further rights and has its
// own test.
func TestRights_EqualTheViewerRole(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "audited", "10.90.0.0/24", "audited"), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: auditedUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "butler-ipam-viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: auditedUser}},
	})
	viewer := kubeconfigOf(t, auditedUser, ns)
	suite.Eventually(t, suite.Soon, func(context.Context) error { // wait until the role has taken effect
		if r := run(t, viewer, "pools", "-A"); r.stderr != "" {
			return errors.New(r.stderr)
		}
		return nil
	})
	claim := suite.Kinds[0].Claim(ns, "recorded", "").(*butlerv1.IPAllocation)
	claim.Spec.PoolRef.Name = "audited"
	suite.Create(t, admin, claim)
	suite.Eventually(t, suite.Soon, func(context.Context) error { // wait until the history for who --at is stored
		if r := run(t, cluster.Kubeconfig(), "who", "10.90.0.7", "--at="+time.Now().UTC().Format(time.RFC3339)); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	rows := filepath.Join(t.TempDir(), "addresses.csv")
	if err := os.WriteFile(rows, []byte(exampleAddresses), 0o600); err != nil {
		t.Fatal(err)
	}
	pool := ns + "/audited"
	commands := map[string][][]string{
		"claims": {{}}, "completion": {{"bash"}}, "export": {{pool}}, "fit": {{pool, "--count=8"}}, "free": {{pool}}, "help": {{}}, "import": {{rows, "--to=" + pool}},
		"map": {{pool}}, "plan": {{pool, "--reserve=10.90.0.0/29"}, {pool, "--delete"}}, "pools": {{}}, "version": {{}},
		"who": {{"10.90.0.7"}, {"10.90.0.7", "--at=" + time.Now().UTC().Format(time.RFC3339)}},
	}
	for _, command := range subcommands(t) {
		if command == "ui" {
			startUI(t, viewer).mustGet(t, "/pools")
			continue
		}
		if _, known := commands[command]; !known && command != "check" {
			t.Errorf("no arguments for command %q: add it to the test", command)
		}
		for _, args := range commands[command] {
			if r := run(t, viewer, append([]string{command}, args...)...); strings.Contains(r.stderr, "error:") {
				t.Errorf("kubectl ipam %s %s: %s", command, strings.Join(args, " "), r.stderr)
			}
		}
	}
	if r := run(t, viewer, "fit", "--provider=lab"); r.code != 2 || !strings.Contains(r.stderr, "ask for the right to get providerconfigs.butler.butlerlabs.dev in namespace butler-system") {
		t.Errorf("kubectl ipam fit --provider: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}

	var role rbacv1.ClusterRole
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "butler-ipam-viewer"}, &role); err != nil {
		t.Fatal(err)
	}
	used := auditedCalls(t, auditedUser)
	allowed := map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				call := verb + " " + resource + "." + rule.APIGroups[0]
				allowed[call] = true
				if verb != "get" && !used[call] { // kubectl needs the right to get objects by name
					t.Errorf("the viewer role allows %q, and no command did it", call)
				}
			}
		}
	}
	for call := range used {
		if !allowed[call] && beyondViewer[call] == "" {
			t.Errorf("a command tried %q, which the viewer role does not allow", call)
		}
	}
}

// auditedCalls returns the calls of a user in the audit log, such as "list
// networkpools.butler.butlerlabs.dev".
func auditedCalls(t *testing.T, user string) map[string]bool {
	t.Helper()
	log, err := os.ReadFile(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]bool{}
	for line := range bytes.Lines(log) {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource, APIGroup string }
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.ObjectRef.Resource != "" && e.User.Username == user {
			calls[e.Verb+" "+strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")+"."+e.ObjectRef.APIGroup] = true
		}
	}
	if len(calls) == 0 {
		t.Fatal("the audit log is empty")
	}
	t.Log(slices.Sorted(maps.Keys(calls)))
	return calls
}
