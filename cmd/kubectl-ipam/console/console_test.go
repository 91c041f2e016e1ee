package console

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

var update = flag.Bool("update", false, "write the files in testdata instead of comparing with them")

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}
}

func networkPool(name, cidr, domain string, reserved ...string) *butlerv1.NetworkPool {
	p := &butlerv1.NetworkPool{ObjectMeta: named("ns", name), Spec: butlerv1.NetworkPoolSpec{CIDR: cidr, RoutingDomain: domain}}
	for _, network := range reserved {
		p.Spec.Reserved = append(p.Spec.Reserved, butlerv1.ReservedRange{CIDR: network, Description: "routers"})
	}
	return p
}

func allocation(pool, name, tenant, first, last string, purpose butlerv1.IPAllocationType) *butlerv1.IPAllocation {
	a := &butlerv1.IPAllocation{ObjectMeta: named("ns", name), Spec: butlerv1.IPAllocationSpec{
		PoolRef: butlerv1.LocalObjectReference{Name: pool}, Type: purpose, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: "team-1", Name: tenant},
	}}
	if first != "" {
		a.Spec.PinnedRange = &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last}
		a.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Allocated"}}
	}
	return a
}

// objects returns pools and claims of every kind and state.
func objects() []metav1.Object {
	vlan := networkPool("vlan40", "10.40.0.0/26", "", "10.40.0.0/29")
	vlan.Spec.TenantAllocation = &butlerv1.TenantAllocation{
		Ranges: []butlerv1.IPRange{{Start: "10.40.0.0", End: "10.40.0.55"}}, Defaults: &butlerv1.AllocationDefaults{NodesPerTenant: 2, LBPoolPerTenant: 3},
	}
	vlan.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
	reusable := metav1.NewTime(now.Add(30 * time.Minute))
	vlan.Status.Releases = []butlerv1.Release{{
		Name: "gone", Tenant: butlerv1.RecordedReference{Namespace: "team-1", Name: "old"}, StartAddress: "10.40.0.20", EndAddress: "10.40.0.23",
		ReleasedAt: metav1.NewTime(now.Add(-30 * time.Minute)), ReusableAt: &reusable,
	}}
	vlan.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", Message: "The pool serves"}}
	pending := allocation("vlan40", "waits", "hungry", "", "", butlerv1.TypeNodes)
	pending.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "PoolExhausted", Message: `no room for <script>alert("x")</script>`}}
	rival := allocation("vlan40", "rival", "web", "10.40.0.12", "10.40.0.12", butlerv1.TypeNodes)
	rival.CreationTimestamp = metav1.NewTime(now)
	rival.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionFalse, Reason: butlerv1.ReasonAddressConflict, Message: "10.40.0.12 is owned by another claim"}}
	return []metav1.Object{
		vlan,
		networkPool("corp", "10.0.0.0/8", "corp", "10.0.0.0/12"),
		networkPool("v6", "2001:db8:40::/64", "", "2001:db8:40::/120"),
		networkPool("red", "10.40.0.0/30", "red"),
		&metal3v1.IPPool{ObjectMeta: named("ns", "machines"), Spec: metal3v1.IPPoolSpec{Pools: []metal3v1.Pool{{Subnet: new("192.168.7.0/29")}}}},
		&novaedgev1.ProxyIPPool{ObjectMeta: named("", "edge"), Spec: novaedgev1.ProxyIPPoolSpec{AutoAssign: true, Addresses: []string{"10.40.0.40", "10.40.0.60", "2001:db8:1::1"}}},
		allocation("vlan40", "web-nodes", "web", "10.40.0.8", "10.40.0.12", butlerv1.TypeNodes),
		allocation("vlan40", "web-lb", "web", "10.40.0.13", "10.40.0.14", butlerv1.TypeLoadBalancer),
		allocation("corp", "big", "web", "10.16.0.0", "10.21.126.63", butlerv1.TypeLoadBalancer),
		allocation("v6", "six", "web", "2001:db8:40::100", "2001:db8:40::186f", butlerv1.TypeLoadBalancer),
		pending, rival,
		&metal3v1.IPClaim{ObjectMeta: with(named("ns", "host-1"), map[string]string{"ipAddress": "192.168.7.2"}), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "machines"}}},
		&novaedgev1.ProxyVIP{ObjectMeta: named("", "vip"), Spec: novaedgev1.ProxyVIPSpec{Address: "10.40.0.40/32", PoolRef: &novaedgev1.PoolReference{Name: "edge"}}},
	}
}

