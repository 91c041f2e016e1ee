package plugin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// beyondViewerInConsole lists the calls of the console that system:auth-delegator allows
// and the viewer role does not allow.
var beyondViewerInConsole = []string{"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"}

// webConsole is a running butler-ipam console.
type webConsole struct {
	suite.Console
	client *http.Client
}

func startConsole(t *testing.T) *webConsole {
	t.Helper()
	return newWebConsole(suite.StartConsole(t, cluster, admin, "../.."))
}

func newWebConsole(c suite.Console) *webConsole {
	return &webConsole{c, &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.Roots}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// page is a response of the console.
type page struct {
	code   int
	body   string
	header http.Header
}

// get requests a page. Each change modifies the request, for example adds a token.
func (c *webConsole) get(ctx context.Context, target string, change ...func(*http.Request)) (page, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+target, nil)
	if err != nil {
		return page{}, err
	}
	for _, f := range change {
		f(r)
	}
	response, err := c.client.Do(r)
	if err != nil {
		return page{}, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(response.Body)
	return page{response.StatusCode, string(body), response.Header}, err
}

func (c *webConsole) mustGet(t *testing.T, target string, change ...func(*http.Request)) page {
	t.Helper()
	p, err := c.get(t.Context(), target, change...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// bearing adds a token to a request.
func bearing(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// inNamespace adds the cookie of a chosen namespace to a request.
func inNamespace(ns string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "namespace", Value: ns}) }
}

// Two tenants share the addresses of a routing domain. Each tenant sees only the names of
// its own objects, and addresses of the other tenant as owned, also when the requests of
// the tenants are concurrent.
func TestConsole_ShowsEachPersonItsNames(t *testing.T) {
	const user, viewer = "butler-ipam-console-user", "butler-ipam-viewer"
	ours, theirs := suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)
	for _, ns := range []string{ours, theirs} {
		suite.Create(t, admin, networkPool(ns, "pool-of-"+ns, "10.97.0.0/24", "shared"))
		claim := suite.Kinds[0].Claim(ns, "claim-of-"+ns, map[string]string{ours: "10.97.0.10", theirs: "10.97.0.20"}[ns])
		suite.Kinds[0].Repool(claim, "pool-of-"+ns)
		suite.Create(t, admin, claim, &ipamv1.IPAddressClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "waiting-in-" + ns},
			Spec: ipamv1.IPAddressClaimSpec{
				ClusterName: "gone-in-" + ns,
				PoolRef:     ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "pool-of-" + ns},
			},
		})
	}
	console := startConsole(t)
	first, second := suite.CreatePerson(t, admin, ours, "first", map[string]string{user: "", viewer: ours}), suite.CreatePerson(t, admin, theirs, "second", map[string]string{user: "", viewer: theirs})
	operator := suite.CreatePerson(t, admin, ours, "operator", map[string]string{user: "", viewer: ""})
	stranger := suite.CreatePerson(t, admin, ours, "stranger", map[string]string{viewer: ours})

	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // wait until the roles have taken effect and the console has observed the objects
		for token, wanted := range map[string][]string{first: {ours}, second: {theirs}, operator: {ours, theirs}} {
			p, err := console.get(ctx, "/claims?namespace="+wanted[0], bearing(token))
			for _, ns := range wanted {
				if err == nil && !strings.Contains(p.body, "claim-of-"+ns) {
					err = fmt.Errorf("status %d: %s is missing: %s", p.code, ns, p.body)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})

	t.Run("names_do_not_cross", func(t *testing.T) {
		targets := func(ns string) []string {
			return []string{
				"/pools", "/pools.json", "/claims", "/claims.json", "/pool?pool=NetworkPool/" + ns + "/pool-of-" + ns, "/pool.json?pool=NetworkPool/" + ns + "/pool-of-" + ns,
				"/pool.csv?pool=NetworkPool/" + ns + "/pool-of-" + ns, "/address?address=10.97.0.20", "/address?address=10.97.0.10", "/address.json?address=10.97.0.0/24", "/search?q=pool-of",
				"/search?q=claim-of", "/plan?reserve=10.97.0.0/27&pool=NetworkPool/" + ns + "/pool-of-" + ns, "/plan.json?cidr=10.97.0.0/30&pool=NetworkPool/" + ns + "/pool-of-" + ns,
				"/fit?count=3&pool=NetworkPool/" + ns + "/pool-of-" + ns, "/claims?namespace=" + ns, "/health", "/health.json",
			}
		}
		var group sync.WaitGroup
		for _, who := range []struct{ token, ns, other string }{{first, ours, theirs}, {second, theirs, ours}} {
			for range 4 {
				group.Go(func() {
					for range 3 {
						for _, target := range targets(who.ns) {
							p, err := console.get(t.Context(), target, bearing(who.token), inNamespace(who.ns))
							if err != nil {
								t.Error(err)
								return
							}
							if strings.Contains(p.body, who.other) || p.code >= http.StatusInternalServerError {
								t.Errorf("%s names %s to the other tenant, or failed: status %d: %s", target, who.other, p.code, p.body)
								return
							}
						}
					}
				})
			}
		}
		group.Wait()
	})
	t.Run("addresses_of_others_are_owned", func(t *testing.T) {
		p := console.mustGet(t, "/pool?pool=NetworkPool/"+ours+"/pool-of-"+ours, bearing(first), inNamespace(ours))
		for _, square := range []string{"<title>10.97.0.20 owned by an object that you may not list</title>", "<title>10.97.0.10 owned by IPAllocation " + ours + "/claim-of-" + ours} {
			if !strings.Contains(p.body, square) {
				t.Errorf("%s is missing: %s", square, p.body)
			}
		}
		var restricted, all items[poolItem]
		for token, into := range map[string]*items[poolItem]{first: &restricted, operator: &all} {
			if err := json.Unmarshal([]byte(console.mustGet(t, "/pools.json?namespace="+ours, bearing(token)).body), into); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range restricted.Items {
			if !slices.Contains(all.Items, p) {
				t.Errorf("the operator has other numbers than %+v: %+v", p, all.Items)
			}
		}
		if len(restricted.Items) != 1 {
			t.Errorf("%+v", restricted.Items)
		}
	})
	t.Run("reasons_of_Clusters", func(t *testing.T) {
		reason := "Cluster gone-in-" + ours + " of IPAddressClaim waiting-in-" + ours + " does not exist"
		for name, token := range map[string]string{"a viewer of one namespace": first, "the operator": operator} {
			if p := console.mustGet(t, "/claims?namespace="+ours, bearing(token)); !strings.Contains(p.body, reason) {
				t.Errorf("%s does not see why a claim waits: %s", name, p.body)
			}
		}
	})
	t.Run("chosen_namespace", func(t *testing.T) {
		if p := console.mustGet(t, "/pools", bearing(first)); p.code != http.StatusOK || strings.Contains(p.body, ours) || !strings.Contains(p.body, `name="namespace"`) {
			t.Errorf("without a namespace: status %d: %s", p.code, p.body)
		}
		p := console.mustGet(t, "/pools?namespace="+ours, bearing(first))
		if cookie := p.header.Get("Set-Cookie"); cookie != "namespace="+ours+"; Path=/; HttpOnly; Secure; SameSite=Strict" {
			t.Errorf("cookie %q", cookie)
		}
		if p := console.mustGet(t, "/pools?namespace="+theirs, bearing(first)); strings.Contains(p.body, "pool-of-"+theirs) || strings.Contains(p.body, "pool-of-"+ours) {
			t.Errorf("a namespace without rights: %s", p.body)
		}
		if p := console.mustGet(t, "/pools?namespace=a%2Fb%3B", bearing(first)); p.code != http.StatusBadRequest || p.header.Get("Set-Cookie") != "" {
			t.Errorf("status %d: %s", p.code, p.body)
		}
		if p := console.mustGet(t, "/pools", bearing(operator)); strings.Contains(p.body, `name="namespace"`) || !strings.Contains(p.body, "pool-of-"+theirs) {
			t.Errorf("the operator must choose a namespace, or lacks pools: %s", p.body)
		}
	})
	t.Run("basic_authentication", func(t *testing.T) {
		if p := console.mustGet(t, "/claims?namespace="+ours, func(r *http.Request) { r.SetBasicAuth("me", first) }); p.code != http.StatusOK || !strings.Contains(p.body, "claim-of-"+ours) {
			t.Errorf("status %d: %s", p.code, p.body)
		}
	})
	t.Run("without_the_right", func(t *testing.T) {
		p := console.mustGet(t, "/pools?namespace="+ours, bearing(stranger))
		if p.code != http.StatusForbidden || !strings.Contains(p.body, "system:serviceaccount:"+ours+":stranger has no right to get /butler-ipam/console") || strings.Contains(p.body, "pool-of") {
			t.Errorf("status %d: %s", p.code, p.body)
		}
	})
	t.Run("without_a_token", func(t *testing.T) {
		for _, change := range []func(*http.Request){
			func(*http.Request) {}, bearing("no-token"), bearing(""), bearing(first + "x"), inNamespace(ours),
			func(r *http.Request) { r.Header.Set("Authorization", first) }, func(r *http.Request) { r.SetBasicAuth(first, "") }, func(r *http.Request) { r.Method = http.MethodPost },
			func(r *http.Request) { r.Header.Set("X-Remote-User", "admin") }, func(r *http.Request) { r.Header.Set("Impersonate-User", "admin") },
		} {
			for _, target := range []string{"/", "/pools", "/pools.json", "/pool?pool=NetworkPool/" + ours + "/pool-of-" + ours, "/style.css", "/favicon.ico", "/nothing", "/healthz", "/metrics", "/open?token=x"} {
				p := console.mustGet(t, target, change)
				if p.code != http.StatusUnauthorized || p.body != "a valid token of the cluster is needed: as bearer token, or as the password of any user name\n" {
					t.Errorf("%s: status %d: %s", target, p.code, p.body)
				}
				if len(p.header.Values("WWW-Authenticate")) != 2 || p.header.Get("Set-Cookie") != "" || !strings.HasPrefix(p.header.Get("Content-Security-Policy"), "default-src 'none'; ") || p.header.Get("X-Content-Type-Options") != "nosniff" {
					t.Errorf("%s: headers %v", target, p.header)
				}
			}
		}
	})
	t.Run("only_GET", func(t *testing.T) {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			if p := console.mustGet(t, "/pools", bearing(operator), func(r *http.Request) { r.Method = method }); p.code != http.StatusMethodNotAllowed {
				t.Errorf("%s: status %d", method, p.code)
			}
		}
	})
	t.Run("rights", func(t *testing.T) { requireRightsOfConsole(t) })
	t.Run("withdrawn_right", func(t *testing.T) {
		suite.SkipShort(t) // the console caches reviews for 30 s
		suite.Delete(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ours, Name: "first-" + viewer}})
		suite.Eventually(t, time.Minute, func(ctx context.Context) error {
			if p, err := console.get(ctx, "/claims?namespace="+ours, bearing(first)); err != nil || strings.Contains(p.body, "claim-of-") {
				return errors.Join(err, errors.New("the name is still shown"))
			}
			return nil
		})
	})
}

