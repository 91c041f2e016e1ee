package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// ui is a running kubectl ipam ui, with a client that keeps cookies as a browser does.
type ui struct {
	command *exec.Cmd
	address string // address with the token
	client  *http.Client
}

// startUI runs kubectl ipam ui with a kubeconfig, and opens the address. The test fails
// if the command returns an error after the test interrupts the command.
func startUI(t *testing.T, kubeconfig string, args ...string) *ui {
	t.Helper()
	u := &ui{command: exec.CommandContext(context.WithoutCancel(t.Context()), binary, append([]string{"ui"}, args...)...)}
	u.command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	u.command.Stderr = os.Stderr
	out, err := u.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	u.address = strings.TrimSpace(line)
	t.Cleanup(func() {
		if err := u.stop(); err != nil {
			t.Errorf("kubectl ipam ui: %v", err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	u.client = &http.Client{Jar: jar}
	response, err := u.client.Get(u.address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", u.address, response.Status)
	}
	return u
}

func (u *ui) stop() error {
	if err := u.command.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	return u.command.Wait()
}

// get returns a page.
func (u *ui) get(target string) (string, error) {
	base, err := url.Parse(u.address)
	if err != nil {
		return "", err
	}
	response, err := u.client.Get("http://" + base.Host + target)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", target, response.Status, body)
	}
	return string(body), err
}

func (u *ui) mustGet(t *testing.T, target string) string {
	t.Helper()
	page, err := u.get(target)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// eventually waits until a page contains a text; with contains false, until the page does
// not contain the text.
func (u *ui) eventually(t *testing.T, target, text string, contains bool) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		page, err := u.get(target)
		if err == nil && strings.Contains(page, text) != contains {
			err = fmt.Errorf("%s: contains %q: %v, want %v", target, text, !contains, contains)
		}
		return err
	})
}

// The pages follow the creation and deletion of objects.
func TestUI_FollowsTheObjects(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.90.0.0/24", ns))
	u := startUI(t, cluster.Kubeconfig())
	pool := "/pool?pool=NetworkPool/" + ns + "/pool"
	u.eventually(t, pool, "<title>10.90.0.0 free</title>", true)

	claim := suite.Kinds[0].Claim(ns, "claim", "10.90.0.0")
	suite.Create(t, admin, claim)
	u.eventually(t, pool, "<title>10.90.0.0 owned by IPAllocation "+ns+"/claim for team/web</title>", true)
	u.eventually(t, "/claims?pool=NetworkPool/"+ns+"/pool", "<td>Ready</td>", true)
	u.eventually(t, "/address?address=10.90.0.0", "kubectl get ipallocation -n "+ns+" claim -o yaml", true)

	later := networkPool(ns, "later", "10.90.1.0/24", ns)
	suite.Create(t, admin, later)
	u.eventually(t, "/pools", ns+"/later", true)

	suite.Delete(t, admin, claim)
	u.eventually(t, pool, "<title>10.90.0.0 free</title>", true)
	u.eventually(t, "/claims?pool=NetworkPool/"+ns+"/pool", "IPAllocation "+ns+"/claim", false)
	suite.Delete(t, admin, later)
	u.eventually(t, "/pools", ns+"/later", false)
}

// The JSON and CSV of the pages equal the output of the commands.
func TestUI_EqualsTheCommands(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.91.0.0/24", ns))
	for n := range 20 {
		claim := suite.Kinds[0].Claim(ns, fmt.Sprint("claim-", n), "").(*butlerv1.IPAllocation)
		claim.Spec.Count = new(int32(1 + n%3))
		suite.Create(t, admin, claim)
	}
	suite.Eventually(t, suite.Soon, func(context.Context) error { // wait until the states of the claims no longer change
		if out := ipam(t, "claims", "--not-ready", "-A", "--domain", ns).stdout; out != "" {
			return fmt.Errorf("not ready: %s", out)
		}
		return nil
	})
	u := startUI(t, cluster.Kubeconfig())
	pool := "pool=NetworkPool/" + ns + "/pool"
	for target, args := range map[string][]string{
		"/pool.json?" + pool: {"map", ns + "/pool", "-o", "json"}, "/pool.csv?" + pool: {"map", ns + "/pool", "-o", "csv"},
		"/pool.json?in=10.91.0.0/28&" + pool: {"map", ns + "/pool", "--in", "10.91.0.0/28", "-o", "json"},
		"/claims.json?" + pool:               {"claims", "--pool", ns + "/pool", "-o", "json"},
		"/fit.json?count=3&" + pool:          {"fit", ns + "/pool", "--count", "3", "-o", "json"},
		"/address.json?address=10.91.0.1":    {"who", "10.91.0.1", "-o", "json"},
	} {
		if page, out := u.mustGet(t, target), ipam(t, args...).stdout; page != out {
			t.Errorf("%s differs from kubectl ipam %s:\n%s\n%s", target, strings.Join(args, " "), page, out)
		}
	}
	var page, command map[string]any
	if err := json.Unmarshal([]byte(u.mustGet(t, "/plan.json?reserve=10.91.0.0/29&"+pool)), &page); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(ipam(t, "plan", ns+"/pool", "--reserve", "10.91.0.0/29", "-o", "json").stdout), &command); err != nil {
		t.Fatal(err)
	}
	delete(command, "server") // the page makes no dry run on the API server
	if x, y := fmt.Sprint(page), fmt.Sprint(command); x != y || !strings.Contains(x, "would become reserved") {
		t.Errorf("the plans differ:\n%s\n%s", x, y)
	}
}

