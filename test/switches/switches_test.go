// Package switches disables APIs while managers run. It does so with their flags, by
// removing the rights to read them, and by removing their CRDs. Stored claims keep their
// addresses as long as they can be read, and the state of one API blocks the other APIs
// for at most the lifetime of a grant.
package switches

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	grantLife = 45 * time.Second // the shortest that the managers accept
	kindVIP   = "proxyvips.novaedge.io"
	groupVIP  = "novaedge.io"
	address   = "10.60.0.1"
)

// start starts managers that serve these APIs, and makes a pool of each kind over one
// network, of which a ProxyVIP has the address.
func start(t *testing.T, o sandbox.Options, apis string) (s *sandbox.Sandbox, c client.Client, namespace string, vip *novaedgev1.ProxyVIP) {
	t.Helper()
	t.Parallel()
	o.ManagerArgs = append(o.ManagerArgs, "--apis="+apis, "--grant-expiry="+grantLife.String(), "--shutdown-delay=0s")
	s, c = suite.StartSandbox(t, o)
	namespace = load.NewPool(t, c, "10.60.0.0/28")
	suite.Create(t, c, &novaedgev1.ProxyIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "vips"}, Spec: novaedgev1.ProxyIPPoolSpec{AutoAssign: true, CIDRs: []string{"10.60.0.0/28"}},
	})
	vip = newVIP("first")
	suite.Create(t, c, vip)
	if vip.Spec.Address != address+"/32" {
		t.Fatalf("the ProxyVIP has %q", vip.Spec.Address)
	}
	return s, c, namespace, vip
}

func newVIP(name string) *novaedgev1.ProxyVIP {
	return &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: novaedgev1.ProxyVIPSpec{
		Mode: novaedgev1.ModeBGP, Ports: []int32{80}, PoolRef: &novaedgev1.PoolReference{Name: "vips"},
	}}
}

// pinned asks for the address that the ProxyVIP has.
func pinned(namespace, name string) *butlerv1.IPAllocation {
	a := load.Claim(namespace, name)
	a.Spec.Count, a.Spec.PinnedRange = nil, &butlerv1.PinnedIPRange{StartAddress: address, EndAddress: address}
	return a
}

// allocates waits until an object is stored with its addresses. A create that takes too
// long may be stored nevertheless.
func allocates(t *testing.T, c client.Client, within time.Duration, o client.Object) {
	t.Helper()
	suite.Eventually(t, within, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := c.Create(ctx, o)
		if apierrors.IsAlreadyExists(err) {
			return c.Get(ctx, client.ObjectKeyFromObject(o), o)
		}
		return err
	})
}

// owned fails the test unless the address is the ProxyVIP's.
func owned(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	suite.RequireDenied(t, c.Create(t.Context(), pinned(namespace, "pinned")), http.StatusForbidden, address+" is owned by proxyvips/first")
}

// rights leaves the managers the verbs for a group, none where there are none.
func rights(t *testing.T, c client.Client, group string, verbs ...string) (restore func()) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam"}}
	var before []rbacv1.PolicyRule
	suite.Change(t, c, role, func(r *rbacv1.ClusterRole) {
		before = slices.Clone(r.Rules)
		var rules []rbacv1.PolicyRule
		for _, rule := range r.Rules {
			if !slices.Contains(rule.APIGroups, group) {
				rules = append(rules, rule)
			} else if len(verbs) > 0 {
				rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return !slices.Contains(verbs, v) })
				rules = append(rules, rule)
			}
		}
		r.Rules = slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Verbs) == 0 })
	})
	return func() { suite.Change(t, c, role, func(r *rbacv1.ClusterRole) { r.Rules = before }) }
}

// record is what the journal holds, and which kinds its Lease names as unserved.
func record(t *testing.T, c client.Client) (r journal.Snapshot, unserved string) {
	t.Helper()
	lease := suite.Read(t, c, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: journal.LeaseName}})
	b, err := base64.StdEncoding.DecodeString(lease.Annotations["butler.butlerlabs.dev/journal"])
	if err == nil {
		r, err = journal.Decode(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, lease.Annotations["butler.butlerlabs.dev/journal-unserved"]
}

// get reads a page of a manager.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// shows waits until a manager is ready, warns of something, and has a metric of that
// value.
func shows(t *testing.T, m *sandbox.Manager, warning, metric string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		ready, err := get(ctx, "http://"+m.HealthAddress+"/readyz?verbose")
		metrics, merr := get(ctx, "http://"+m.MetricsAddress+"/metrics")
		if err := errors.Join(err, merr); err != nil {
			return err
		}
		if want := "warn: " + warning; !strings.Contains(ready, "healthz check passed") || strings.Contains(ready, want) != (warning != "") {
			return fmt.Errorf("want ready, with the warning %q: %s", warning, ready)
		}
		if !strings.Contains(metrics, metric+"\n") {
			return fmt.Errorf("the metrics lack %s", metric)
		}
		return nil
	})
}

