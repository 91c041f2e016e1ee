package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/console"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// pageTimeout bounds a step in the browser.
const pageTimeout = 30 * time.Second

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
}

func pool(name, cidr string, reserved ...string) *butlerv1.NetworkPool {
	p := &butlerv1.NetworkPool{ObjectMeta: meta(name), Spec: butlerv1.NetworkPoolSpec{CIDR: cidr, RoutingDomain: name}}
	for _, network := range reserved {
		p.Spec.Reserved = append(p.Spec.Reserved, butlerv1.ReservedRange{CIDR: network})
	}
	return p
}

func claim(pool, name, tenant, first, last string, purpose butlerv1.IPAllocationType) *butlerv1.IPAllocation {
	return &butlerv1.IPAllocation{
		ObjectMeta: meta(name),
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: pool}, Type: purpose, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: "team-1", Name: tenant},
			PinnedRange: &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last},
		},
		Status: butlerv1.IPAllocationStatus{Conditions: []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionTrue}}},
	}
}

// objects returns pools and claims: a /21 with owners of each kind, a reservation, a
// cooldown and a conflict; a /8; an IPv6 /64; a /16 with 10,000 claims.
func objects() []metav1.Object {
	vlan := pool("vlan40", "10.40.0.0/21", "10.40.0.0/26")
	vlan.Spec.TenantAllocation = &butlerv1.TenantAllocation{
		Ranges: []butlerv1.IPRange{{Start: "10.40.0.0", End: "10.40.6.255"}}, Defaults: &butlerv1.AllocationDefaults{NodesPerTenant: 5, LBPoolPerTenant: 8},
	}
	vlan.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
	reusable := metav1.NewTime(now.Add(30 * time.Minute))
	vlan.Status.Releases = []butlerv1.Release{{
		Name: "gone", Tenant: butlerv1.RecordedReference{Namespace: "team-1", Name: "old"}, StartAddress: "10.40.1.60", EndAddress: "10.40.1.63",
		ReleasedAt: metav1.NewTime(now.Add(-30 * time.Minute)), ReusableAt: &reusable,
	}}
	rival := claim("vlan40", "rival", "web", "10.40.1.12", "10.40.1.12", butlerv1.TypeNodes)
	rival.CreationTimestamp = metav1.NewTime(now)
	rival.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionFalse, Reason: butlerv1.ReasonAddressConflict, Message: "owned by another claim"}}
	inVLAN := map[string]string{butlerv1.LabelRoutingDomain: "vlan40"}
	edge := &novaedgev1.ProxyIPPool{ObjectMeta: meta("edge"), Spec: novaedgev1.ProxyIPPoolSpec{Addresses: []string{"10.40.1.20/32"}}}
	vip := &novaedgev1.ProxyVIP{ObjectMeta: meta("vip"), Spec: novaedgev1.ProxyVIPSpec{Address: "10.40.1.20/32", PoolRef: &novaedgev1.PoolReference{Name: "edge"}}}
	machines := &metal3v1.IPPool{ObjectMeta: meta("machines"), Spec: metal3v1.IPPoolSpec{Pools: []metal3v1.Pool{{Subnet: new("10.40.1.16/28")}}}}
	machine := &metal3v1.IPClaim{ObjectMeta: meta("machine"), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "machines"}}}
	edge.Namespace, vip.Namespace, edge.Labels, machines.Labels, machine.Annotations = "", "", inVLAN, inVLAN, map[string]string{"ipAddress": "10.40.1.21"}
	all := []metav1.Object{
		edge, machines, vip, machine, vlan, pool("corp", "10.0.0.0/8", "10.0.0.0/12"), pool("v6", "2001:db8:40::/64"), pool("many", "10.96.0.0/16"),
		claim("vlan40", "web-nodes", "web", "10.40.1.5", "10.40.1.11", butlerv1.TypeNodes), claim("vlan40", "one", "web", "10.40.1.12", "10.40.1.12", butlerv1.TypeNodes),
		claim("vlan40", "web-lb", "web", "10.40.1.13", "10.40.1.14", butlerv1.TypeLoadBalancer), rival, claim("corp", "big", "web", "10.16.0.0", "10.21.126.63", butlerv1.TypeLoadBalancer), claim("v6", "six", "web", "2001:db8:40::100", "2001:db8:40::186f", butlerv1.TypeNodes),
	}
	for n := range 10_000 {
		first, last := fmt.Sprintf("10.96.%d.%d", 4*n/256, 4*n%256), fmt.Sprintf("10.96.%d.%d", 4*n/256, 4*n%256+n%3)
		all = append(all, claim("many", fmt.Sprint("claim-", n), fmt.Sprint("c-", n%500), first, last, []butlerv1.IPAllocationType{butlerv1.TypeNodes, butlerv1.TypeLoadBalancer}[n%2]))
	}
	return all
}

