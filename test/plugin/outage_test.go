package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// While the API server is stopped, or frozen with open connections, the pages show since
// when their data is not current. After the outage, the pages follow the objects again.
func TestUI_ShowsSinceWhenTheAPIServerCannotBeReached(t *testing.T) {
	s, c := suite.StartSandbox(t, sandbox.Options{})
	ns := suite.CreateNamespace(t, c)
	suite.Create(t, c, networkPool(ns, "before", "10.95.0.0/24", ""))
	u := startUI(t, s.Kubeconfig())
	u.eventually(t, "/pools", ns+"/before", true)
	if page := u.mustGet(t, "/pools"); strings.Contains(page, "Warning") {
		t.Errorf("a current page has a warning: %s", page)
	}
	server := s.APIServer()
	outages := map[string]struct{ begin, end func() error }{
		"stopped": {server.Kill, func() error {
			if err := server.Start(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			return server.Ready(ctx)
		}},
		"frozen": {server.Freeze, server.Thaw},
	}
	for _, name := range []string{"stopped", "frozen"} {
		begun := time.Now().UTC()
		if err := outages[name].begin(); err != nil {
			t.Fatal(err)
		}
		for _, target := range []string{"/pools", "/address?address=10.95.0.7", "/claims"} {
			u.eventually(t, target, "Warning: the API server cannot be reached since ", true)
		}
		page := u.mustGet(t, "/pools")
		notice := regexp.MustCompile(`cannot be reached since (\S+Z on \S+): the page shows the data of that time`).FindStringSubmatch(page)
		if notice == nil {
			t.Fatalf("%s: %s", name, page)
		}
		since, err := time.Parse("15:04:05Z on 2006-01-02", notice[1])
		// The last time at which all watches were current: after a start of the API
		// server, a watch may still have been down when the outage began.
		if err != nil || since.Before(begun.Add(-20*time.Second)) || since.After(begun.Add(time.Second)) {
			t.Errorf("%s at %s: the page names %s (%v)", name, begun, since, err)
		}
		if !strings.Contains(page, ns+"/before") || !strings.Contains(page, "As of <time datetime=\""+since.Format(time.RFC3339)) {
			t.Errorf("%s: the page lacks the data of %s: %s", name, since, page)
		}
		var document struct{ NotCurrentSince time.Time }
		if err := json.Unmarshal([]byte(u.mustGet(t, "/pools.json")), &document); err != nil || !document.NotCurrentSince.Equal(since) {
			t.Errorf("%s: notCurrentSince is %s, want %s: %v", name, document.NotCurrentSince, since, err)
		}
		if err := outages[name].end(); err != nil {
			t.Fatal(err)
		}
		after := networkPool(ns, name, "10.95.0.0/24", name)
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return client.IgnoreAlreadyExists(c.Create(ctx, after)) })
		suite.Eventually(t, 3*suite.Soon, func(context.Context) error { // the watches of client-go start again after up to 30 s
			page, err := u.get("/pools")
			if err == nil && (strings.Contains(page, "cannot be reached") || strings.Contains(page, " fails since ") || !strings.Contains(page, ns+"/"+name)) {
				err = fmt.Errorf("after the outage: %s", page)
			}
			return err
		})
	}
}

