package tenants

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// handMade creates an IPAddressPool of the tenant, as people do.
func handMade(t *testing.T, name string, entries ...string) *unstructured.Unstructured {
	t.Helper()
	startPlane(t)
	p := metallbPool()
	p.SetName(name)
	if err := unstructured.SetNestedStringSlice(p.Object, entries, "spec", "addresses"); err != nil {
		t.Fatal(err)
	}
	suite.CreateForTest(t, tenantPlane.Client, p)
	return p
}

// followAddress calls moved with the address in the status of a Service, now and after
// each change of it, until the test ends; an invalid address for none.
func followAddress(t *testing.T, s *corev1.Service, moved func(netip.Addr)) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(tenantPlane.Config())
	if err != nil {
		t.Fatal(err)
	}
	addressOf := func(s *corev1.Service) (address netip.Addr) {
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			address, _ = netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
		}
		return address
	}
	last := addressOf(s)
	moved(last)
	ctx, cancel := context.WithCancel(context.Background())
	events, err := clients.CoreV1().Services(s.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + s.Name, ResourceVersion: s.ResourceVersion,
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if s, ok := event.Object.(*corev1.Service); ok && addressOf(s) != last {
				last = addressOf(s)
				moved(last)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// watchAddress returns a function that gives the addresses which a Service has had.
func watchAddress(t *testing.T, s *corev1.Service) func() []netip.Addr {
	t.Helper()
	var mu sync.Mutex
	var addresses []netip.Addr
	followAddress(t, s, func(a netip.Addr) {
		mu.Lock()
		defer mu.Unlock()
		addresses = append(addresses, a)
	})
	return func() []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(addresses)
	}
}

// endpoint answers at the address of a Service, as the nodes of a tenant do: when the
// address changes, connections to the former address end. There is no MetalLB speaker
// here. The addresses of these tests are loopback addresses, which need no announcement.
type endpoint struct {
	service *corev1.Service

	mu        sync.Mutex
	addresses []netip.Addr // in the order of the watch; invalid for none
	listener  net.Listener
	accepted  []net.Conn
}

// answer starts the endpoint of a Service, once MetalLB has given it an address.
func answer(t *testing.T, s *corev1.Service) *endpoint {
	t.Helper()
	served(t, s)
	e := &endpoint{service: s}
	t.Cleanup(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closeLocked()
	})
	followAddress(t, s, e.moveTo)
	return e
}

func (e *endpoint) closeLocked() {
	if e.listener != nil {
		_ = e.listener.Close()
	}
	for _, c := range e.accepted {
		_ = c.Close()
	}
	e.listener, e.accepted = nil, nil
}

// moveTo makes the endpoint answer at an address, and nowhere else.
func (e *endpoint) moveTo(address netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addresses = append(e.addresses, address)
	e.closeLocked()
	if !address.IsValid() {
		return
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
	if err != nil {
		return // connect reports it
	}
	e.listener = l
	go e.serve(l)
}

// serve repeats the lines of each connection.
func (e *endpoint) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.accepted = append(e.accepted, c)
		e.mu.Unlock()
		go func() { _, _ = io.Copy(c, c) }()
	}
}

// connect opens a connection to the Service. The result fails the test if the connection
// no longer answers, or the address of the Service changed.
func (e *endpoint) connect(t *testing.T) (stillOpen func()) {
	t.Helper()
	e.mu.Lock()
	listener := e.listener
	e.mu.Unlock()
	if listener == nil {
		t.Fatalf("nothing listens at the addresses %v of %s", e.addresses, e.service.Name)
	}
	at := listener.Addr().String()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	answers := bufio.NewScanner(c)
	said := 0
	stillOpen = func() {
		t.Helper()
		said++
		_ = c.SetDeadline(time.Now().Add(suite.Soon))
		if _, err := fmt.Fprintln(c, said); err != nil || !answers.Scan() || answers.Text() != fmt.Sprint(said) {
			t.Errorf("the connection to %s at %s is closed: %v, %v", e.service.Name, at, err, answers.Err())
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.addresses) != 1 {
			t.Errorf("Service %s had the addresses %v, one after the other", e.service.Name, e.addresses)
		}
	}
	stillOpen()
	return stillOpen
}