func with(m metav1.ObjectMeta, annotations map[string]string) metav1.ObjectMeta {
	m.Annotations = annotations
	return m
}

// newInventory returns an inventory of objects, with an open grant of 10.40.0.30.
func newInventory(t testing.TB, objects []metav1.Object) *inventory.Inventory {
	t.Helper()
	i := inventory.New(now, []journal.Entry{{
		Token: journal.Token{1}, Ranges: []allocator.Range{mustRange(t, "10.40.0.30")}, Resource: butler.ResourceIPAllocation, Namespace: "ns", NameHash: 1,
	}})
	for _, o := range objects {
		i.Add(o)
	}
	return i
}

func mustRange(t testing.TB, text string) allocator.Range {
	t.Helper()
	r, err := allocator.ParseRange(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func handlerOf(i *inventory.Inventory, warnings ...string) http.Handler {
	return New(Options{
		View: func(context.Context) (View, error) { return View{Inventory: i, Warnings: warnings}, nil },
		Now:  func() time.Time { return now }, Version: "test",
	})
}

func get(t testing.TB, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	return w
}

func mustGet(t testing.TB, h http.Handler, target string) string {
	t.Helper()
	w := get(t, h, target)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", target, w.Code, w.Body)
	}
	return w.Body.String()
}

const vlan40 = "pool=NetworkPool/ns/vlan40"

func TestPages_Golden(t *testing.T) {
	h := handlerOf(newInventory(t, objects()), "ipaddressclaims: not read, as you may not list them")
	for file, target := range map[string]string{
		"pools.html": "/", "pools.json": "/pools.json", "pool.html": "/pool?" + vlan40, "pool.json": "/pool.json?" + vlan40, "pool.csv": "/pool.csv?" + vlan40,
		"pool-v6.json": "/pool.json?pool=NetworkPool/ns/v6", "plan.html": "/plan?reserve=10.40.0.8/29&" + vlan40, "plan.json": "/plan.json?reserve=10.40.0.8/29&" + vlan40,
		"fit.html": "/fit?count=8&" + vlan40, "fit.json": "/fit.json?nodes=2&loadbalancer=3&" + vlan40, "address.html": "/address?address=10.40.0.12",
		"address.json": "/address.json?address=10.40.0.20", "tenant.html": "/tenant?tenant=team-1/web", "tenant.json": "/tenant.json?tenant=team-1/web",
		"claims.html": "/claims", "claims.json": "/claims.json?state=not-ready", "search.html": "/search?q=team",
	} {
		compareGolden(t, h, file, target)
	}
}

// compareGolden compares a page with a file in testdata.
func compareGolden(t *testing.T, h http.Handler, file, target string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	got := mustGet(t, h, target)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s differs from %s, which go test -update writes (-want +got):\n%s", target, path, diff)
	}
}

// The look of the square of an address corresponds to the state of the address in the
// inventory.
func TestSquares_EqualTheInventory(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		i := inventory.New(now, nil)
		i.Add(networkPool("pool", "10.0.0.0/25", "", "10.0.0.64/28"))
		for next, n := 0, 0; ; n++ {
			first := next + random.IntN(6)
			last := first + random.IntN(8)
			if next = last + 1; last > 127 {
				break
			}
			i.Add(allocation("pool", fmt.Sprint("a-", n), "web", fmt.Sprintf("10.0.0.%d", first), fmt.Sprintf("10.0.0.%d", last), []butlerv1.IPAllocationType{butlerv1.TypeNodes, butlerv1.TypeLoadBalancer}[n%2]))
		}
		p := i.Pools()[0]
		network := netip.MustParsePrefix("10.0.0.0/24") // the pool offers the first half
		m := newSquares(i, p, network, runsIn(i, p, allocator.RangeOfPrefix(network)))
		if len(m.Squares) != 256 || len(m.Labels) != 4 {
			t.Fatalf("%d squares in %d rows", len(m.Squares), len(m.Labels))
		}
		for n, s := range m.Squares {
			address := mustRange(t, fmt.Sprintf("10.0.0.%d", n))
			g := i.Segments("", []allocator.Range{address})[0]
			want := lookOf(i.SignOf(g))
			if n > 127 {
				want = lookOf(inventory.SignNotOffered)
			}
			if s.look != want || !strings.HasPrefix(s.Title, address.String()+" ") || !strings.Contains(s.Title, g.Owner.Name) {
				t.Fatalf("%s is %+v, and is drawn as %+v with the text %q", address, g, s.look, s.Title)
			}
		}
	}
}

