package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// patience is the timeout for states that CAPM3, the manager of Cluster API Provider
// Metal3, reaches: it waits 30 s before it repeats what failed.
const patience = 3 * time.Minute

// infrastructure is the API of CAPM3.
const infrastructure = "infrastructure.cluster.x-k8s.io/v1beta2"

// dataPool is a pool whose addresses the template of dataTemplate has CAPM3 write into
// the network data of each machine.
type dataPool struct {
	name             string
	pool             kind
	claim            kind // that CAPM3 creates
	address          kind // the object with the address of the claim
	family           string
	netmask, gateway string
	offers           []string // all addresses of the pool
}

// dataPools have as many addresses as a test has machines at the same time.
var dataPools = []dataPool{
	{"machines", ipPools, ipClaims, metal3Addresses, "ipv4", "255.255.255.0", "10.70.0.1", []string{"10.70.0.10", "10.70.0.11", "10.70.0.12"}},
	{"storage", networkPools, ipAddressClaims, clusterAPIAddresses, "ipv4", "255.255.255.128", "10.71.0.1", []string{"10.71.0.20", "10.71.0.21", "10.71.0.22"}},
	{"storage6", networkPools, ipAddressClaims, clusterAPIAddresses, "ipv6", "ffff:ffff:ffff:ffff::", "fe80::1", []string{"2001:db8::20", "2001:db8::21", "2001:db8::22"}},
}

// machinesOfPool is the number of machines that the pools serve.
const machinesOfPool = 3

// dataTemplate has the pools, a Cluster whose infrastructure is ready, as Cluster API
// reports it, and the template for the data of its machines. The arguments are the
// routing domain and the IPPool's preAllocations.
const dataTemplate = `
apiVersion: ipam.metal3.io/v1alpha1
kind: IPPool
metadata: {name: machines, labels: {butler.butlerlabs.dev/routing-domain: %[1]s}}
spec:
  namePrefix: machines
  pools: [{start: 10.70.0.10, end: 10.70.0.12}]
  prefix: 24
  gateway: 10.70.0.1
  dnsServers: [10.70.0.2, 10.70.0.3]
  preAllocations: %[2]s
---
apiVersion: butler.butlerlabs.dev/v1alpha1
kind: NetworkPool
metadata: {name: storage}
spec:
  routingDomain: %[1]s
  cidr: 10.71.0.0/25
  gateway: 10.71.0.1
  tenantAllocation: {ranges: [{start: 10.71.0.20, end: 10.71.0.22}]}
---
apiVersion: butler.butlerlabs.dev/v1alpha1
kind: NetworkPool
metadata: {name: storage6}
spec:
  routingDomain: %[1]s
  cidr: 2001:db8::/64
  gateway: fe80::1
  tenantAllocation: {ranges: [{start: "2001:db8::20", end: "2001:db8::22"}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: web}
spec:
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: Metal3Cluster, name: web}
status:
  deprecated: {v1beta1: {conditions: [{type: InfrastructureReady, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: Metal3Cluster
metadata: {name: web}
spec:
  controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: Metal3DataTemplate
metadata: {name: nodes}
spec:
  clusterName: web
  metaData:
    ipAddressesFromPool: [{key: address, name: machines}]
    prefixesFromPool: [{key: prefix, name: machines}]
    gatewaysFromPool: [{key: gateway, name: machines}]
  networkData:
    services: {dnsFromIPPool: machines}
    networks:
      ipv4:
      - id: machines
        link: eth0
        ipAddressFromIPPool: machines
        routes: [{network: 0.0.0.0, prefix: 0, gateway: {fromIPPool: machines}}]
      - id: storage
        link: eth1
        fromPoolRef: {apiGroup: butler.butlerlabs.dev, kind: NetworkPool, name: storage}
        routes: [{network: 10.72.0.0, prefix: 16, gateway: {fromPoolRef: {apiGroup: butler.butlerlabs.dev, kind: NetworkPool, name: storage}}}]
      ipv6:
      - id: storage6
        link: eth1
        fromPoolRef: {apiGroup: butler.butlerlabs.dev, kind: NetworkPool, name: storage6}
        routes: [{network: "2001:db8:1::", prefix: 48, gateway: {fromPoolRef: {apiGroup: butler.butlerlabs.dev, kind: NetworkPool, name: storage6}}}]
`

// bareMetalHost is a host that waits for a machine. The argument is its name.
const bareMetalHost = `
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: %[1]s, labels: {host: %[1]s}}
spec: {online: false}
status: {provisioning: {state: available, ID: ""}}
`

// coreMachine is what Cluster API has for a machine. The argument is its name.
const coreMachine = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: %[1]s, labels: {cluster.x-k8s.io/cluster-name: web}}
spec:
  clusterName: web
  bootstrap: {dataSecretName: %[1]s-bootstrap}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: Metal3Machine, name: %[1]s}