// adopted waits for condition AddressesAdopted.
func adopted(t *testing.T, c *v1alpha1.TenantCluster) {
	t.Helper()
	conditionIs(t, c, v1alpha1.ConditionAddressesAdopted, metav1.ConditionTrue, v1alpha1.ReasonAdopted)
}

// owns waits until the allocations of a tenant have exactly these ranges, whatever their
// names.
func owns(t *testing.T, c *v1alpha1.TenantCluster, want ...string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		have, err := allocations(ctx, c)
		var ranges []string
		for _, a := range have {
			_, r, _ := strings.Cut(a, " ")
			ranges = append(ranges, r)
		}
		slices.Sort(ranges)
		if err == nil && !slices.Equal(ranges, want) {
			err = fmt.Errorf("tenant %s has %q, want %q", c.Name, have, want)
		}
		return err
	})
}

// before creates a TenantCluster with a control plane, whose ProviderConfig does not
// exist yet: tenants are not switched on for it.
func before(t *testing.T, name, provider string, more ...string) *v1alpha1.TenantCluster {
	t.Helper()
	startPlane(t)
	c := tenant(t, suite.CreateNamespace(t, admin), name, provider, strings.Join(more, ""))
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotReady)
	giveAccess(t, c, tenantPlane.Config())
	t.Cleanup(func() { emptyPlane(t) })
	return c
}

// emptyPlane removes what a test left in the plane.
func emptyPlane(t *testing.T) {
	ctx := context.Background()
	if t.Failed() {
		t.Log("is there a pool? ", offered(ctx))
	}
	_ = tenantPlane.Client.DeleteAllOf(ctx, metallbPool(), client.InNamespace(sandbox.MetalLBNamespace))
	services := &corev1.ServiceList{}
	_ = tenantPlane.Client.List(ctx, services, client.InNamespace("default"))
	for i := range services.Items {
		if services.Items[i].Spec.Type == corev1.ServiceTypeLoadBalancer {
			_ = tenantPlane.Client.Delete(ctx, &services.Items[i])
		}
	}
}

// The range that the TenantCluster names is the first block, although the pool has lower
// addresses, and the tenant's number is smaller.
func TestExistingTenant_NamesItsRange(t *testing.T) {
	pool(t, "named", "127.11.0.0/24", "127.11.0.0", "127.11.0.255")
	for _, mode := range []string{"static", "elastic"} {
		t.Run(mode, func(t *testing.T) {
			handMade(t, "default-pool", "127.11.0.100-127.11.0.102")
			stillOpen := answer(t, balancer(t, "old")).connect(t)
			provider(t, "named", `{mode: ipam, poolRefs: [{name: named}], loadBalancer: {allocationMode: `+mode+`}}`, false)
			c := live(t, mode, "named", ", networking: {lbPoolSize: 1, loadBalancerPool: {start: 127.11.0.100, end: 127.11.0.102}}, addons: {ingress: {enabled: false}}")
			has(t, c, c.Namespace+"-"+mode+"-lb 127.11.0.100-127.11.0.102")
			adopted(t, c)
			stillOpen()
			offers(t, "127.11.0.100-127.11.0.102")
			if second, _ := served(t, balancer(t, "new")); second != netip.MustParseAddr("127.11.0.101") {
				t.Errorf("a second Service has %s, want the next address of the range", second)
			}
			stillOpen()
		})
	}
}