// The page of a pool, the JSON of the page and kubectl ipam map count the offered
// addresses of a network. Addresses that the pool does not offer are not counted, even if
// they are reserved or owned.
func TestPool_CountsTheOfferedAddresses(t *testing.T) {
	all := objects()
	vlan := all[0].(*butlerv1.NetworkPool)
	vlan.Spec.Reserved = append(vlan.Spec.Reserved, butlerv1.ReservedRange{CIDR: "10.40.0.62/31"}) // not offered by vlan40
	i := newInventory(t, append(all, &novaedgev1.ProxyVIP{                                         // only edge offers the address
		ObjectMeta: named("", "outside"), Spec: novaedgev1.ProxyVIPSpec{Address: "10.40.0.60/32", PoolRef: &novaedgev1.PoolReference{Name: "edge"}},
	}))
	h := handlerOf(i)
	for target, want := range map[string]struct {
		offered int64
		facts   string
	}{
		vlan40:                       {56, "10.40.0.0/26: 35 free in 4 blocks, largest 15, 8 owned by 3 claims, 8 reserved, 4 in cooldown, 1 granted."},
		vlan40 + "&in=10.40.0.32/27": {24, "10.40.0.32/27: 23 free in 2 blocks, largest 15, 1 owned by 1 claim."},
		vlan40 + "&in=10.40.0.0/29":  {8, "10.40.0.0/29: 0 free, 8 reserved."},
	} {
		_, facts, _ := strings.Cut(mustGet(t, h, "/pool?"+target), `<p class="facts">`)
		if !strings.HasPrefix(facts, want.facts) {
			t.Errorf("%s: the page says %.200q, want %q", target, facts, want.facts)
		}
		var m report.AddressMap
		if err := json.Unmarshal([]byte(mustGet(t, h, "/pool.json?"+target)), &m); err != nil {
			t.Fatal(err)
		}
		offered := int64(0)
		for s, n := range m.Totals {
			if offered += n; !strings.Contains(want.facts, fmt.Sprintf(" %d %s", n, strings.Replace(s, "cooldown", "in cooldown", 1))) {
				t.Errorf("%s: %d addresses are %s in the JSON", target, n, s)
			}
		}
		if offered != want.offered {
			t.Errorf("%s: %d addresses in the JSON, want %d", target, offered, want.offered)
		}
		// kubectl ipam map calls these functions
		p, network := i.Pool(butler.NetworkPoolKey("ns", "vlan40")), mustRange(t, m.Network)
		if counts := m.Network + ": " + strings.Join(report.Counts(i.Segments(p.Domain, report.Offered(p, network))), ", ") + "."; counts != want.facts {
			t.Errorf("%s: the map says %q, want %q", target, counts, want.facts)
		}
	}
}