// requireRightsOfConsole requires, from the audit log, that the console lists and watches
// each resource of the viewer role, and otherwise only reviews tokens and rights.
func requireRightsOfConsole(t *testing.T) {
	t.Helper()
	var role rbacv1.ClusterRole
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "butler-ipam-viewer"}, &role); err != nil {
		t.Fatal(err)
	}
	used := auditedCalls(t, "system:serviceaccount:"+sandbox.ManagerNamespace+":"+suite.ConsoleAccount)
	allowed := map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				call := verb + " " + resource + "." + rule.APIGroups[0]
				allowed[call] = true
				if verb != "get" && resource != "allocationhistories" && !used[call] { // only kubectl ipam who reads histories
					t.Errorf("the viewer role allows %q, and the console did not do it", call)
				}
			}
		}
	}
	allowed["list providerconfigs.butler.butlerlabs.dev"] = true // the CRD is installed for fit --provider; with tenants.enabled, a role of the console contains the right
	for _, call := range beyondViewerInConsole {
		allowed[call] = true
		if !used[call] {
			t.Errorf("the console did not %s", call)
		}
	}
	for _, call := range slices.Sorted(maps.Keys(used)) {
		if !allowed[call] {
			t.Errorf("the console tried %q, which its roles do not allow", call)
		}
	}
}