`

// metal3Machine is what CAPM3 has for a machine. The arguments are its name, the UID of
// its Machine, and the labels of its host.
const metal3Machine = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: Metal3Machine
metadata:
  name: %[1]s
  labels: {cluster.x-k8s.io/cluster-name: web}
  ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, name: %[1]s, uid: %[2]s, controller: true}]
spec:
  image: {url: "http://192.0.2.1/image", checksum: "http://192.0.2.1/image.sha256"}
  dataTemplate: {name: nodes}
  hostSelector: {matchLabels: %[3]s}
`

// capm3 is CAPM3's manager for one namespace, with the objects of dataTemplate.
type capm3 struct {
	t         *testing.T
	namespace string
	// claimName returns the name of the claim that CAPM3 creates for a machine with this
	// Metal3Data and this host.
	claimName func(p dataPool, data, host string) string
}

// namedAfterData returns the name of a claim unless the manager has the flag
// --enable-bmh-name-based-preallocation.
func namedAfterData(p dataPool, data, _ string) string { return data + "-" + p.name }

var installCAPM3 = sync.OnceValue(func() error {
	return cluster.InstallCRDs(context.Background(), "bin/capm3-crds", "test/clients/testdata/baremetalhosts.yaml")
})

// startCAPM3 starts the manager of CAPM3 for a namespace of its own, without its
// webhooks, and creates the objects of dataTemplate and the hosts host-0, host-1 and so
// on.
func startCAPM3(t *testing.T, hosts int, preAllocations string, args ...string) *capm3 {
	t.Helper()
	if err := installCAPM3(); err != nil {
		t.Fatal(err)
	}
	p := &capm3{t: t, namespace: suite.CreateNamespace(t, stored), claimName: namedAfterData}
	process, err := cluster.StartProgram(t.Context(), sandbox.Program{
		Name: "capm3-" + p.namespace, Path: "bin/capm3", Build: "make bin/capm3 bin/capm3-crds", ProbePath: "/readyz",
		Args: func(probe, webhooks netip.AddrPort) []string {
			return append([]string{
				"--leader-elect=false", "--skip-crd-migration-phases=StorageVersionMigration", "--skip-crd-migration-phases=CleanupManagedFields",
				"--namespace=" + p.namespace, "--health-addr=" + probe.String(), "--diagnostics-address=0",
				fmt.Sprintf("--webhook-port=%d", webhooks.Port()), "--webhook-cert-dir=" + cluster.WebhookCertDir(),
			}, args...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(process.Tail())
		}
		if err := process.Terminate(); err != nil {
			t.Error(err)
		}
	})
	p.create(fmt.Sprintf(dataTemplate, p.namespace, preAllocations))
	for i := range hosts {
		p.create(fmt.Sprintf(bareMetalHost, hostName(i)))
	}
	return p
}

func hostName(i int) string { return fmt.Sprintf("host-%d", i) }

// create creates the objects in a YAML text, with their statuses, and returns the last
// object.
func (p *capm3) create(text string) *unstructured.Unstructured {
	p.t.Helper()
	var o *unstructured.Unstructured
	for document := range strings.SplitSeq(text, "\n---\n") {
		o = &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			p.t.Fatal(err)
		}
		o.SetNamespace(p.namespace)
		status, found := o.Object["status"]
		suite.Create(p.t, stored, o)
		if !found {
			continue
		}
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			p.t.Fatal(err)
		}
		if err := stored.Status().Patch(p.t.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
			p.t.Fatal(err)
		}
	}
	return o
}

// object returns an object without its content.
func (p *capm3) object(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(p.namespace)
	o.SetName(name)
	return o
}

// await reads an object until missing returns "". missing returns what the object lacks.
func (p *capm3) await(o *unstructured.Unstructured, missing func() string) {
	p.t.Helper()
	suite.Eventually(p.t, patience, func(ctx context.Context) error {
		if err := stored.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if lacks := missing(); lacks != "" {
			return fmt.Errorf("%s %s: %s: status %v", o.GetKind(), o.GetName(), lacks, o.Object["status"])
		}
		return nil
	})
}

// addMachine creates a machine for a host with these labels.
func (p *capm3) addMachine(name, hostLabels string) {
	p.t.Helper()
	machine := p.create(fmt.Sprintf(coreMachine, name))
	p.create(fmt.Sprintf(metal3Machine, name, machine.GetUID(), hostLabels))
}

