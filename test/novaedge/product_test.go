package novaedge

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// The objects of the product's document, as printed there.
const (
	mainPool = `apiVersion: novaedge.io/v1alpha1
kind: ProxyIPPool
metadata:
  name: main-vip-pool
spec:
  cidrs:
    - "10.200.0.0/24"
  autoAssign: true
`
	externalPool = `apiVersion: novaedge.io/v1alpha1
kind: ProxyIPPool
metadata:
  name: external-vip-pool
spec:
  addresses:
    - "203.0.113.10/32"
    - "203.0.113.11/32"
    - "203.0.113.12/32"
  autoAssign: false
`
	mixedPool = `apiVersion: novaedge.io/v1alpha1
kind: ProxyIPPool
metadata:
  name: mixed-pool
spec:
  cidrs:
    - "10.200.0.0/28"
  addresses:
    - "10.200.1.100/32"
    - "10.200.1.200/32"
  autoAssign: true
`
	ipv6Pool = `apiVersion: novaedge.io/v1alpha1
kind: ProxyIPPool
metadata:
  name: ipv6-pool
spec:
  cidrs:
    - "2001:db8::/120"
  autoAssign: true
`
	autoVIP = `apiVersion: novaedge.io/v1alpha1
kind: ProxyVIP
metadata:
  name: auto-vip
spec:
  mode: BGP
  addressFamily: ipv4
  ports:
    - 80
  poolRef:
    name: main-vip-pool
  bgpConfig:
    localAS: 65000
    routerID: "10.0.0.1"
    peers:
      - address: "10.0.0.254"
        as: 65001
`
	specificVIP = `apiVersion: novaedge.io/v1alpha1
kind: ProxyVIP
metadata:
  name: specific-vip
spec:
  address: 10.200.0.50/32
  mode: L2ARP
  addressFamily: ipv4
  ports:
    - 80
  poolRef:
    name: main-vip-pool
`
)

func TestProduct_DocumentedExample(t *testing.T) {
	named := func(name string) *v1alpha1.ProxyIPPool { return pool(name) }
	for _, text := range []string{mainPool, externalPool, mixedPool, ipv6Pool} {
		suite.Kubectl(t, cluster, text, "create", "-f", "-")
	}
	t.Cleanup(func() {
		for _, kind := range []string{"proxyvips", "proxyippools"} { // pools go after those that have addresses of them
			if _, _, err := cluster.Kubectl(context.Background(), "", "delete", kind, "--all"); err != nil {
				t.Error(err)
			}
		}
	})
	counts(t, named("main-vip-pool"), 0, 254)
	counts(t, named("external-vip-pool"), 0, 3)
	counts(t, named("mixed-pool"), 0, 16)
	counts(t, named("ipv6-pool"), 0, 255) // without the subnet-router anycast address

	out, _ := suite.Kubectl(t, cluster, autoVIP, "create", "-f", "-", "-o=jsonpath={.spec.address} {.spec.bgpConfig.peers[0].as}")
	if out != "10.200.0.1/32 65001" {
		t.Errorf("auto-vip was created with %q", out)
	}
	auto := vip("auto-vip", "")
	if got, want := bound(t, auto), "AddressAllocated: Address 10.200.0.1/32 allocated from pool main-vip-pool"; got != want || auto.Status.AllocatedAddress != "10.200.0.1/32" {
		t.Errorf("auto-vip: %q, %q; want %q", got, auto.Status.AllocatedAddress, want)
	}
	if out, _ := suite.Kubectl(t, cluster, "", "get", "proxyvip", "auto-vip", "-o=jsonpath={.spec.bgpConfig.routerID}"); out != "10.0.0.1" {
		t.Errorf("the proxy's own fields are lost: %q", out)
	}
	if out, _ := suite.Kubectl(t, cluster, specificVIP, "create", "-f", "-", "-o=jsonpath={.spec.address}"); out != "10.200.0.50/32" {
		t.Errorf("specific-vip was created with %q", out)
	}
	for i, name := range []string{"api", "grpc"} {
		gets(t, vip(name, "main-vip-pool"), []string{"10.200.0.2/32", "10.200.0.3/32"}[i])
	}

	p := named("main-vip-pool")
	counts(t, p, 4, 250)
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.ProxyIPPool) string {
		var got []string
		for _, a := range p.Status.Allocations {
			if a.AllocatedAt == nil || time.Since(a.AllocatedAt.Time) > time.Hour {
				return a.Address + " has no time"
			}
			got = append(got, a.Address+" "+a.VIPRef)
		}
		return cmp.Diff([]string{"10.200.0.1/32 auto-vip", "10.200.0.2/32 api", "10.200.0.3/32 grpc", "10.200.0.50/32 specific-vip"}, got)
	})
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.ProxyIPPool) string {
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		return cmp.Diff("True PoolReady Pool has 250 available addresses", strings.Join([]string{string(ready.Status), ready.Reason, ready.Message}, " "))
	})
	counts(t, named("mixed-pool"), 3, 13) // it shares .1 to .14

	table, _ := suite.Kubectl(t, cluster, "", "get", "proxyippool", "main-vip-pool", "external-vip-pool")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if got := strings.Fields(lines[0]); !cmp.Equal(got, []string{"NAME", "ALLOCATED", "AVAILABLE", "AUTO-ASSIGN", "AGE"}) {
		t.Errorf("columns %q", got)
	}
	for i, want := range []string{"main-vip-pool 4 250 true", "external-vip-pool 0 3 false"} {
		if got := strings.Join(strings.Fields(lines[i+1])[:4], " "); got != want {
			t.Errorf("row %q, want %q", got, want)
		}
	}
	gets(t, vip("six", "ipv6-pool", of(v1alpha1.FamilyIPv6)), "2001:db8::1/128")
	six := vip("six", "")
	if bound(t, six); six.Status.AllocatedAddress != "2001:db8::1/128" {
		t.Errorf("status of the IPv6 VIP: %+v", six.Status)
	}
	suite.RequireDenied(t, admin.Create(t.Context(), vip("any", "external-vip-pool")), 422, "spec.address", "pool external-vip-pool does not assign addresses automatically")
	gets(t, vip("certain", "external-vip-pool", at("203.0.113.11/32")), "203.0.113.11/32")
	suite.RequireDenied(t, admin.Delete(t.Context(), named("main-vip-pool")), 403, "while 4 proxyvips own addresses of the pool", "kubectl get proxyvips")
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "main-vip-pool"}, p); err != nil || p.DeletionTimestamp != nil {
		t.Errorf("the pool is going: %v", err)
	}
}
