//go:build cluster

package cluster

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/test/load"
)

const account = "butler-ipam"

// right is leave to do something with objects of a kind. Namespace and name are "" for
// all of them.
type right struct{ namespace, group, resource, name, verb string }

func (r right) String() string {
	s := r.verb + " " + strings.TrimSuffix(r.resource+"."+r.group, ".")
	if r.name != "" {
		s += " " + r.name
	}
	if r.namespace != "" {
		s += " in " + r.namespace
	}
	return s
}

// allows says whether a right covers a use of it.
func (r right) allows(use right) bool {
	return r.group == use.group && r.resource == use.resource && r.verb == use.verb &&
		(r.namespace == "" || r.namespace == use.namespace) && (r.name == "" || r.name == use.name)
}

// unused are rights that a run of these tests may not need, and why they are granted all
// the same.
var unused = map[right]string{
	{group: "butler.butlerlabs.dev", resource: "ipallocations", verb: "get"}:                                              "a stored claim is read again where nobody knows what became of the range that was being written to it",
	{namespace: namespace, group: "cert-manager.io", resource: "certificates", name: "butler-ipam-webhook", verb: "list"}: "API servers that do not stream what is there at the begin of a watch",
	{resource: "events", verb: "patch"}:                                                   "an event that is said again is counted up",
	{resource: "namespaces", verb: "get"}:                                                 "the namespace of a pool is read if an owner of the pool is not being deleted",
	{group: "butler.butlerlabs.dev", resource: "networkpools/finalizers", verb: "update"}: "an IPAddress of Cluster API is owned by its NetworkPool",
}

func init() { // the chart leaves these APIs off
	for _, verb := range []string{"get", "create", "update", "delete"} {
		unused[right{namespace: namespace, resource: "configmaps", verb: verb}] = "ranges of claims that clusterctl moved are recorded there, also those of an API that is off by now"
	}
	for group, resources := range map[string][]string{
		"novaedge.io": {"proxyippools", "proxyvips"}, "ipam.metal3.io": {"ipaddresses", "ipclaims", "ippools"},
		"ipam.cluster.x-k8s.io": {"ipaddressclaims", "ipaddresses"},
	} {
		for _, resource := range resources {
			unused[right{group: group, resource: resource, verb: "get"}] = "an object whose change was let through while its API was on is looked for by its name"
		}
	}
}

func rights(t *testing.T) {
	namespaceGoes(t)
	scrape(t)
	missingPool(t)
	granted, used := granted(t), used(t)
	for _, g := range granted {
		isUsed := slices.ContainsFunc(slices.Collect(maps.Keys(used)), g.allows)
		switch reason, known := unused[g]; {
		case !isUsed && !known:
			t.Errorf("granted and never used: %s", g)
		case !isUsed:
			t.Logf("granted and not used here: %s: %s", g, reason)
		}
	}
	missing := map[string]bool{}
	for use := range used {
		if !slices.ContainsFunc(granted, func(g right) bool { return g.allows(use) }) {
			missing[use.verb+" "+use.resource+"."+use.group] = true
		}
	}
	for use := range missing {
		t.Errorf("used and not granted: %s", use)
	}
	logs := kubectl(t, "logs", "--namespace="+namespace, "--selector=app.kubernetes.io/name=butler-ipam", "--tail=-1")
	for line := range strings.Lines(logs) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("the manager's log: %s", line)
		}
	}
}

// namespaceGoes deletes a namespace with a pool whose addresses are owned for longer than
// it takes to come to the pool: that may go where its namespace does.
func namespaceGoes(t *testing.T) {
	namespace := load.NewPool(t, admin, nextNetwork())
	owned := load.Claim(namespace, "owned")
	owned.Finalizers = []string{"example.com/kept"}
	if err := admin.Create(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "delete", "namespace/"+namespace, "--wait=false")
	kubectl(t, "wait", "networkpool", "--all", "--namespace="+namespace, "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=30s")
	kubectl(t, "patch", "ipallocation/owned", "--namespace="+namespace, "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
	kubectl(t, "wait", "namespace/"+namespace, "--for=delete", "--timeout=1m")
}

// missingPool asks for addresses of a pool that is not there: the API server is asked for
// it before that is believed.
func missingPool(t *testing.T) {
	text := strings.ReplaceAll(allocation, "name: first", "name: missing")
	if _, err := create(t, text); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "delete", "ipallocation/missing", "--timeout=30s")
}