// browser is a browser with the pages of the console. messages collects the messages in
// the developer console of the browser.
type browser struct {
	context.Context
	base string

	mu       sync.Mutex
	messages []string
}

// newBrowser serves the pages and opens the first page in a browser.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	i := inventory.New(now, nil)
	for _, o := range objects() {
		i.Add(o)
	}
	pages := console.New(console.Options{
		View: func(context.Context) (console.View, error) {
			return console.View{Inventory: i, Warnings: []string{"proxyvips: not read"}}, nil
		},
		Events: func(context.Context, *inventory.Pool) ([]inventory.Event, string) {
			return []inventory.Event{{Warning: true, Reason: "PoolCapacityWarning", Message: "70 % of the addresses are allocated", Count: 2, Last: now}}, "events may be out of date"
		},
		Tenant: func(context.Context, string, string) inventory.Tenant {
			c := &butlerv1.TenantCluster{ObjectMeta: meta("web")}
			c.Status.Conditions = []metav1.Condition{{
				Type: butlerv1.ConditionNetworkReady, Status: metav1.ConditionTrue, Reason: butlerv1.ReasonReady, Message: "nodes 10.40.1.5-10.40.1.11", LastTransitionTime: metav1.NewTime(now),
			}}
			return inventory.NewTenant(c, nil)
		},
		Now: func() time.Time { return now }, Version: "test",
	})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(listener.Addr().String())
	gate, err := console.NewLocalGate(pages, address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: gate, ReadHeaderTimeout: pageTimeout}
	go server.Serve(listener) //nolint:errcheck // ends with the test
	t.Cleanup(func() { _ = server.Close() })
	b := startBrowser(t, "http://"+address.String())
	b.do(t, chromedp.Navigate(gate.URL()))
	return b
}

// startBrowser starts a browser for the pages at a URL. The test fails if the developer
// console of the browser contains a message.
func startBrowser(t *testing.T, base string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()),
		chromedp.IgnoreCertErrors, // for butler-ipam console, which serves a certificate of the test
		chromedp.Flag("disable-features", "Translate,BackForwardCache")) // pages from the back-forward cache load without the events that chromedp waits for
	if os.Geteuid() == 0 { // Chromium's own sandbox does not run as root
		options = append(options, chromedp.NoSandbox)
	}
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	b := &browser{Context: ctx, base: base}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.messages = append(b.messages, m.String())
			b.mu.Unlock()
		}
	}()
	b.do(t, chromedp.EmulateViewport(1200, 1000))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.messages) > 0 {
			t.Errorf("the browser reports: %q", b.messages)
		}
	})
	return b
}

// chromium returns the path of the browser.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium: install it with make console-packages, or name one in CHROMIUM")
	return ""
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, pageTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

// open opens a page.
func (b *browser) open(t *testing.T, target string) {
	t.Helper()
	b.do(t, chromedp.Navigate(b.base+target))
}

// follow runs a step that opens a page, and waits for the page.
func (b *browser) follow(t *testing.T, step chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, pageTimeout)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, step); err != nil {
		t.Fatal(err)
	}
}

// eval returns the value of a JavaScript expression on the page.
func eval[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, pageTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// location returns the path and the query of the page.
func (b *browser) location(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(eval[string](t, b, "location.href"), b.base)
}

func (b *browser) media(t *testing.T, scheme string) {
	t.Helper()
	_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		t.Fatal(err)
	}
}

