package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// Two persons open butler-ipam console, each in its own browser and with a token as the
// password. On each page that links lead to, a person sees no name of the other person's
// objects, and the addresses of these objects as owned. A browser without a token gets
// status 401.
func TestPersons(t *testing.T) {
	s, admin := suite.StartSandbox(t, sandbox.Options{Replicas: 1})
	namespaces := []string{suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)}
	for n, ns := range namespaces {
		p := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool-of-" + ns}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.97.0.0/24", RoutingDomain: "shared"}}
		claim := suite.Kinds[0].Claim(ns, "claim-of-"+ns, fmt.Sprintf("10.97.0.%d", 10*(n+1)))
		suite.Kinds[0].Repool(claim, p.Name)
		suite.Create(t, admin, p, claim)
	}
	c := suite.StartConsole(t, s, admin, "../..")
	browsers := make([]*browser, len(namespaces))
	for n, ns := range namespaces {
		token := suite.CreatePerson(t, admin, ns, "person", map[string]string{"butler-ipam-console-user": "", "butler-ipam-viewer": ns})
		browsers[n] = startBrowser(t, c.URL)
		b := browsers[n]
		for deadline := time.Now().Add(pageTimeout); ; time.Sleep(100 * time.Millisecond) { // wait until the roles have taken effect
			b.do(t, chromedp.Navigate(strings.Replace(c.URL, "https://", "https://me:"+token+"@", 1)+"/pools"))
			if eval[bool](t, b, "document.querySelector('input[name=namespace]') !== null") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(eval[string](t, b, "document.body.innerText"))
			}
		}
		b.mu.Lock()
		b.messages = nil // drop the messages about responses before the roles had taken effect
		b.mu.Unlock()
		b.follow(t, chromedp.SendKeys(chromedp.CSS("input[name=namespace]"), ns+kb.Enter))
		if text := eval[string](t, b, "document.querySelector('main').innerText"); !strings.Contains(text, "pool-of-"+ns) {
			t.Fatalf("the pool of the person is missing: %s", text)
		}
	}
	for n, ns := range namespaces {
		b, other := browsers[n], namespaces[1-n]
		seen := map[string]bool{}
		for queue := []string{"/pools", "/claims", "/health", "/address?address=10.97.0.10", "/address?address=10.97.0.20"}; len(queue) > 0 && len(seen) < 25; queue = queue[1:] {
			if seen[queue[0]] {
				continue
			}
			seen[queue[0]] = true
			b.open(t, queue[0])
			if page := eval[string](t, b, "document.documentElement.outerHTML"); strings.Contains(page, other) {
				t.Fatalf("%s names %s to a person of %s: %s", queue[0], other, ns, page)
			}
			queue = append(queue, eval[[]string](t, b, "[...document.querySelectorAll('a')].map(a => a.getAttribute('href')).filter(h => h.startsWith('/') && !h.includes('.json') && !h.includes('.csv') && !h.includes('refresh'))")...)
		}
		b.open(t, "/pool?pool=NetworkPool/"+ns+"/pool-of-"+ns)
		for title, class := range map[string]string{fmt.Sprintf("10.97.0.%d owned by IPAllocation %s/claim-of-%s", 10*(n+1), ns, ns): "nodes", fmt.Sprintf("10.97.0.%d owned by an object that you may not list", 10*(2-n)): "other"} {
			if got := eval[string](t, b, square(title)+"?.getAttribute('class') ?? 'missing'"); got != class {
				t.Errorf("%s: class %q, want %q", title, got, class)
			}
		}
		for _, scheme := range []string{"light", "dark"} {
			b.media(t, scheme)
			if bad := eval[[]string](t, b, lowContrast); bad[0] == "0" || len(bad) > 1 {
				t.Errorf("%s: %s texts, of which these have too little contrast: %q", scheme, bad[0], bad[1:])
			}
		}
	}
	t.Run("without_a_token", func(t *testing.T) {
		b := startBrowser(t, c.URL)
		_, err := chromedp.RunResponse(b, chromedp.Navigate(c.URL+"/pools"))
		if err == nil || !strings.Contains(err.Error(), "ERR_INVALID_AUTH_CREDENTIALS") { // error of the browser for status 401 without an answer to the password dialog
			t.Errorf("want status 401, got %v", err)
		}
		if page := eval[string](t, b, "document.documentElement?.outerHTML ?? ''"); strings.Contains(page, namespaces[0]) || strings.Contains(page, "10.97") {
			t.Errorf("%s", page)
		}
		b.mu.Lock()
		b.messages = nil // drop the message about the status
		b.mu.Unlock()
	})
}