// The link of a square of several addresses leads to a part of the map that contains the
// addresses of the square.
func TestSquares_Zoom(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	for target, want := range map[string]struct {
		squares int
		each    string
		title   string // title of a square
		link    string // link of the square
		crumbs  []string
	}{
		"/pool?" + vlan40: {64, "1 address", "10.40.0.13 owned by IPAllocation ns/web-lb for team-1/web", "/address?address=10.40.0.13", []string{"10.40.0.0/26"}},
		"/pool?pool=NetworkPool/ns/corp": {
			2048, "a /19 (8192)", "10.21.96.0/19 partly free, in 2 ranges", "/pool?in=10.21.96.0%2F19&pool=NetworkPool%2Fns%2Fcorp", []string{"10.0.0.0/8"},
		},
		"/pool?pool=NetworkPool/ns/corp&in=10.21.96.0/19": {
			2048, "a /30 (4)", "10.21.126.64/30 free", "/pool?in=10.21.126.64%2F26&pool=NetworkPool%2Fns%2Fcorp", []string{"10.0.0.0/8", "10.21.96.0/19"},
		},
		"/pool?pool=NetworkPool/ns/corp&in=10.21.126.64/26": {
			64, "1 address", "10.21.126.64 free", "/address?address=10.21.126.64", []string{"10.0.0.0/8", "10.21.96.0/19", "10.21.126.64/26"},
		},
		"/pool?pool=NetworkPool/ns/v6": {
			2048, "a /126 (4)", "2001:db8:40::186c/126 owned by IPAllocation ns/six for team-1/web", "/pool?in=2001%3Adb8%3A40%3A%3A1840%2F122&pool=NetworkPool%2Fns%2Fv6",
			[]string{"2001:db8:40::/64", "2001:db8:40::/75", "2001:db8:40::/86", "2001:db8:40::/97", "2001:db8:40::/108", "2001:db8:40::/115"},
		},
		"/pool?pool=NetworkPool/ns/v6&in=2001:db8:40::/64": {
			2048, "a /75 (2^53)", "2001:db8:40::/75 partly free, in 3 ranges", "/pool?in=2001%3Adb8%3A40%3A%3A%2F75&pool=NetworkPool%2Fns%2Fv6", []string{"2001:db8:40::/64"},
		},
		"/pool?pool=ProxyIPPool/edge&in=2001:db8:1::1": {
			1, "1 address", "2001:db8:1::1 free", "/address?address=2001%3Adb8%3A1%3A%3A1", []string{"2001:db8:1::1/128"},
		},
	} {
		page := mustGet(t, h, target)
		if n := len(regexp.MustCompile(`<a href="[^"]*" tabindex="-1"><rect [^>]*><title>[^<]+</title>`).FindAllString(page, -1)); n != want.squares {
			t.Errorf("%s: %d squares with a text, want %d", target, n, want.squares)
		}
		square := regexp.MustCompile(`<a href="([^"]*)" tabindex="-1"><rect [^>]*><title>` + regexp.QuoteMeta(want.title) + `</title>`).FindStringSubmatch(page)
		if len(square) == 0 || html.UnescapeString(square[1]) != want.link {
			t.Errorf("%s: the square %q leads to %q, want %s", target, want.title, square, want.link)
		}
		if !strings.Contains(page, "<dt>each square</dt><dd>"+want.each+"</dd>") {
			t.Errorf("%s: each square is not %s", target, want.each)
		}
		crumbs, _, _ := strings.Cut(page, "</ol>")
		var got []string
		for _, match := range regexp.MustCompile(`<li><a href="[^"]*"(?: aria-current="page")?>([^<]*)</a></li>`).FindAllStringSubmatch(crumbs, -1) {
			got = append(got, match[1])
		}
		if !slices.Equal(got, want.crumbs) {
			t.Errorf("%s: breadcrumb %q, want %q", target, got, want.crumbs)
		}
	}
}

// The links of a map also lead to parts of the network that the pool does not offer.
func TestPool_ShowsPartsThatAreNotOffered(t *testing.T) {
	p := networkPool("wide", "10.80.0.0/20", "")
	p.Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.80.0.0", End: "10.80.0.255"}, {Start: "10.80.8.0", End: "10.80.8.255"}}}
	h := handlerOf(newInventory(t, []metav1.Object{p}))
	const target = "/pool?in=10.80.1.0%2F26&pool=NetworkPool%2Fns%2Fwide"
	if page := mustGet(t, h, "/pool?pool=NetworkPool/ns/wide"); !strings.Contains(page, `href="`+html.EscapeString(target)+`"`) {
		t.Fatal("no square leads to " + target)
	}
	if page := mustGet(t, h, target); !strings.Contains(page, `<p class="facts">10.80.1.0/26: 0 free.`) || strings.Count(page, `<title>10.80.1.`) < 64 {
		t.Error(page)
	}
	for _, outside := range []string{"10.81.0.0/26", "2001:db8::/64"} {
		if w := get(t, h, "/pool?pool=NetworkPool/ns/wide&in="+outside); w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d, want 400", outside, w.Code)
		}
	}
}