// The TenantCluster names no range. Its control plane is read before the first addresses
// are allocated.
func TestExistingTenant_PoolsAndServicesAreAdoptedFirst(t *testing.T) {
	pool(t, "first-adopt", "127.12.0.0/24", "127.12.0.0", "127.12.0.255")
	handMade(t, "default-pool", "127.12.0.100/31", "127.12.0.110-127.12.0.110", "192.0.2.7-192.0.2.7")
	handMade(t, "extra", "127.12.0.120-127.12.0.121")
	class := "example.com/other"
	foreign := balancer(t, "foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class })
	foreign.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "127.12.0.130"}}
	if err := tenantPlane.Client.Status().Update(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	var open []func()
	for name, source := range map[string]string{"one": "default-pool", "two": "default-pool", "three": "default-pool", "four": "extra"} {
		s := balancer(t, name, func(s *corev1.Service) { s.Annotations = map[string]string{"metallb.io/address-pool": source} })
		open = append(open, answer(t, s).connect(t))
	}
	c := before(t, "first", "first-adopt")
	provider(t, "first-adopt", `{mode: ipam, poolRefs: [{name: first-adopt}]}`, false)
	owns(t, c, "127.12.0.100-127.12.0.101", "127.12.0.110-127.12.0.110", "127.12.0.120-127.12.0.121", "127.12.0.130-127.12.0.130")
	adopted(t, c)
	hears(t, c, "LoadBalancerIPsAdopted", "127.12.0.100-127.12.0.101, which the tenant uses already, from pool first-adopt")
	// Neither the addresses of another MetalLB pool, which MetalLB would reject twice,
	// nor those of another load balancer.
	offers(t, "127.12.0.100-127.12.0.101", "127.12.0.110-127.12.0.110")
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	owns(t, c, "127.12.0.100-127.12.0.101", "127.12.0.110-127.12.0.110", "127.12.0.120-127.12.0.121", "127.12.0.130-127.12.0.130")
	for _, stillOpen := range open {
		stillOpen()
	}
}

// No pool of the provider offers the addresses: the tenant's MetalLB is left alone until
// one does.
func TestExistingTenant_AddressesOutsideOfThePools(t *testing.T) {
	pool(t, "outside", "127.13.0.0/24", "127.13.0.0", "127.13.0.99")
	handMade(t, "default-pool", "127.13.0.100-127.13.0.102")
	stillOpen := answer(t, balancer(t, "old")).connect(t)
	provider(t, "outside", `{mode: ipam, poolRefs: [{name: outside}], loadBalancer: {allocationMode: elastic, initialPoolSize: 2, growthIncrement: 1}}`, false)
	c := live(t, "outside", "outside") // gets its first addresses before its control plane is known
	message := conditionIs(t, c, v1alpha1.ConditionAddressesAdopted, metav1.ConditionFalse, v1alpha1.ReasonNotOffered)
	for _, part := range []string{"127.13.0.100 is in use", "add such a NetworkPool to spec.network.poolRefs", "IPAddressPool default-pool stays as it is"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition says %q, want %q", message, part)
		}
	}
	hears(t, c, v1alpha1.ReasonNotOffered, "127.13.0.100 is in use")
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionFalse, v1alpha1.ReasonReconciling)
	for _, name := range []string{"b", "c", "waits"} {
		balancer(t, name)
	}
	always(t, 4*time.Second, func(ctx context.Context) error { return offered(ctx, "127.13.0.100-127.13.0.102") })
	owns(t, c, "127.13.0.0-127.13.0.1") // growth would not reach MetalLB
	stillOpen()

	suite.Change(t, admin, poolNamed("outside"), func(p *v1alpha1.NetworkPool) { p.Spec.TenantAllocation.Ranges[0].End = "127.13.0.255" })
	owns(t, c, "127.13.0.0-127.13.0.1", "127.13.0.100-127.13.0.102")
	adopted(t, c)
	offers(t, "127.13.0.0-127.13.0.1", "127.13.0.100-127.13.0.102")
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
	stillOpen()
}

func poolNamed(name string) *v1alpha1.NetworkPool {
	return &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: name}}
}