// The console in the cluster shows since when its data is not current. The test ends
// before the console needs another review of the token, after 30 s.
func TestConsole_ShowsSinceWhenTheAPIServerCannotBeReached(t *testing.T) {
	s, c := suite.StartSandbox(t, sandbox.Options{})
	ns := suite.CreateNamespace(t, c)
	suite.Create(t, c, networkPool(ns, "pool", "10.95.0.0/24", ""))
	console := newWebConsole(suite.StartConsole(t, s, c, "../.."))
	person := suite.CreatePerson(t, c, ns, "reader", map[string]string{"butler-ipam-console-user": "", "butler-ipam-viewer": ns})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // before the first request, because the console caches a denied right
		for _, args := range [][]string{{"get", "/butler-ipam/console"}, {"list", "ipallocations.butler.butlerlabs.dev", "-n", ns}} {
			if _, _, err := s.Kubectl(ctx, "", append([]string{"auth", "can-i", "--as=system:serviceaccount:" + ns + ":reader"}, args...)...); err != nil {
				return err
			}
		}
		return nil
	})
	if p := console.mustGet(t, "/pools?namespace="+ns, bearing(person)); !strings.Contains(p.body, ns+"/pool") || strings.Contains(p.body, "cannot be reached") {
		t.Fatalf("status %d: %s", p.code, p.body)
	}
	server := s.APIServer()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		p, err := console.get(ctx, "/pools?namespace="+ns, bearing(person))
		if err == nil && !(strings.Contains(p.body, "Warning: the API server cannot be reached since ") && strings.Contains(p.body, ns+"/pool")) {
			err = fmt.Errorf("status %d: %s", p.code, p.body)
		}
		return err
	})
	if err := server.Start(); err != nil { // the end of the test deletes objects
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := server.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// Each command names an unreachable API server in a single line.
func TestCommands_NameTheUnreachableAPIServer(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	config, err := cluster.ConfigFor("admin")
	if err != nil {
		t.Fatal(err)
	}
	config.Host = "https://" + address
	text, err := pki.Kubeconfig("closed", config, "default")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "error: cannot reach the API server https://" + address + ": dial tcp " + address + ": connect: connection refused\n"
	for _, args := range [][]string{
		{"pools"}, {"claims"}, {"map", "pool"}, {"free", "pool"}, {"who", "10.0.0.1"}, {"who", "10.0.0.1", "--at=2026-01-02T03:04:05Z"}, {"fit", "pool", "--count=1"},
		{"fit", "--provider=lab"}, {"plan", "pool", "--reserve=10.0.0.0/29"}, {"check"}, {"export", "pool"}, {"ui"},
	} {
		if r := run(t, path, args...); r.code == 0 || r.stderr != want {
			t.Errorf("kubectl ipam %s: exit code %d:\n%s\nwant\n%s", strings.Join(args, " "), r.code, r.stderr, want)
		}
	}
}

// For a viewer of one namespace, the commands say that claims of another namespace own
// addresses of a pool: they count them as free, and the status does not.
func TestViewer_OfPoolWithHiddenOwners(t *testing.T) {
	ours, theirs := suite.CreateNamespace(t, admin), suite.CreateNamespace(t, admin)
	claim := suite.Kinds[0].Claim(theirs, "all", "").(*butlerv1.IPAllocation)
	claim.Spec.PoolRef.Name, claim.Spec.Count = "wide", new(int32(256))
	suite.Create(t, admin, networkPool(theirs, "wide", "10.95.0.0/24", ours), networkPool(ours, "narrow", "10.95.0.0/24", ours), claim)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		var p butlerv1.NetworkPool
		err := admin.Get(ctx, client.ObjectKey{Namespace: ours, Name: "narrow"}, &p)
		if err == nil && (p.Status.TotalIPs != 256 || p.Status.AvailableIPs != 0) {
			err = fmt.Errorf("%d of %d addresses are free", p.Status.AvailableIPs, p.Status.TotalIPs)
		}
		return err
	})
	viewer := viewerKubeconfig(t, "viewer-of-hidden-owners", ours)
	const note = "the status has 0 free: " // without the reason: the status may still count the addresses as granted
	type item struct {
		Name       string
		Notes      []string
		Free       int64
		StatusFree *int64
	}
	for _, p := range decodedFrom[items[item]](t, viewer, "pools").Items {
		if p.Name != "narrow" || p.Free != 256 || p.StatusFree == nil || *p.StatusFree != 0 || !strings.Contains(strings.Join(p.Notes, "\n"), note) {
			t.Errorf("%+v", p)
		}
	}
	if r := run(t, viewer, "pools"); !strings.Contains(r.stdout, note) {
		t.Errorf("pools: %s%s", r.stdout, r.stderr)
	}
	for _, args := range [][]string{{"map", "narrow"}, {"free", "narrow"}, {"fit", "narrow", "--count=1"}} {
		if r := run(t, viewer, args...); !strings.Contains(r.stderr, "warning: NetworkPool "+ours+"/narrow: "+note) {
			t.Errorf("%s: %s%s", args[0], r.stdout, r.stderr)
		}
	}
	if r := run(t, viewer, "check", "--only", "capacity"); r.code != 1 || !strings.Contains(r.stdout, "IPAM302 NetworkPool "+ours+"/narrow is full: 256 of 256 addresses are allocated; "+note) {
		t.Errorf("check: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	u := startUI(t, viewer)
	for _, target := range []string{"/pools", "/pool?pool=NetworkPool/" + ours + "/narrow"} {
		u.eventually(t, target, note, true)
	}
	if out := ipam(t, "pools", "-n", ours).stdout; strings.Contains(out, note) {
		t.Errorf("a reader of all namespaces sees the note: %s", out)
	}
}