// Each link of a page leads to a page that the console serves. No page contains elements
// that the Content-Security-Policy forbids.
func TestPages_LinksLeadToPages(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	seen := map[string]bool{"/": true}
	ids := regexp.MustCompile(` id="([^"]*)"`)
	const most = 3000
	for queue := []string{"/"}; len(queue) > 0 && len(seen) < most; queue = queue[1:] {
		w := get(t, h, queue[0])
		if w.Code == http.StatusSeeOther {
			w = get(t, h, w.Header().Get("Location"))
		}
		page := w.Body.String()
		if w.Code != http.StatusOK {
			if w.Code == http.StatusNotFound && strings.HasPrefix(queue[0], "/address") || strings.Contains(queue[0], "team-1%2Fold") { // an address that no pool offers; a former tenant
				continue
			}
			t.Fatalf("%s: status %d: %s", queue[0], w.Code, page)
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		for _, forbidden := range []string{"<script", "style=", "ZgotmplZ", "&lt;nil&gt;", "%!"} {
			if strings.Contains(page, forbidden) {
				t.Fatalf("%s contains %q", queue[0], forbidden)
			}
		}
		var used []string
		for _, match := range ids.FindAllStringSubmatch(page, -1) {
			if slices.Contains(used, match[1]) {
				t.Fatalf("%s: the id %s occurs twice", queue[0], match[1])
			}
			used = append(used, match[1])
		}
		for _, match := range regexp.MustCompile(`href="([^"#]+)"`).FindAllStringSubmatch(page, -1) {
			if to := html.UnescapeString(match[1]); !seen[to] {
				seen[to] = true
				queue = append(queue, to)
			}
		}
	}
	if len(seen) < 500 {
		t.Errorf("%d pages: the test shows nothing", len(seen))
	}
}

func TestHandler_HeadersAndMethods(t *testing.T) {
	h := handlerOf(newInventory(t, objects()), "a warning")
	for _, target := range []string{"/", "/pool?" + vlan40, "/pool.csv?" + vlan40, "/pools.json", "/style.css", "/no/such/page", "/pool?pool=none", "/search?q=10.40.0.8"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "TRACE"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
			header := w.Header()
			if got := header.Get("Content-Security-Policy"); got != "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'" || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: headers %v", method, target, header)
			}
			if shows := method == http.MethodGet || method == http.MethodHead; shows == (w.Code == http.StatusMethodNotAllowed) || !shows && header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: status %d, Allow %q", method, target, w.Code, header.Get("Allow"))
			}
		}
	}
	if got := get(t, h, "/pools.json").Header().Get("Warning"); got != `299 - "a warning"` {
		t.Errorf("the JSON has the warning %q", got)
	}
	w := get(t, h, "/no/such/page")
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no such page") {
		t.Errorf("an unknown page: status %d: %s", w.Code, w.Body)
	}
}

func TestHandler_BoundsQueries(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	for target, want := range map[string]struct {
		code int
		text string
	}{
		"/search?q=" + strings.Repeat("x", 5000):                     {414, "the query has 5002 bytes: use at most 4096"},
		"/search?q=" + strings.Repeat("x", 3000):                     {400, "use at most 2048"},
		"/search?q=a&q=b":                                            {400, "is given 2 times"},
		"/search?q=%zz":                                              {400, "the query is not valid"},
		"/claims?page=0":                                             {400, "page=0: use a number from 1 to 1"},
		"/claims?page=9999999999999999999":                           {400, "use a number from 1 to 1"},
		"/claims?state=happy":                                        {400, "state=happy: use one of"},
		"/pool":                                                      {400, "pool is missing"},
		"/pool?pool=NetworkPool/ns/none":                             {404, "no pool"},
		"/pool?in=10.99.0.0/16&" + vlan40:                            {400, "pool ns/vlan40 offers 10.40.0.0"},
		"/pool?in=nonsense&" + vlan40:                                {400, "is not an IP address"},
		"/address?address=10.99.0.1":                                 {200, "<dd>corp</dd>"},
		"/address?address=172.16.0.1":                                {404, "no pool offers"},
		"/health?area=happiness":                                     {400, "area=happiness: use one of addresses, capacity, installation, pools"},
		"/health?page=2":                                             {400, "page=2: use a number from 1 to 1"},
		"/tenant?tenant=nobody":                                      {404, "no claim of a tenant"},
		"/plan?" + vlan40:                                            {400, "the change is empty"},
		"/plan?reserve=x&pool=ProxyIPPool/edge":                      {400, "is a ProxyIPPool, and plan serves NetworkPools only"},
		"/plan?unreserve=10.1.0.0/16&" + vlan40:                      {400, "spec.reserved has no such network"},
		"/plan?reserve=" + strings.Repeat("1,", 100) + "&" + vlan40:  {400, "use at most 64"},
		"/plan?cidr=10.40.0.0/27&" + vlan40:                          {200, "would be denied"},
		"/plan?reserve=%3Cscript%3E&" + vlan40:                       {200, "would be denied"},
		"/fit?count=-1&" + vlan40:                                    {400, "count=-1: use a number"},
		"/fit?count=99999999999&" + vlan40:                           {400, "use a number"},
		"/fit?count=1&nodes=1&" + vlan40:                             {400, "give the size of a range in count"},
		"/fit?count=2147483647&pool=NetworkPool/ns/v6":               {200, " more fit"},
		"/fit?count=4&pool=NetworkPool/ns/v6":                        {200, "About 2^62 more fit.</strong></p>"},
		"/fit?nodes=1&loadbalancer=1&pool=NetworkPool/ns/v6":         {200, "About 2^63 more fit"},
		"/pool?in=0.0.0.0/0&" + vlan40:                               {200, "Map of 10.40.0.0/26"},
		"/pool?pool=ippool/ns/MACHINES&in=192.168.7.0-192.168.7.200": {200, "Map of 192.168.7.0/29"},
	} {
		w := get(t, h, target)
		if w.Code != want.code || !strings.Contains(html.UnescapeString(w.Body.String()), want.text) {
			t.Errorf("%.100s: status %d, want %d with %q: %s", target, w.Code, want.code, want.text, mainOf(w.Body.String()))
		}
	}
}