// The API server accepts the manifests that the pages offer to copy.
func TestUI_ClaimsToCopyAreAccepted(t *testing.T) {
	u := startUI(t, cluster.Kubeconfig())
	manifests := regexp.MustCompile(`(?s)<summary>copy a claim</summary><pre[^>]*>(.*?)</pre>`)
	for n, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, admin)
		pool := kind.Pool(ns, fmt.Sprintf("10.92.%d.0", n), fmt.Sprintf("10.92.%d.99", n))
		suite.Create(t, admin, pool)
		name := ""
		for _, known := range []string{"NetworkPool", "IPPool", "ProxyIPPool"} {
			if strings.HasSuffix(fmt.Sprintf("%T", pool), "."+known) {
				name = known
			}
		}
		name += "/" + strings.TrimPrefix(client.ObjectKeyFromObject(pool).String(), "/")
		u.eventually(t, "/pool?pool="+name, "copy a claim", true)
		manifest := html.UnescapeString(manifests.FindStringSubmatch(u.mustGet(t, "/pool?pool="+name))[1])
		if _, _, err := cluster.Kubectl(t.Context(), manifest, "create", "--dry-run=server", "-f", "-"); err != nil {
			t.Errorf("%s: %v\n%s", name, err, manifest)
		}
	}
}

// Requests for pages cause no LIST.
func TestUI_PagesListNothing(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.93.0.0/24", ns))
	u := startUI(t, cluster.Kubeconfig())
	u.eventually(t, "/pools", ns, true)
	before := lists(t)
	for range 20 {
		for _, target := range []string{"/pools", "/pool?pool=NetworkPool/" + ns + "/pool", "/claims", "/address?address=10.93.0.1"} {
			u.mustGet(t, target)
		}
	}
	if after := lists(t); after != before {
		t.Errorf("80 pages have caused lists:\n%s\nbefore:\n%s", after, before)
	}
	if before == "" {
		t.Error("the API server counts no list: the test shows nothing")
	}
}

// lists returns the API server's counters of LIST requests for the API groups of pools
// and claims. LIST requests for AllocationHistories are omitted, because the manager
// sends these at any time.
func lists(t *testing.T) string {
	t.Helper()
	metrics, _, err := cluster.Kubectl(t.Context(), "", "get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var counted []string
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `verb="LIST"`) && !strings.Contains(line, `resource="allocationhistories"`) && regexp.MustCompile(`group="(butler\.butlerlabs\.dev|novaedge\.io|ipam\.)`).MatchString(line) {
			counted = append(counted, line)
		}
	}
	return strings.Join(counted, "")
}

// A viewer of one namespace sees the objects of the namespace, a warning, and no name of
// another namespace.
func TestUI_ViewerOfOneNamespace(t *testing.T) {
	ours, theirs := suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)
	for _, ns := range []string{ours, theirs} {
		suite.Create(t, admin, networkPool(ns, "pool", "10.94.0.0/24", ns), suite.Kinds[0].Claim(ns, "claim-of-"+ns, ""))
	}
	u := startUI(t, viewerKubeconfig(t, "ui-viewer", ours))
	for _, target := range []string{"/pools", "/claims", "/pool?pool=NetworkPool/" + ours + "/pool", "/health"} {
		page := u.mustGet(t, target)
		if !strings.Contains(page, ours) || !strings.Contains(page, "Warning: you may list only namespace "+ours+": ") || !strings.Contains(page, "Warning: not read, as you may not list them: proxyippools, proxyvips<") {
			t.Errorf("%s: %s", target, page)
		}
		if strings.Contains(page, theirs) {
			t.Errorf("%s names the other namespace: %s", target, page)
		}
	}
	if _, err := u.get("/pool?pool=NetworkPool/" + theirs + "/pool"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the pool of the other namespace: %v", err)
	}
}

// The command denies addresses that are not loopback addresses, requests for other hosts,
// and requests without the cookie or an unused token.
func TestUI_ServesOneBrowser(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", "[::]:0", ":0", "192.0.2.1:80", "example.com:80", "127.0.0.1"} {
		if r := run(t, cluster.Kubeconfig(), "ui", "--listen", listen); r.code != 1 || !strings.Contains(r.stderr, "--listen="+listen+": ") {
			t.Errorf("--listen %s: exit code %d: %s", listen, r.code, r.stderr)
		}
	}
	u := startUI(t, cluster.Kubeconfig(), "--listen", "localhost:0")
	base, err := url.Parse(u.address)
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []struct {
		target, host string
		browser      *http.Client
		want         int
	}{
		{"/pools", base.Host, http.DefaultClient, http.StatusUnauthorized},
		{base.RequestURI(), base.Host, http.DefaultClient, http.StatusForbidden}, // the token was used before
		{"/pools", "evil.example", u.client, http.StatusMisdirectedRequest},
		{"/pools", base.Host, u.client, http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+base.Host+request.target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = request.host
		response, err := request.browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != request.want {
			t.Errorf("%s for host %s: %s, want %d", request.target, request.host, response.Status, request.want)
		}
	}
}