// square returns a JavaScript expression for the square whose title begins with a text.
func square(title string) string {
	text, _ := json.Marshal(title)
	return fmt.Sprintf("[...document.querySelectorAll('.squares rect')].find(r => r.querySelector('title').textContent.startsWith(%s))", text)
}

// clickSquare clicks on a square with the mouse, and waits for the page of the square's
// link.
func (b *browser) clickSquare(t *testing.T, title string) {
	t.Helper()
	at := eval[[]float64](t, b, fmt.Sprintf("(s => { s.scrollIntoView({block: 'center'}); const r = s.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] })(%s)", square(title)))
	b.follow(t, chromedp.MouseClickXY(at[0], at[1]))
}

const (
	vlan40 = "/pool?pool=NetworkPool/ns/vlan40"
	corp   = "/pool?pool=NetworkPool/ns/corp"
)

func TestMap(t *testing.T) {
	b := newBrowser(t)
	if at := b.location(t); at != "/" {
		t.Fatalf("the token leads to %s", at)
	}
	b.open(t, vlan40)
	if n := eval[int](t, b, "document.querySelectorAll('.squares rect').length"); n != 2048 {
		t.Errorf("%d squares, want 2048", n)
	}
	if n := eval[int](t, b, "new Set([...document.querySelectorAll('.squares rect')].map(r => r.getBoundingClientRect().top)).size"); n != 32 {
		t.Errorf("%d rows, want 32", n)
	}
	for title, class := range map[string]string{
		"10.40.0.0 reserved": "reserved", "10.40.1.0 free": "free", "10.40.1.5 owned by IPAllocation ns/web-nodes for team-1/web": "nodes",
		"10.40.1.12 conflict": "conflict", "10.40.1.13 owned by": "loadbalancer", "10.40.1.60 in cooldown until 2026-01-02T03:34:05Z": "cooldown", "10.40.7.0 not offered": "outside",
		"10.40.1.20 owned by ProxyVIP vip": "vip", "10.40.1.21 owned by IPClaim ns/machine": "machine",
	} {
		if got := eval[string](t, b, square(title)+"?.getAttribute('class') ?? 'missing'"); got != class {
			t.Errorf("%s: class %q, want %q", title, got, class)
			continue
		}
		fill := eval[string](t, b, "getComputedStyle("+square(title)+").fill")
		if pattern := !slices.Contains([]string{"free", "nodes", "loadbalancer", "vip", "outside"}, class); pattern != strings.Contains(fill, "url(") {
			t.Errorf("%s: fill %s, want a pattern: %v", class, fill, pattern)
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		b.media(t, scheme)
		if looks := eval[[]string](t, b, closeColours); looks[0] != "11" || len(looks) > 1 {
			t.Errorf("%s: %s colours, want 11; these are too close: %q", scheme, looks[0], looks[1:])
		}
	}
	// Each reference to a pattern resolves.
	if n := eval[int](t, b, "[...document.querySelectorAll('[fill^=url]')].filter(r => !document.querySelector(r.getAttribute('fill').slice(4, -1))).length"); n != 0 {
		t.Errorf("%d squares refer to a pattern that does not exist", n)
	}
	b.clickSquare(t, "10.40.1.5 ")
	if at := b.location(t); at != "/address?address=10.40.1.5" {
		t.Errorf("the square of 10.40.1.5 leads to %s", at)
	}
	if text := eval[string](t, b, "document.querySelector('main').innerText"); !strings.Contains(text, "owned by IPAllocation ns/web-nodes") || !strings.Contains(text, "kubectl get ipallocation -n ns web-nodes -o yaml") {
		t.Error(text)
	}
}

// closeColours lists the pairs of classes of squares with similar colours: their distance
// in RGB is less than 40. The colour of a pattern is its background colour.
const closeColours = `(() => {
  const colours = {};
  for (const e of document.querySelectorAll('.legend rect')) {
    const fill = getComputedStyle(e).fill, name = e.getAttribute('class'), ground = document.querySelector('#' + name + ' .' + name);
    if (ground || fill.startsWith('rgb')) colours[name] = getComputedStyle(ground ?? e).fill.match(/\d+/g).map(Number);
  }
  const names = Object.keys(colours), close = [];
  names.forEach((x, n) => names.slice(0, n).forEach(y => {
    if (Math.hypot(...colours[x].map((v, k) => v - colours[y][k])) < 40) close.push(x + ' and ' + y);
  }));
  return [String(names.length), ...close];
})()`

func TestMap_ZoomAndBack(t *testing.T) {
	b := newBrowser(t)
	b.open(t, corp)
	zoom := func(title, want string) {
		t.Helper()
		b.clickSquare(t, title)
		if at := b.location(t); at != want {
			t.Fatalf("%s leads to %s, want %s", title, at, want)
		}
	}
	zoom("10.21.96.0/19 ", "/pool?in=10.21.96.0%2F19&pool=NetworkPool%2Fns%2Fcorp")
	zoom("10.21.126.64/30 ", "/pool?in=10.21.126.64%2F26&pool=NetworkPool%2Fns%2Fcorp")
	if got := eval[string](t, b, square("10.21.126.64 ")+".getAttribute('class')"); got != "free" {
		t.Errorf("10.21.126.64 is %s", got)
	}
	b.follow(t, chromedp.Click(chromedp.CSS(".crumbs li:nth-child(2) a")))
	if at := b.location(t); at != "/pool?in=10.21.96.0%2F19&pool=NetworkPool%2Fns%2Fcorp" {
		t.Errorf("the breadcrumb leads to %s", at)
	}
	b.do(t, chromedp.NavigateBack())
	if at := b.location(t); !strings.Contains(at, "in=10.21.126.64%2F26") {
		t.Errorf("back leads to %s", at)
	}
	// The page of an IPv6 pool begins with the list of ranges.
	b.open(t, "/pool?pool=NetworkPool/ns/v6")
	if got := eval[string](t, b, "[...document.querySelectorAll('main section')].map(s => s.getAttribute('aria-labelledby')).join()"); !strings.HasPrefix(got, "ranges,map") {
		t.Errorf("sections %s", got)
	}
	if got := eval[string](t, b, "document.querySelector('[aria-current=page]').innerText"); got != "2001:db8:40::/115" {
		t.Errorf("the page of the IPv6 pool begins at %s", got)
	}
}

func TestForms(t *testing.T) {
	b := newBrowser(t)
	b.follow(t, chromedp.SendKeys(chromedp.ID("q"), "team-1/web"+kb.Enter))
	if at := b.location(t); at != "/tenant?tenant=team-1%2Fweb" {
		t.Errorf("the search leads to %s", at)
	}
	b.follow(t, chromedp.SendKeys(chromedp.ID("q"), "10.40.1.6"+kb.Enter))
	if at := b.location(t); at != "/address?address=10.40.1.6" {
		t.Errorf("the search leads to %s", at)
	}
	for reserve, want := range map[string]string{"10.40.1.0/29": "The change would be denied.", "10.40.2.0/24": "The change would be accepted."} {
		b.open(t, vlan40)
		b.do(t, chromedp.SendKeys(chromedp.CSS("input[name=reserve]"), reserve))
		b.follow(t, chromedp.Click(chromedp.CSS("form[action='/plan'] button")))
		if got := eval[string](t, b, "document.querySelector('.verdict').innerText"); got != want {
			t.Errorf("reserve %s: %s, want %s", reserve, got, want)
		}
	}
	b.open(t, vlan40)
	b.do(t, chromedp.SendKeys(chromedp.CSS("input[name=nodes]"), "5"), chromedp.SendKeys(chromedp.CSS("input[name=loadbalancer]"), "8"))
	b.follow(t, chromedp.Click(chromedp.CSS("form[action='/fit'] button")))
	if got := eval[string](t, b, "document.querySelector('.verdict').innerText"); !strings.Contains(got, " more fit.") {
		t.Errorf("fit: %s", got)
	}
	b.open(t, "/claims")
	b.do(t, chromedp.SetValue(chromedp.CSS("select[name=state]"), "Conflict"))
	b.follow(t, chromedp.Click(chromedp.CSS("main form button")))
	if got := eval[string](t, b, "document.querySelector('tbody').innerText"); !strings.Contains(got, "ns/rival") || strings.Contains(got, "web-nodes") {
		t.Errorf("claims in conflict: %s", got)
	}
}

// The browser reloads a page with refresh without a script, until the person follows the
// link that switches refresh off.
func TestRefresh(t *testing.T) {
	b := newBrowser(t)
	b.open(t, "/claims?state=Conflict")
	b.follow(t, chromedp.Click(chromedp.CSS("footer a[href*=refresh]")))
	if at := b.location(t); at != "/claims?refresh=10&state=Conflict" {
		t.Fatalf("the link leads to %s", at)
	}
	b.open(t, "/claims?refresh=5&state=Conflict")
	for range 2 {
		eval[bool](t, b, "window.loadedBefore = true")
		for deadline := time.Now().Add(pageTimeout); eval[bool](t, b, "window.loadedBefore === true || document.readyState !== 'complete'"); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the page has not been loaded again")
			}
		}
	}
	if at := b.location(t); at != "/claims?refresh=5&state=Conflict" {
		t.Errorf("the page has become %s", at)
	}
	b.follow(t, chromedp.Click(chromedp.CSS("footer p:last-child a")))
	if at := b.location(t); at != "/claims?state=Conflict" {
		t.Errorf("stop refreshing leads to %s", at)
	}
}