// removeMachines deletes machines as Cluster API does, and waits until they are gone.
func (p *capm3) removeMachines(names ...string) {
	p.t.Helper()
	for _, name := range names {
		if err := stored.Delete(p.t.Context(), p.object(infrastructure, "Metal3Machine", name)); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, name := range names {
		m := p.object(infrastructure, "Metal3Machine", name)
		suite.Eventually(p.t, patience, func(ctx context.Context) error {
			if err := stored.Get(ctx, client.ObjectKeyFromObject(m), m); !apierrors.IsNotFound(err) {
				return fmt.Errorf("machine %s is still there, with finalizers %q: %v", name, m.GetFinalizers(), err)
			}
			return nil
		})
		suite.Delete(p.t, stored, p.object("cluster.x-k8s.io/v1beta2", "Machine", name))
	}
}

// machineData is what the test reads of the data of a machine.
type machineData struct {
	Networks []network `json:"networks"`
	Services []service `json:"services"`
	meta     map[string]string
}

type network struct {
	ID      string  `json:"id"`
	Type    string  `json:"type"`
	Address string  `json:"ip_address"`
	Netmask string  `json:"netmask"`
	Routes  []route `json:"routes"`
}

type route struct {
	Gateway string `json:"gateway"`
}

type service struct {
	Address string `json:"address"`
}

// addresses waits until a host has the data of a machine. It fails the test unless the
// data have the addresses of the machine's claims, and returns the address from each
// pool.
func (p *capm3) addresses(machine string) map[string]string {
	p.t.Helper()
	m := p.object(infrastructure, "Metal3Machine", machine)
	p.await(m, func() string {
		if text(m, "status/networkData/name") == "" || text(m, "status/metaData/name") == "" {
			return "has no data"
		}
		return ""
	})
	_, host, _ := strings.Cut(m.GetAnnotations()["metal3.io/BareMetalHost"], "/")
	h := suite.Read(p.t, stored, p.object("metal3.io/v1alpha1", "BareMetalHost", host))
	want := map[string]string{"consumerRef": machine, "networkData": text(m, "status/networkData/name"), "metaData": text(m, "status/metaData/name")}
	got := map[string]string{}
	for field := range want {
		got[field] = text(h, "spec/"+field+"/name")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("host %s (-want +got):\n%s", host, diff)
	}

	claimed, expected := p.claimed(text(m, "status/renderedData/name"), host)
	var rendered machineData
	p.decode(want["networkData"], "networkData", &rendered)
	p.decode(want["metaData"], "metaData", &rendered.meta)
	delete(rendered.meta, "providerid")
	if diff := cmp.Diff(expected, rendered, cmp.AllowUnexported(machineData{})); diff != "" {
		p.t.Errorf("data of machine %s (-claimed +secrets):\n%s", machine, diff)
	}
	return claimed
}

// claimed returns the address that the claims of a machine have from each pool, and the
// data that CAPM3 has to write. It fails the test unless the address object of each claim
// has the same address.
func (p *capm3) claimed(data, host string) (addresses map[string]string, expected machineData) {
	p.t.Helper()
	objects, err := list(p.t.Context(), p.namespace, all...)
	if err != nil {
		p.t.Fatal(err)
	}
	addresses = map[string]string{}
	expected.Services = []service{{"10.70.0.2"}, {"10.70.0.3"}}
	for _, pool := range dataPools {
		name := pool.claim.Group + " " + pool.claim.Kind + "/" + p.claimName(pool, data, host)
		claim, found := objects[name]
		if !found {
			p.t.Fatalf("%s is not stored", name)
		}
		address, found := objects[pool.address.Group+" "+pool.address.Kind+"/"+text(claim, pool.claim.proof)]
		if !found {
			p.t.Fatalf("%s names no stored address object: status %v", name, claim.Object["status"])
		}
		addresses[pool.name] = text(claim, pool.claim.answers[0][0])
		if got := text(address, "spec/address"); got != addresses[pool.name] {
			p.t.Errorf("%s has %s, and its address object has %s", name, addresses[pool.name], got)
		}
		expected.Networks = append(expected.Networks, network{
			ID: pool.name, Type: pool.family, Address: addresses[pool.name], Netmask: pool.netmask, Routes: []route{{pool.gateway}},
		})
	}
	expected.meta = map[string]string{"address": addresses["machines"], "prefix": "24", "gateway": "10.70.0.1"} // CAPM3 reads metadata only from IPPools
	return addresses, expected
}

// decode reads one entry of a Secret into v.
func (p *capm3) decode(secret, key string, v any) {
	p.t.Helper()
	s := suite.Read(p.t, stored, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: secret}})
	if err := yaml.Unmarshal(s.Data[key], v); err != nil {
		p.t.Fatalf("%s of secret %s: %v\n%s", key, secret, err, s.Data[key])
	}
}