func mainOf(page string) string {
	_, page, _ = strings.Cut(page, "<main")
	page, _, _ = strings.Cut(page, "</main>")
	return page
}

func TestSearch(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	for q, want := range map[string]string{ // the address of the page to which the search redirects, or a text on the page of results
		"10.40.0.8":                 "/address?address=10.40.0.8",
		" 2001:db8:40::100 ":        "/address?address=2001%3Adb8%3A40%3A%3A100",
		"10.16.0.0/16":              "/pool?in=10.16.0.0%2F16&pool=NetworkPool%2Fns%2Fcorp",
		"10.40.0.8/29":              "NetworkPool/ns/corp in 10.40.0.8/29",
		"172.16.0.0/16":             "/address?address=172.16.0.0-172.16.255.255",
		"vlan40":                    "/pool?pool=NetworkPool%2Fns%2Fvlan40",
		"networkpool/ns/vlan40":     "/pool?pool=NetworkPool%2Fns%2Fvlan40",
		"team-1/web":                "/tenant?tenant=team-1%2Fweb",
		"hungry":                    "/tenant?tenant=team-1%2Fhungry",
		"web-nod":                   "/address?address=10.40.0.8-10.40.0.12",
		"ipallocation/ns/web-lb":    "/address?address=10.40.0.13-10.40.0.14",
		"waits":                     "/claims?kind=IPAllocation&state=Pending&tenant=team-1%2Fhungry",
		"VIP":                       "/address?address=10.40.0.40",
		"no such name":              "Nothing found",
		"<script>alert(1)</script>": "Nothing found",
		"":                          "/pools",
	} {
		w := get(t, h, "/search?q="+url.QueryEscape(q))
		switch {
		case strings.HasPrefix(want, "/"):
			if w.Code != http.StatusSeeOther || w.Header().Get("Location") != want {
				t.Errorf("%q leads to %d %s, want %s: %s", q, w.Code, w.Header().Get("Location"), want, mainOf(w.Body.String()))
			}
		case w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "<script"):
			t.Errorf("%q: %d %s", q, w.Code, mainOf(w.Body.String()))
		}
	}
}

// A request for the effect of a change does not change the inventory.
func TestPlan_ChangesNothing(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	before := mustGet(t, h, "/pool?"+vlan40)
	for _, change := range []string{"reserve=10.40.0.32/29", "reserve=10.40.0.8/29", "cidr=10.40.0.0/25", "ranges=10.40.0.16-10.40.0.40", "unreserve=10.40.0.0/29"} {
		for range 3 {
			mustGet(t, h, "/plan?"+change+"&"+vlan40)
		}
		if after := mustGet(t, h, "/pool?"+vlan40); after != before {
			t.Errorf("%s has changed the page of the pool", change)
		}
	}
}