// Others own a part of what the tenant uses: it is reported, and no address moves. What
// is free is the tenant's.
func TestExistingTenant_AddressesOfOthers(t *testing.T) {
	pool(t, "others", "127.14.0.0/24", "127.14.0.0", "127.14.0.255")
	handMade(t, "default-pool", "127.14.0.100-127.14.0.102")
	one, two := answer(t, balancer(t, "one")), answer(t, balancer(t, "two"))
	open := []func(){one.connect(t), two.connect(t)}
	vips := &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "of-others"}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"127.14.0.100/32"}}}
	vip := &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: "of-others"}, Spec: novaedgev1.ProxyVIPSpec{
		PoolRef: &novaedgev1.PoolReference{Name: "of-others"}, Mode: novaedgev1.ModeBGP, Ports: []int32{80}, Address: "127.14.0.100",
	}}
	suite.CreateForTest(t, admin, vips, vip)
	c := before(t, "others", "others", ", networking: {loadBalancerPool: {start: 127.14.0.100, end: 127.14.0.102}}")
	provider(t, "others", `{mode: ipam, poolRefs: [{name: others}]}`, false)
	message := conditionIs(t, c, v1alpha1.ConditionAddressesAdopted, metav1.ConditionFalse, v1alpha1.ReasonAddressConflict)
	for _, part := range []string{"127.14.0.100 not adopted", "is owned by proxyvips/of-others", "IPAddressPool default-pool stays as it is"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition says %q, want %q", message, part)
		}
	}
	hears(t, c, v1alpha1.ReasonAddressConflict, "of-others")
	owns(t, c, "127.14.0.101-127.14.0.101", "127.14.0.102-127.14.0.102")
	always(t, 2*time.Second, func(ctx context.Context) error { return offered(ctx, "127.14.0.100-127.14.0.102") })
	for _, stillOpen := range open {
		stillOpen()
	}
}

// What the tenant uses is within its quota or not; the tenant's MetalLB offers it to its
// Services meanwhile.
func TestExistingTenant_Quota(t *testing.T) {
	pool(t, "existing-quota", "127.15.0.0/24", "127.15.0.0", "127.15.0.255")
	handMade(t, "default-pool", "127.15.0.100-127.15.0.107")
	open := []func(){answer(t, balancer(t, "one")).connect(t), answer(t, balancer(t, "two")).connect(t)}
	c := before(t, "quota", "existing-quota", ", networking: {loadBalancerPool: {start: 127.15.0.100, end: 127.15.0.107}}")
	p := provider(t, "existing-quota", `{mode: ipam, poolRefs: [{name: existing-quota}], quotaPerTenant: {maxLoadBalancerIPs: 1}}`, false)
	conditionIs(t, c, v1alpha1.ConditionAddressesAdopted, metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded)
	if said := networkReady(t, c, metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded); !strings.Contains(said, "spec.networking.loadBalancerPool 127.15.0.100-127.15.0.107 has 8 addresses, and the quota allows 1 more") {
		t.Errorf("NetworkReady says %q", said)
	}
	owns(t, c)
	for _, stillOpen := range open {
		stillOpen()
	}
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) { *p.Spec.Network.QuotaPerTenant.MaxLoadBalancerIPs = 3 })
	adopted(t, c)
	owns(t, c, "127.15.0.100-127.15.0.101")
	offers(t, "127.15.0.100-127.15.0.101")
	if said := networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady); !strings.Contains(said, "127.15.0.102-127.15.0.107 are of spec.networking.loadBalancerPool") {
		t.Errorf("NetworkReady says %q", said)
	}
	for _, stillOpen := range open {
		stillOpen()
	}
}

// An advertisement that people made keeps announcing what it announced.
func TestExistingTenant_Advertisement(t *testing.T) {
	pool(t, "announced", "127.16.0.0/24", "127.16.0.0", "127.16.0.255")
	handMade(t, "extra", "192.0.2.0-192.0.2.9")
	a := metallbPool()
	a.SetKind("L2Advertisement")
	a.SetName("default")
	_ = tenantPlane.Client.Delete(t.Context(), a)
	a.SetResourceVersion("")
	if err := unstructured.SetNestedStringSlice(a.Object, []string{"extra"}, "spec", "ipAddressPools"); err != nil {
		t.Fatal(err)
	}
	suite.CreateForTest(t, tenantPlane.Client, a)
	provider(t, "announced", `{mode: ipam, poolRefs: [{name: announced}], loadBalancer: {defaultPoolSize: 2}}`, false)
	live(t, "announced", "announced")
	offers(t, "127.16.0.0-127.16.0.1")
	suite.AwaitObject(t, tenantPlane.Client, a, func(a *unstructured.Unstructured) string {
		names, _, _ := unstructured.NestedStringSlice(a.Object, "spec", "ipAddressPools")
		return cmp.Diff([]string{"extra", "default-pool"}, names)
	})
}