func restart(t *testing.T, p *sandbox.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait(t.Context())
	if err := errors.Join(p.Start(), p.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, m *sandbox.Manager) {
	t.Helper()
	if err := m.Terminate(); err != nil {
		t.Fatal(err)
	}
	_ = m.Wait(t.Context())
}

// The new version does not serve the API, and may still read it, as the chart has it.
func TestSwitchedOff_StoredClaimsKeepTheirAddresses(t *testing.T) {
	s, c, ns, vip := start(t, sandbox.Options{Replicas: 1}, "butler,novaedge")
	rights(t, c, groupVIP, "get", "list", "watch")
	next, err := s.AddManager(t.Context(), "--apis=butler")
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s.Managers()[0])
	allocates(t, c, 10*time.Second, load.Claim(ns, "after"))
	owned(t, c, ns)
	shows(t, next, kindVIP+": its API is switched off, and its stored objects still own their addresses (1 object)", `butler_ipam_unserved_objects{resource="`+kindVIP+`"} 1`)
	if r, unserved := record(t, c); r.Applied[kindVIP] == 0 || !strings.Contains(unserved, kindVIP) {
		t.Errorf("the journal has %v, unserved %q", r.Applied, unserved)
	}

	suite.Delete(t, c, vip)
	allocates(t, c, suite.Soon, pinned(ns, "pinned"))
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if r, unserved := record(t, c); r.Applied[kindVIP] > 0 || strings.Contains(unserved, kindVIP) { // an earlier release may lead again
			return fmt.Errorf("the journal has %v, unserved %q", r.Applied, unserved)
		}
		return nil
	})
}

// The replicas that are told to serve the API take over from one that only counts its
// objects, pools among them.
func TestSwitchedOn_ReplicaThatServesMoreBecomesLeader(t *testing.T) {
	s, c, ns, vip := start(t, sandbox.Options{Replicas: 1}, "butler,novaedge")
	if _, err := s.AddManager(t.Context(), "--apis=butler"); err != nil {
		t.Fatal(err)
	}
	stop(t, s.Managers()[0])
	allocates(t, c, 10*time.Second, load.Claim(ns, "between"))
	if _, err := s.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	allocates(t, c, 10*time.Second, newVIP("second"))
	suite.Delete(t, c, vip)
	allocates(t, c, suite.Soon, pinned(ns, "pinned"))
	if _, unserved := record(t, c); unserved != "" {
		t.Errorf("unserved: %q", unserved)
	}
}

// Neither may the new version read the API: what the journal says of it ends with the
// life of a grant.
func TestSwitchedOff_WithoutReadRightsOtherAPIsWaitForGrantExpiry(t *testing.T) {
	s, c, ns, vip := start(t, sandbox.Options{Replicas: 1}, "butler,novaedge")
	rights(t, c, groupVIP)
	second := newVIP("second")
	suite.Create(t, c, second) // the watches of the old one go on
	began := time.Now()
	if _, err := s.AddManager(t.Context(), "--apis=butler"); err != nil {
		t.Fatal(err)
	}
	stop(t, s.Managers()[0])
	suite.Delete(t, c, vip)
	suite.Delete(t, c, second)
	allocates(t, c, grantLife+30*time.Second, load.Claim(ns, "after"))
	t.Logf("allocated %s after the right was taken", time.Since(began))
	allocates(t, c, suite.Soon, pinned(ns, "pinned"))
	if r, _ := record(t, c); r.Applied[kindVIP] > 0 {
		t.Errorf("the journal has %v", r.Applied)
	}
}