// The pages of a list together contain each claim that the filters select.
func TestClaims_FiltersAndPages(t *testing.T) {
	all := objects()
	for n := range 450 {
		all = append(all, allocation("corp", fmt.Sprintf("many-%03d", n), "many", fmt.Sprintf("10.64.%d.%d", n/250, n%250), fmt.Sprintf("10.64.%d.%d", n/250, n%250), butlerv1.TypeNodes))
	}
	h := handlerOf(newInventory(t, all))
	rows := regexp.MustCompile(`<tr><th scope="row">([^<]*)</th>`)
	seen := map[string]bool{}
	next := "/claims?tenant=team-1%2Fmany"
	pages := 0
	for ; next != ""; pages++ {
		page := mustGet(t, h, next)
		for _, match := range rows.FindAllStringSubmatch(page, -1) {
			seen[match[1]] = true
		}
		next = ""
		if match := regexp.MustCompile(`<a rel="next" href="([^"]*)"`).FindStringSubmatch(page); match != nil {
			next = html.UnescapeString(match[1])
		}
	}
	if pages != 3 || len(seen) != 450 {
		t.Errorf("%d pages with %d claims, want 3 with 450", pages, len(seen))
	}
	for filter, want := range map[string]int{
		"state=not-ready": 4, "state=Pending": 1, "state=Conflict": 1, "kind=ProxyVIP": 1, "kind=IPClaim": 1, vlan40: 4, "pool=NetworkPool/ns/corp": 451, "tenant=team-1/web&" + vlan40: 3,
	} {
		var list report.List[report.Claim]
		if err := json.Unmarshal([]byte(mustGet(t, h, "/claims.json?"+filter)), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != want {
			t.Errorf("%s: %d claims, want %d", filter, len(list.Items), want)
		}
	}
}

func TestLocalGate(t *testing.T) {
	address := netip.MustParseAddrPort("127.0.0.1:8080")
	newGate := func(t *testing.T) (*LocalGate, string) {
		t.Helper()
		g, err := NewLocalGate(handlerOf(newInventory(t, objects())), address)
		if err != nil {
			t.Fatal(err)
		}
		return g, strings.TrimPrefix(g.URL(), "http://"+address.String())
	}
	do := func(g *LocalGate, method, target, host string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, target, nil)
		r.Host = host
		for _, c := range cookies {
			r.AddCookie(c)
		}
		g.ServeHTTP(w, r)
		return w
	}
	const ours = "127.0.0.1:8080"

	t.Run("admits_one_browser", func(t *testing.T) {
		g, open := newGate(t)
		w := do(g, http.MethodGet, open, ours)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" || len(w.Result().Cookies()) != 1 {
			t.Fatalf("status %d, headers %v", w.Code, w.Header())
		}
		cookie := w.Result().Cookies()[0]
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || strings.Contains(open, cookie.Value) {
			t.Errorf("cookie %v", cookie)
		}
		for host, want := range map[string]int{ours: 200, "localhost:8080": 200, "evil.example": 421, "evil.example:8080": 421, "127.0.0.1": 421, "127.0.0.1:80": 421, "": 421} {
			if w := do(g, http.MethodGet, "/pools", host, cookie); w.Code != want {
				t.Errorf("host %q: status %d, want %d", host, w.Code, want)
			}
		}
		if w := do(g, http.MethodGet, open, ours); w.Code != http.StatusForbidden || len(w.Result().Cookies()) != 0 {
			t.Errorf("the second use of the token: status %d", w.Code)
		}
		cookie.Value += "x"
		if w := do(g, http.MethodGet, "/pools", ours, cookie); w.Code != http.StatusUnauthorized {
			t.Errorf("a wrong cookie: status %d", w.Code)
		}
	})

	t.Run("refuses_others", func(t *testing.T) {
		g, open := newGate(t)
		for _, target := range []string{"/", "/pools.json", "/style.css", "/no/such/page"} {
			if w := do(g, http.MethodGet, target, ours); w.Code != http.StatusUnauthorized || strings.Contains(w.Body.String(), "vlan40") || w.Header().Get("Content-Security-Policy") == "" {
				t.Errorf("%s without a cookie: status %d: %s", target, w.Code, w.Body)
			}
		}
		for _, target := range []string{"/open", "/open?token=", "/open?token=x", open + "x"} {
			if w := do(g, http.MethodGet, target, ours); w.Code != http.StatusForbidden || len(w.Result().Cookies()) != 0 {
				t.Errorf("%s: status %d", target, w.Code)
			}
		}
		if w := do(g, http.MethodGet, open, "evil.example"); w.Code != http.StatusMisdirectedRequest {
			t.Errorf("the token for another host: status %d", w.Code)
		}
		if w := do(g, http.MethodGet, open, ours); w.Code != http.StatusSeeOther {
			t.Errorf("the token after wrong tokens: status %d", w.Code)
		}
	})

	for _, public := range []string{"0.0.0.0:80", "192.0.2.1:80", "[::]:80", "[2001:db8::1]:80"} {
		if _, err := NewLocalGate(http.NotFoundHandler(), netip.MustParseAddrPort(public)); err == nil {
			t.Errorf("%s is accepted", public)
		}
	}
}

// BenchmarkPool serves the page of a pool with 10,000 claims and builds a new inventory
// for each page.
func BenchmarkPool(b *testing.B) {
	all := []metav1.Object{networkPool("pool", "10.0.0.0/16", "")}
	for n := range 10_000 {
		first := fmt.Sprintf("10.0.%d.%d", 4*n/256, 4*n%256)
		all = append(all, allocation("pool", fmt.Sprint("claim-", n), fmt.Sprint("c", n%500), first, fmt.Sprintf("10.0.%d.%d", 4*n/256, 4*n%256+n%3), butlerv1.TypeNodes))
	}
	restricted := func() *inventory.Inventory {
		i := inventory.NewRestricted(now, func(k inventory.Key) bool { return k.Name == "pool" })
		for _, o := range all {
			i.Add(o)
		}
		return i
	}
	for reader, build := range map[string]func() *inventory.Inventory{"all": func() *inventory.Inventory { return newInventory(b, all) }, "restricted": restricted} {
		h := New(Options{View: func(context.Context) (View, error) { return View{Inventory: build()}, nil }, Now: func() time.Time { return now }})
		for _, target := range []string{"/pools", "/pool?pool=NetworkPool/ns/pool", "/claims"} {
			page, _, _ := strings.Cut(target, "?")
			b.Run(reader+page, func(b *testing.B) {
				for b.Loop() {
					mustGet(b, h, target)
				}
			})
		}
	}
}