// In a narrow window, only the band and the list are visible, and no page is wider than
// the window.
func TestNarrowWindow(t *testing.T) {
	b := newBrowser(t)
	for width, visible := range map[int64]bool{640: false, 400: false, 900: true} {
		b.do(t, chromedp.EmulateViewport(width, 900))
		for _, target := range []string{"/pools", vlan40, "/claims", "/address?address=10.40.1.5", "/pool?pool=NetworkPool/ns/v6", "/health", "/tenant?tenant=team-1/web"} {
			b.open(t, target)
			if over := eval[int](t, b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("%s is %d pixels wider than a window of %d", target, over, width)
			}
		}
		b.open(t, vlan40)
		for selector, want := range map[string]bool{".squares": visible, ".band": true, ".ranges": true} {
			if got := eval[bool](t, b, fmt.Sprintf("document.querySelector('%s').getBoundingClientRect().height > 0", selector)); got != want {
				t.Errorf("%d pixels: %s is visible: %v, want %v", width, selector, got, want)
			}
		}
	}
}

// lowContrast lists the texts whose contrast to the background is lower than WCAG AA
// requires.
const lowContrast = `(() => {
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m };
  const luminance = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c } return [255, 255, 255, 1] };
  const bad = new Set();
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n; n = walker.nextNode();) {
    const e = n.parentElement, box = e.getBoundingClientRect();
    if (!n.textContent.trim() || e.closest('title, defs') || !box.width) continue;
    texts++;
    const style = getComputedStyle(e), front = parse(e instanceof SVGElement ? style.fill : style.color);
    const [x, y] = [luminance(front), luminance(ground(e))], ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (ratio < 4.5) bad.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2) + ' ' + n.textContent.trim().slice(0, 30));
  }
  return [String(texts), ...bad];
})()`