// A leader that serves an API loses the right to read it: the others are served all the
// time, and what was seen of it stays owned.
func TestRightLost_OthersGoOn(t *testing.T) {
	s, c, ns, _ := start(t, sandbox.Options{Replicas: 1}, "butler,novaedge")
	l := load.Start(t, c, "10.61.0.0/16", 2)
	restore := rights(t, c, groupVIP)
	restart(t, s.APIServer()) // which ends the watches
	allocates(t, c, suite.Soon, load.Claim(ns, "after"))
	m := s.Managers()[0]
	shows(t, m, kindVIP+": the API server denies reading it", `butler_ipam_read_denied{resource="`+kindVIP+`"} 1`)
	owned(t, c, ns)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := c.Create(ctx, newVIP("second")); err == nil {
		t.Error("a ProxyVIP was created while none can be seen")
	}
	suite.Eventually(t, grantLife+30*time.Second, func(context.Context) error {
		if r, _ := record(t, c); r.Applied[kindVIP] > 0 {
			return fmt.Errorf("the journal has %v", r.Applied)
		}
		return nil
	})
	owned(t, c, ns)
	l.Await(20)
	l.Stop() // creates have failed while the API server was away

	restore()
	allocates(t, c, suite.Soon, newVIP("third"))
	shows(t, m, "", `butler_ipam_read_denied{resource="`+kindVIP+`"} 0`)
	if r, _ := record(t, c); r.Applied[kindVIP] == 0 {
		t.Errorf("the journal has %v", r.Applied)
	}
}

// The CRDs of an API are deleted under replicas that serve it.
func TestCRDsDeleted_AddressesAreFreeAndOthersGoOn(t *testing.T) {
	s, c, ns, _ := start(t, sandbox.Options{Replicas: 2}, "butler,novaedge")
	deleteCRDs(t, c, groupVIP)
	allocates(t, c, suite.Soon, pinned(ns, "pinned"))
	for _, m := range s.Managers() { // one of them leads
		stop(t, m)
		if m == s.Managers()[0] {
			allocates(t, c, 10*time.Second, load.Claim(ns, "after"))
		}
	}
	began := time.Now()
	if _, err := s.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	allocates(t, c, 10*time.Second, load.Claim(ns, "started"))
	if took := time.Since(began); took > grantLife+20*time.Second {
		t.Errorf("a manager has started %s after the CRDs were deleted", took)
	}
	if err := s.InstallCRDs(t.Context(), "config/crd"); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, &novaedgev1.ProxyIPPool{
			ObjectMeta: metav1.ObjectMeta{Name: "vips"}, Spec: novaedgev1.ProxyIPPoolSpec{AutoAssign: true, CIDRs: []string{"10.60.0.0/28"}},
		}))
	})
	again := newVIP("again")
	allocates(t, c, suite.Soon, again)
	if again.Spec.Address == "" || again.Spec.Address == address+"/32" {
		t.Errorf("the ProxyVIP has %q", again.Spec.Address)
	}
}

// Cluster API's CRDs are deleted while no manager runs.
func TestCRDsDeleted_ClusterAPIWhileNoManagerRuns(t *testing.T) {
	s, c, ns, _ := start(t, sandbox.Options{Replicas: 1, ClusterAPI: true}, "butler,novaedge,clusterapi")
	claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: ns}, Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "pool"},
	}}
	suite.Create(t, c, claim)
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		if r, _ := record(t, c); r.Applied["ipaddressclaims.ipam.cluster.x-k8s.io"] == 0 {
			return fmt.Errorf("the journal has %v", r.Applied)
		}
		return nil
	})
	stop(t, s.Managers()[0])
	suite.Change(t, c, claim, func(o *ipamv1.IPAddressClaim) { o.Finalizers = nil })
	var addresses ipamv1.IPAddressList
	if err := c.List(t.Context(), &addresses); err != nil {
		t.Fatal(err)
	}
	for i := range addresses.Items {
		suite.Change(t, c, &addresses.Items[i], func(o *ipamv1.IPAddress) { o.Finalizers = nil })
	}
	deleteCRDs(t, c, "ipam.cluster.x-k8s.io")
	if _, err := s.AddManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	allocates(t, c, 10*time.Second, load.Claim(ns, "after"))
	owned(t, c, ns)
}

// deleteCRDs deletes those of a group with all objects, which may carry finalizers.
func deleteCRDs(t *testing.T, c client.Client, group string) {
	t.Helper()
	var all apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		if crd := &all.Items[i]; crd.Spec.Group == group {
			if err := c.Delete(t.Context(), crd); err != nil {
				t.Fatal(err)
			}
			defer gone(t, c, crd)
		}
	}
}

// gone waits until an object is no longer stored. The API server waits for the finalizers
// of custom resources with pauses of its own.
func gone(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error {
		switch err := c.Get(ctx, client.ObjectKeyFromObject(o), o); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		var pools novaedgev1.ProxyIPPoolList
		err := c.List(ctx, &pools)
		return fmt.Errorf("%s is still there: %+v, pools %+v %w", o.GetName(), o.(*apiextensionsv1.CustomResourceDefinition).Status.Conditions, pools.Items, err)
	})
}