// scrape reads the metrics of a pod as Prometheus does: the manager asks the API server
// who that is, and whether they may.
func scrape(t *testing.T) {
	const scraper = "scraper"
	kubectl(t, "create", "serviceaccount", scraper)
	defer kubectl(t, "delete", "serviceaccount", scraper)
	kubectl(t, "create", "clusterrolebinding", scraper, "--clusterrole=butler-ipam-metrics-reader", "--serviceaccount=default:"+scraper)
	defer kubectl(t, "delete", "clusterrolebinding", scraper)
	token := strings.TrimSpace(kubectl(t, "create", "token", scraper))

	address := net.JoinHostPort(settled(t)[0].Status.PodIP, "8080")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its name is not its address
	response, err := insecure.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	const ninetenths = "\ngo_gc_gomemlimit_bytes 9.66367641e+08\n" // of the gigabyte that the container may have
	for _, want := range []string{"\nbutler_ipam_journal_takeovers_total ", ninetenths} {
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			name, _, _ := strings.Cut(want, " ")
			_, value, _ := strings.Cut(string(text), name)
			t.Errorf("the metrics: %s, %v: they do not have %q, but %.40q", response.Status, err, want, value)
		}
	}
}

// granted are the rights that roles give the manager.
func granted(t *testing.T) (rights []right) {
	t.Helper()
	var (
		everywhere rbacv1.ClusterRoleBindingList
		here       rbacv1.RoleBindingList
	)
	if err := admin.List(t.Context(), &everywhere); err != nil {
		t.Fatal(err)
	}
	if err := admin.List(t.Context(), &here); err != nil {
		t.Fatal(err)
	}
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						for _, verb := range rule.Verbs {
							rights = append(rights, right{namespace, group, resource, name, verb})
						}
					}
				}
			}
		}
	}
	rules := func(namespace string, ref rbacv1.RoleRef) []rbacv1.PolicyRule {
		if ref.Kind == "ClusterRole" {
			var role rbacv1.ClusterRole
			if err := admin.Get(t.Context(), types.NamespacedName{Name: ref.Name}, &role); err != nil {
				t.Fatal(err)
			}
			return role.Rules
		}
		var role rbacv1.Role
		if err := admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: ref.Name}, &role); err != nil {
			t.Fatal(err)
		}
		return role.Rules
	}
	manager := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}
	for _, b := range everywhere.Items {
		if slices.Contains(b.Subjects, manager) {
			add("", rules("", b.RoleRef))
		}
	}
	for _, b := range here.Items {
		if slices.Contains(b.Subjects, manager) {
			add(b.Namespace, rules(b.Namespace, b.RoleRef))
		}
	}
	return rights
}

// used are the rights that the API server's audit log has seen the chart's manager use.
// Nothing in that log may have been refused for want of one.
func used(t *testing.T) map[right]bool {
	t.Helper()
	log, err := os.Open(filepath.Join(os.Getenv("CLUSTER_DIR"), "logs", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	rights := map[right]bool{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      *struct{ Namespace, APIGroup, Resource, Subresource, Name string }
			ResponseStatus struct {
				Code    int
				Message string
			}
			RequestURI               string
			RequestReceivedTimestamp time.Time
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.ResponseStatus.Code == http.StatusForbidden && strings.Contains(event.ResponseStatus.Message, "cannot") {
			t.Errorf("%s may not %s %s", event.User.Username, event.Verb, event.RequestURI)
		}
		if event.RequestReceivedTimestamp.Before(installed) {
			continue // config/ serves API groups that the chart leaves off
		}
		if o := event.ObjectRef; o != nil && event.User.Username == fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account) {
			resource := strings.TrimSuffix(o.Resource+"/"+o.Subresource, "/")
			rights[right{o.Namespace, o.APIGroup, resource, o.Name, event.Verb}] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rights
}