func TestContrastAndDarkMode(t *testing.T) {
	b := newBrowser(t)
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.media(t, scheme)
		for _, target := range []string{"/pools", vlan40, "/claims?tenant=team-1/web", "/address?address=10.40.1.0", "/health", "/tenant?tenant=team-1/web", "/plan?reserve=10.40.1.0/29&" + strings.TrimPrefix(vlan40, "/pool?")} {
			b.open(t, target)
			bad := eval[[]string](t, b, lowContrast)
			if bad[0] == "0" || len(bad) > 1 {
				t.Errorf("%s, %s: %s texts, of which these have too little contrast: %q", target, scheme, bad[0], bad[1:])
			}
		}
		b.open(t, vlan40)
		grounds[scheme] = eval[string](t, b, "getComputedStyle(document.body).backgroundColor + getComputedStyle("+square("10.40.1.0 free")+").fill")
	}
	if grounds["light"] == grounds["dark"] {
		t.Errorf("dark mode looks as light mode: %v", grounds)
	}
}

// Each control has a name for screen readers. The first element that the keyboard reaches
// is a link to the content, and the keyboard reaches no square.
func TestNamesAndKeyboard(t *testing.T) {
	b := newBrowser(t)
	needsName := map[string]bool{"link": true, "button": true, "textbox": true, "searchbox": true, "combobox": true, "image": true, "img": true, "navigation": true, "region": true}
	for _, target := range []string{"/pools", vlan40, corp, "/claims?tenant=team-1/web", "/address?address=10.40.1.0", "/search?q=web", "/health", "/tenant?tenant=team-1/web"} {
		b.open(t, target)
		tree, err := chromedp.Call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, node := range tree.Nodes {
			role, name := text(node.Role), text(node.Name)
			if node.Ignored || !needsName[role] {
				continue
			}
			if checked++; strings.TrimSpace(name) == "" {
				t.Errorf("%s: a %s has no name", target, role)
			}
		}
		if checked < 5 {
			t.Errorf("%s: %d nodes: the test shows nothing", target, checked)
		}
		for _, landmark := range []string{"header", "main", "footer", "h1", "html[lang=en]"} {
			if n := eval[int](t, b, fmt.Sprintf("document.querySelectorAll('%s').length", landmark)); n != 1 {
				t.Errorf("%s: %d %s, want 1", target, n, landmark)
			}
		}
	}
	b.open(t, vlan40)
	b.do(t, chromedp.KeyEvent(kb.Tab))
	if got := eval[string](t, b, "document.activeElement.innerText"); got != "Skip to the content" {
		t.Errorf("the first stop of the keyboard is %q", got)
	}
	if n := eval[int](t, b, "[...document.querySelectorAll('.squares a')].filter(a => a.tabIndex >= 0).length"); n != 0 {
		t.Errorf("the keyboard stops at %d squares", n)
	}
}

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	if err := json.Unmarshal(v.Value, &s); err != nil {
		return ""
	}
	return s
}