// Several tenants are switched on at once: what the TenantCluster of one names is not
// allocated to another, whichever is first.
func TestExistingTenant_RangesBeforeAnyAddresses(t *testing.T) {
	pool(t, "at-once", "127.17.0.0/24", "127.17.0.0", "127.17.0.255")
	ns := suite.CreateNamespace(t, admin)
	var all []*v1alpha1.TenantCluster
	for i := range 4 {
		named := tenant(t, ns, fmt.Sprintf("named-%d", i), "at-once", fmt.Sprintf(", networking: {loadBalancerPool: {start: 127.17.0.%d, end: 127.17.0.%d}}", 4*i, 4*i+2))
		all = append(all, tenant(t, ns, fmt.Sprintf("any-%d", i), "at-once", ""), named)
	}
	for _, c := range all {
		suite.CreateForTest(t, admin, c)
	}
	provider(t, "at-once", `{mode: ipam, poolRefs: [{name: at-once}], loadBalancer: {defaultPoolSize: 3}}`, true)
	for _, c := range all {
		networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}
	for i := range 4 {
		has(t, all[2*i+1], fmt.Sprintf("%s-named-%d-lb 127.17.0.%d-127.17.0.%d", ns, i, 4*i, 4*i+2), nodesOf(t, all[2*i+1]))
	}
}

// nodesOf is what a tenant has for nodes, as in the result of allocations.
func nodesOf(t *testing.T, c *v1alpha1.TenantCluster) string {
	t.Helper()
	have, err := allocations(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range have {
		if strings.Contains(a, "-nodes ") {
			return a
		}
	}
	return ""
}

// The section of the README, word for word, while the address of the Service is watched.
func TestExistingTenant_StepsOfTheReadme(t *testing.T) {
	startPlane(t)
	handMade(t, "default-pool", "10.198.0.100-10.198.0.102")
	web := balancer(t, "web")
	t.Cleanup(func() { emptyPlane(t) })
	served(t, web)
	watched := watchAddress(t, web)
	c := read[v1alpha1.TenantCluster](t, `{metadata: {namespace: default, name: old-tenant}, spec: {providerConfigRef: {name: old-provider}}}`)
	provider(t, "old-provider", `{mode: cloud}`, false)
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, c, tenantPlane.Config())

	readme, err := os.ReadFile("../../reconcilers/tenants/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Existing tenants\n")
	section, _, _ = strings.Cut(section, "\n## ")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old-tenant.kubeconfig"), kubeconfigOf(t, tenantPlane.Config()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), poolNamed("old-pool")) })
	blocks := strings.Split(section, "```")
	commands := 0
	for i := 1; i < len(blocks); i += 2 {
		language, text, _ := strings.Cut(blocks[i], "\n")
		if language == "yaml" {
			name, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, step := range strings.Split("\n"+text, "\n$ ")[1:] {
			commands++
			line, shown, _ := strings.Cut(step, "\n")
			command := exec.CommandContext(t.Context(), "bash", "-e", "-c", line)
			command.Env, command.Dir = append(os.Environ(), cluster.KubectlEnv()...), dir
			out, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
			if diff := cmp.Diff(strings.Fields(shown), strings.Fields(string(out))); diff != "" {
				t.Errorf("%s (-shown +got):\n%s", line, diff)
			}
		}
	}
	if commands != 8 {
		t.Errorf("%d commands executed, want 8", commands)
	}
	offers(t, "10.198.0.100-10.198.0.102")
	events := &corev1.EventList{}
	if err := admin.List(t.Context(), events, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.UID == c.UID && e.Type == corev1.EventTypeWarning {
			t.Errorf("warning %s: %s", e.Reason, e.Message)
		}
	}
	if addresses := watched(); len(addresses) != 1 {
		t.Errorf("Service web had the addresses %v, one after the other", addresses)
	}
}