// The pages of a pool with several networks start at the first network, and link the
// others.
func TestPool_SeveralNetworks(t *testing.T) {
	i := inventory.New(now, nil)
	i.Add(&novaedgev1.ProxyIPPool{ObjectMeta: named("", "edge"), Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"203.0.113.0/24", "2001:db8:200::/120", "10.1.0.0/24"}}})
	h := handlerOf(i)
	page := mustGet(t, h, "/pool?pool=ProxyIPPool/edge")
	for _, want := range []string{
		`Map of 10.1.0.0/24`, `<a href="/pool?in=203.0.113.0%2F24&amp;pool=ProxyIPPool%2Fedge">203.0.113.0/24</a>`,
		`<a href="/pool?in=2001%3Adb8%3A200%3A%3A%2F120&amp;pool=ProxyIPPool%2Fedge">2001:db8:200::/120</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, mainOf(page))
		}
	}
	if page := mustGet(t, h, "/pool?pool=ProxyIPPool/edge&in=2001:db8:200::/120"); !strings.Contains(page, "Map of 2001:db8:200::/120") {
		t.Errorf("the map of IPv6: %s", mainOf(page))
	}
}

// The allocated share of a pool is rounded as in the conditions of the pool.
func TestPools_RoundsAsTheManager(t *testing.T) {
	i := inventory.New(now, nil)
	i.Add(networkPool("vlan40", "10.40.0.0/26", ""))
	i.Add(allocation("vlan40", "web", "web", "10.40.0.0", "10.40.0.29", butlerv1.TypeNodes))
	if page := mustGet(t, handlerOf(i), "/pools"); !strings.Contains(page, "47 % allocated") {
		t.Errorf("30 of 64 addresses: %s", mainOf(page))
	}
}

// A note about overlapping pools names each pool with its namespace, and with its kind if
// the kinds differ.
func TestPools_NotesNameOtherPools(t *testing.T) {
	i := inventory.New(now, nil)
	other := networkPool("small", "10.40.0.0/28", "")
	other.ObjectMeta = named("team-b", "small")
	i.Add(networkPool("small", "10.40.0.0/26", ""))
	i.Add(other)
	i.Add(&novaedgev1.ProxyIPPool{ObjectMeta: named("", "small"), Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"10.40.0.0/28"}}})
	page := mustGet(t, handlerOf(i), "/pools")
	for _, want := range []string{"shares addresses with team-b/small, ProxyIPPool small", "shares addresses with ns/small, ProxyIPPool small", "shares addresses with NetworkPool ns/small, NetworkPool team-b/small"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, mainOf(page))
		}
	}
}

// The ranges of a pool as CSV are those of all its networks, unless the query selects a
// part. JSON names the networks that it leaves out.
func TestPool_CSVOfDualStack(t *testing.T) {
	i := newInventory(t, objects())
	i.Add(&novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "dual", UID: "dual", ResourceVersion: "1"}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"10.46.0.0/30", "2001:db8:46::/126"}}})
	h := handlerOf(i)
	const pool, header, v4, v6 = "pool=ProxyIPPool/dual", "range,size,domain,state,owner,tenant,purpose,since,until\n", "10.46.0.1-10.46.0.2,2,,free,,,,,\n", "2001:db8:46::1-2001:db8:46::3,3,,free,,,,,\n"
	for target, want := range map[string]string{"/pool.csv?" + pool: header + v4 + v6, "/pool.csv?" + pool + "&in=10.46.0.0/30": header + v4, "/pool.csv?" + pool + "&in=2001:db8:46::/126": header + v6} {
		if got := mustGet(t, h, target); strings.ReplaceAll(got, "\r\n", "\n") != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	if got := mustGet(t, h, "/pool.json?"+pool); !strings.Contains(got, `"2001:db8:46::/126"`) {
		t.Errorf("the document does not name the other network: %s", got)
	}
}