// The Content-Security-Policy of the pages is in force: the browser does not run a script
// in a page, and reports the attempt.
func TestPolicy(t *testing.T) {
	b := newBrowser(t)
	b.open(t, vlan40)
	if n := eval[int](t, b, "document.scripts.length + document.querySelectorAll('[style], style, iframe, object').length"); n != 0 {
		t.Errorf("%d scripts, styles or frames in the page", n)
	}
	got := eval[string](t, b, `(() => { const s = document.createElement('script'); s.textContent = 'window.ran = true'; document.body.append(s); return String(window.ran) })()`)
	if got != "undefined" {
		t.Errorf("a script in the page runs: %s", got)
	}
	deadline := time.Now().Add(pageTimeout)
	for reported := false; !reported; time.Sleep(10 * time.Millisecond) {
		b.mu.Lock()
		for _, m := range b.messages {
			reported = reported || strings.Contains(m, "Content Security Policy")
		}
		if reported {
			b.messages = nil // drop the message about the script of this test
		}
		b.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal(errors.New("the browser does not report the script"))
		}
	}
}

// The browser measures the times of the pages of a pool with 10,000 claims. The test logs
// the times and has no limit for the times.
func TestManyClaims(t *testing.T) {
	b := newBrowser(t)
	for _, target := range []string{"/pools", "/pool?pool=NetworkPool/ns/many", "/claims", "/health"} {
		b.open(t, target)
		times := eval[[]float64](t, b, "(e => [e.responseEnd - e.requestStart, e.domComplete - e.requestStart, e.decodedBodySize])(performance.getEntriesByType('navigation')[0])")
		t.Logf("%s: response %.0f ms, complete %.0f ms, %.0f kB", target, times[0], times[1], times[2]/1000)
		if rows := eval[int](t, b, "document.querySelectorAll('tbody tr').length"); rows == 0 || rows > 250 {
			t.Errorf("%s: %d rows", target, rows)
		}
	}
}