// owners waits until the status of each pool counts this number of owners.
func (p *capm3) owners(want int) {
	p.t.Helper()
	for _, pool := range dataPools {
		o := p.object(pool.pool.GroupVersion().String(), pool.pool.Kind, pool.name)
		p.await(o, func() string {
			indexes, _, _ := unstructured.NestedMap(o.Object, "status", "indexes")
			count, _, _ := unstructured.NestedInt64(o.Object, "status", "allocationCount")
			if got := len(indexes) + int(count); got != want {
				return fmt.Sprintf("has %d owners, want %d", got, want)
			}
			return ""
		})
	}
}

// released waits until no claim and no address object is left, and checks that no host
// has a machine.
func (p *capm3) released(hosts int) {
	p.t.Helper()
	suite.Eventually(p.t, patience, func(ctx context.Context) error {
		left, err := list(ctx, p.namespace, ipClaims, ipAddressClaims, metal3Addresses, clusterAPIAddresses)
		if err != nil {
			return err
		}
		for name, o := range left {
			return fmt.Errorf("%d objects are left, such as %s with finalizers %q, deleted at %v", len(left), name, o.GetFinalizers(), o.GetDeletionTimestamp())
		}
		return nil
	})
	p.owners(0)
	for i := range hosts {
		h := suite.Read(p.t, stored, p.object("metal3.io/v1alpha1", "BareMetalHost", hostName(i)))
		if machine := text(h, "spec/consumerRef/name"); machine != "" {
			p.t.Errorf("host %s has machine %s", hostName(i), machine)
		}
	}
}

// fill creates as many machines as the pools serve. It fails the test unless the machines
// have all addresses of the pools, and returns the addresses of each machine.
func (p *capm3) fill(names ...string) map[string]map[string]string {
	p.t.Helper()
	for _, name := range names {
		p.addMachine(name, "{}")
	}
	given := map[string]map[string]string{}
	for _, name := range names {
		given[name] = p.addresses(name)
	}
	for _, pool := range dataPools {
		var got []string
		for _, addresses := range given {
			got = append(got, addresses[pool.name])
		}
		slices.Sort(got)
		if diff := cmp.Diff(pool.offers, got); diff != "" {
			p.t.Errorf("addresses of pool %s (-offered +given):\n%s", pool.name, diff)
		}
	}
	ranges(p.t, p.namespace, len(names)*len(dataPools))
	p.owners(len(names))
	return given
}

func TestCAPM3_Machines(t *testing.T) {
	t.Parallel()
	const hosts = 4
	p := startCAPM3(t, hosts, "{}")
	given := p.fill("a", "b", "c")

	// A machine that finds the pools full gets the addresses of the machine that is
	// deleted.
	p.addMachine("d", "{}")
	m := p.object(infrastructure, "Metal3Machine", "d")
	p.await(m, func() string {
		if text(m, "status/renderedData/name") == "" {
			return "has no Metal3Data"
		}
		return ""
	})
	data := p.object(infrastructure, "Metal3Data", text(m, "status/renderedData/name"))
	p.await(data, func() string {
		if !strings.Contains(text(data, "status/errorMessage"), "Exhausted IP Pools") {
			return "does not say that the pool is exhausted"
		}
		return ""
	})
	p.removeMachines("b")
	if diff := cmp.Diff(given["b"], p.addresses("d")); diff != "" {
		t.Errorf("addresses of the deleted machine, and of the machine that waited (-deleted +waited):\n%s", diff)
	}
	p.owners(machinesOfPool)

	p.removeMachines("a", "c", "d")
	p.released(hosts)
	p.fill("e", "f", "g")
	p.removeMachines("e", "f", "g")
	p.released(hosts)
}

// With this flag, CAPM3 names the claims of an IPPool after the hosts, so that
// preAllocations of the pool keep an address for each host.
func TestCAPM3_HostsKeepAddresses(t *testing.T) {
	t.Parallel()
	kept := map[string]string{hostName(0): "10.70.0.12", hostName(1): "10.70.0.11"}
	p := startCAPM3(t, len(kept), fmt.Sprintf("{%s-machines: %s, %s-machines: %s}", hostName(0), kept[hostName(0)], hostName(1), kept[hostName(1)]),
		"--enable-bmh-name-based-preallocation")
	p.claimName = func(pool dataPool, data, host string) string {
		if pool.claim.Kind == ipClaims.Kind {
			data = host
		}
		return namedAfterData(pool, data, "")
	}
	for round := range 2 {
		var machines []string
		for _, i := range []int{round, 1 - round} { // the hosts get their machines in both orders
			machines = append(machines, fmt.Sprintf("machine-%d-%d", round, i))
			p.addMachine(machines[len(machines)-1], fmt.Sprintf("{host: %s}", hostName(i)))
			if got, want := p.addresses(machines[len(machines)-1])["machines"], kept[hostName(i)]; got != want {
				t.Errorf("machine on %s has %s, want %s", hostName(i), got, want)
			}
		}
		p.removeMachines(machines...)
		p.released(len(kept))
	}
}
