package health

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const grace = 10 * time.Minute

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var (
	old   = metav1.NewTime(now.Add(-time.Hour))
	fresh = metav1.NewTime(now.Add(-time.Minute))
)

// allocation returns an old IPAllocation with its finalizer, not Ready. Without first,
// the IPAllocation waits for its addresses.
func allocation(name, first, last string, change ...func(*butlerv1.IPAllocation)) *butlerv1.IPAllocation {
	a := &butlerv1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "2", CreationTimestamp: old, Finalizers: []string{butlerv1.FinalizerIPAllocation},
		},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, Type: butlerv1.TypeNodes,
			TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: "team", Name: "web"},
		},
	}
	if first != "" {
		a.Spec.PinnedRange = &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last}
	}
	for _, c := range change {
		c(a)
	}
	return a
}

func ready(a *butlerv1.IPAllocation) {
	a.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Allocated"}}
	a.Status.Phase = butlerv1.PhaseAllocated
}

// changedPool returns a newer version of the pool in the inventory.
func changedPool(cidr string, change func(*butlerv1.NetworkPool)) *butlerv1.NetworkPool {
	p := &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool", ResourceVersion: "9", Finalizers: []string{butlerv1.FinalizerNetworkPool}},
		Spec:       butlerv1.NetworkPoolSpec{CIDR: cidr},
	}
	change(p)
	return p
}

func ipClaim(address string) *metal3v1.IPClaim {
	return &metal3v1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "machine", UID: "machine", ResourceVersion: "5", CreationTimestamp: old, Finalizers: []string{metal3v1.FinalizerIPClaim},
			Annotations: map[string]string{metal3v1.AnnotationIPAddress: address}, Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "web"},
		},
		Spec:   metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "metal"}},
		Status: metal3v1.IPClaimStatus{Address: &corev1.ObjectReference{Name: "metal-10-1-0-1"}},
	}
}

func ipPool(change func(*metal3v1.IPPool)) *metal3v1.IPPool {
	p := &metal3v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "metal", UID: "metal", ResourceVersion: "3", Finalizers: []string{metal3v1.FinalizerIPPool}, Annotations: map[string]string{}},
		Spec:       metal3v1.IPPoolSpec{NamePrefix: "metal", Pools: []metal3v1.Pool{{Start: ptr.To(metal3v1.IP("10.1.0.1")), End: ptr.To(metal3v1.IP("10.1.0.20"))}}},
	}
	change(p)
	return p
}

func unchanged[T any](T) {}

func rangeOf(text string) allocator.Range {
	r, err := allocator.ParseRange(text)
	if err != nil {
		panic(err)
	}
	return r
}

// add returns a function that adds objects and runs the checks of the inventory alone.
func add(objects ...metav1.Object) func(*inventory.Inventory) []Finding {
	return func(i *inventory.Inventory) []Finding {
		for _, o := range objects {
			i.Add(o)
		}
		return Check(i, grace).Findings
	}
}

// defectsOfObjects maps each defect of pools, claims and addresses to a check that finds
// the defect. The inventory has a pool ns/pool, 10.0.0.0/24.
var defectsOfObjects = map[Defect]func(*inventory.Inventory) []Finding{
	TwoOwners:    add(allocation("a", "10.0.0.0", "10.0.0.3", ready), allocation("b", "10.0.0.3", "10.0.0.4", ready)),
	LostConflict: add(allocation("a", "10.0.0.0", "10.0.0.3", ready), allocation("b", "10.0.0.3", "10.0.0.4")),
	OrphanAddress: add(ipPool(unchanged), &metal3v1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "metal-10-1-0-9", UID: "address", ResourceVersion: "4", CreationTimestamp: old},
		Spec:       metal3v1.IPAddressSpec{Address: "10.1.0.9", Claim: corev1.ObjectReference{Name: "gone"}, Pool: corev1.ObjectReference{Name: "metal"}},
	}),
	PoolMissing:   add(allocation("a", "", "", func(a *butlerv1.IPAllocation) { a.Spec.PoolRef.Name = "missing" })),
	NoAddress:     add(allocation("a", "", "")),
	NotOffered:    add(allocation("a", "10.9.0.0", "10.9.0.1")),
	NotReady:      add(allocation("a", "10.0.0.0", "10.0.0.1")),
	StuckDeletion: add(allocation("a", "10.0.0.0", "10.0.0.1", ready, func(a *butlerv1.IPAllocation) { a.DeletionTimestamp = &old })),
	TenantMissing: func(i *inventory.Inventory) []Finding {
		i.Add(ipPool(unchanged))
		i.Add(ipClaim("10.1.0.1"))
		if !slices.Equal(Clusters(i), []string{"ns/web"}) || len(CheckClusters(i, inventory.Clusters{"ns/web": {}}, grace)) > 0 {
			return nil
		}
		return CheckClusters(i, inventory.Clusters{"ns/another": {}}, grace)
	},
	LeakedGrant: func(i *inventory.Inventory) []Finding {
		open := journal.Entry{Token: journal.Token{7}, Resource: "ipallocations.butler.butlerlabs.dev", Namespace: "ns", NameHash: 1}
		arrived := journal.Entry{Token: journal.Token{8}, Resource: "ipallocations.butler.butlerlabs.dev", Namespace: "ns", NameHash: 2}
		i.Add(allocation("a", "10.0.0.1", "10.0.0.1", ready, func(a *butlerv1.IPAllocation) {
			a.Annotations = map[string]string{butlerv1.AnnotationGrant: arrived.Token.String()}
		}))
		if found := checkGrants(i, []journal.Entry{open}, time.Minute); len(found) > 0 {
			return nil // the object of a grant may be stored within two minutes
		}
		return checkGrants(i, []journal.Entry{open, arrived}, time.Hour)
	},
	AddressObjectMissing: add(ipPool(unchanged), ipClaim("10.1.0.1")),
	FinalizerMissing:     add(allocation("a", "10.0.0.0", "10.0.0.1", ready, func(a *butlerv1.IPAllocation) { a.Finalizers = nil })),

	Overlap: add(changedPool("10.0.0.0/25", func(p *butlerv1.NetworkPool) { p.Name, p.UID = "other", "other" })),
	FaultyPool: add(changedPool("10.7.0.0/24", func(p *butlerv1.NetworkPool) {
		p.Name, p.UID = "faulty", "faulty"
		p.Spec.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.7.0.1", End: "10.7.0.9"}, {Start: "10.7.0.5", End: "10.7.0.12"}}}
	})),
	ClusterNetwork: func(i *inventory.Inventory) []Finding {
		i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.0.0.128/25"}} }))
		if found := CheckNetworks(i, nil, []Network{{"the Services", rangeOf("10.0.0.192/26")}, {"the Services", rangeOf("10.1.0.0/16")}}); len(found) > 0 {
			return nil // the first network is reserved, the second is outside of the pool
		}
		return CheckNetworks(i, nil, []Network{{"the Services", rangeOf("10.0.0.64/26")}})
	},
	UsedAddress: func(i *inventory.Inventory) []Finding {
		i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.0.0.128/25"}} }))
		i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Name, p.UID, p.Spec.RoutingDomain = "red", "red", "red" }))
		i.Add(allocation("a", "10.0.0.0", "10.0.0.1", ready))
		i.Add(allocation("b", "10.0.0.7", "10.0.0.7", ready, func(a *butlerv1.IPAllocation) { a.Spec.PoolRef.Name = "red" }))
		found := CheckUses(i, nil, []Use{
			{Address: rangeOf("10.0.0.1"), By: "Node owner"}, {Address: rangeOf("10.0.0.200"), By: "Node reserved"}, {Address: rangeOf("10.0.0.5"), By: "Node worker"},
			{Address: rangeOf("10.0.0.7"), By: "Node in another domain"}, {Address: rangeOf("192.0.2.1"), By: "Node elsewhere"},
			{Address: rangeOf("10.0.0.6"), By: "Node that the manager watches", Avoided: true},
		})
		if len(found) == 1 && strings.HasPrefix(found[0].Message, "Node worker uses 10.0.0.5,") {
			return found
		}
		return nil
	},
	PoolWaits:            add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.DeletionTimestamp = &old }), allocation("a", "10.0.0.0", "10.0.0.3", ready)),
	PoolFinalizerMissing: add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Finalizers = nil }), allocation("a", "10.0.0.0", "10.0.0.3", ready)),
	MovedRecordUnreadable: func(*inventory.Inventory) []Finding {
		good := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{poolrecord.AnnotationMovedPool: "ippools.ipam.metal3.io/ns/metal"}}, Data: map[string]string{poolrecord.KeyMoved: "[]"}}
		bad := *good.DeepCopy()
		bad.Data[poolrecord.KeyMoved] = "["
		return CheckMovedRecords([]corev1.ConfigMap{good, bad})
	},
	CooldownsFull: add(ipPool(func(p *metal3v1.IPPool) {
		p.Annotations = map[string]string{butlerv1.AnnotationReuseDelay: "1h", "notes": strings.Repeat("x", 250_000)}
	})),
	StatusListFull: add(ipPool(func(p *metal3v1.IPPool) {
		p.Status.Indexes = map[string]metal3v1.IP{}
		for n := range 4_300 {
			p.Status.Indexes[fmt.Sprintf("%0232d", n)] = "10.1.0.1"
		}
	})),
	CooldownsUnreadable: add(ipPool(func(p *metal3v1.IPPool) { p.Annotations = map[string]string{butlerv1.AnnotationCooldown: "["} })),

	Fragmented: add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) {
		p.Spec.TenantAllocation = &butlerv1.TenantAllocation{Defaults: &butlerv1.AllocationDefaults{NodesPerTenant: 200, LBPoolPerTenant: 8}}
	}), allocation("a", "10.0.0.100", "10.0.0.101", ready)),
	Full:         add(allocation("a", "10.0.0.0", "10.0.0.255", ready)),
	NearlyFull:   add(allocation("a", "10.0.0.0", "10.0.0.250", ready)),
	OnlyReserved: add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.0.0.0/24"}} })),
}

// defectsOfInstallation maps each defect of the installation to a check that finds the
// defect.
var defectsOfInstallation = map[Defect]func(*inventory.Inventory) []Finding{
	NoLeader: func(i *inventory.Inventory) []Finding {
		list, _ := CheckJournal(i, "system", lease(nil), false)
		missing, _ := CheckJournal(i, "system", nil, false)
		return append(list, missing...)
	},
	JournalUnreadable: func(i *inventory.Inventory) []Finding {
		list, _ := CheckJournal(i, "system", lease(func(l *coordinationv1.Lease) { l.Annotations["butler.butlerlabs.dev/journal"] = "/wA=" }), true)
		damaged, _ := CheckJournal(i, "system", lease(func(l *coordinationv1.Lease) { l.Annotations["butler.butlerlabs.dev/journal"] = "?" }), true)
		return append(list, damaged...)
	},
	JournalLost: func(i *inventory.Inventory) []Finding {
		list, _ := CheckJournal(i, "system", lease(func(l *coordinationv1.Lease) { l.Annotations = nil }), true)
		return list
	},
	ConfigurationMissing: func(i *inventory.Inventory) []Finding {
		return CheckWebhooks(i, Webhooks{mutating: []hook{}, validating: hooksOf(1, nil)})
	},
	WebhookMissing: func(i *inventory.Inventory) []Finding {
		return CheckWebhooks(i, Webhooks{mutating: hooksOf(0, nil)[1:], validating: hooksOf(1, nil)})
	},
	WrongBundle: func(i *inventory.Inventory) []Finding {
		authority, certificate := certificates(now.AddDate(1, 0, 0), now.AddDate(1, 0, 0))
		another, _ := certificates(now.AddDate(1, 0, 0), now.AddDate(1, 0, 0))
		if list, passed := CheckCertificates(i, Webhooks{mutating: hooksOf(0, authority)}, certificate); len(list) > 0 || passed == "" {
			return nil
		}
		return slices.Concat(bundles(i, nil, nil), bundles(i, []byte("?"), nil), bundles(i, another, certificate))
	},
	CertificateExpired: func(i *inventory.Inventory) []Finding {
		valid, expired := certificates(now.AddDate(1, 0, 0), now.Add(-time.Minute))
		ended, _ := certificates(now.Add(-time.Minute), now.Add(-time.Minute))
		return append(bundles(i, valid, expired), bundles(i, ended, nil)...)
	},
	CertificateExpires: func(i *inventory.Inventory) []Finding {
		authority, certificate := certificates(now.AddDate(1, 0, 0), now.AddDate(0, 0, 29))
		return bundles(i, authority, certificate)
	},
	NoEndpoint: func(*inventory.Inventory) []Finding {
		name := admissionv1.ServiceReference{Namespace: "system", Name: "webhook"}
		unready, _ := CheckEndpoints(name, &corev1.Service{}, []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}}}})
		missing, _ := CheckEndpoints(name, nil, nil)
		if ready, passed := CheckEndpoints(name, &corev1.Service{}, []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{}}}}); len(ready) > 0 || passed == "" {
			return nil
		}
		return append(unready, missing...)
	},
	ReplicasDiffer: func(i *inventory.Inventory) []Finding {
		if list := CheckReplicas(i, "system", []corev1.Pod{pod("v1", old), pod("v2", fresh)}, grace); len(list) > 0 {
			return nil // a rollout
		}
		return CheckReplicas(i, "system", []corev1.Pod{pod("v1", old), pod("v2", old)}, grace)
	},
	PluginDiffers: func(*inventory.Inventory) []Finding {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "registry:5000/butler-ipam:v0.2.1"}}
		if len(CheckPlugin("v0.2.0", d)) > 0 || len(CheckPlugin("1a2b3c4", d)) > 0 {
			return nil
		}
		labelled := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelVersion: "0.3.0"}}}
		return append(CheckPlugin("v0.1.0", d), CheckPlugin("v0.2.0", labelled)...)
	},
	CreateFails: func(*inventory.Inventory) []Finding {
		return []Finding{NewCreateFinding(butler.NetworkPoolKey("ns", "pool"), errors.New("denied")), NewCreateFinding(butler.NetworkPoolKey("ns", "pool"), nil)}
	},
}

func lease(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"butler.butlerlabs.dev/journal": "AQAAAAA=", "butler.butlerlabs.dev/journal-commit": "1"}}}
	l.Spec.HolderIdentity, l.Spec.RenewTime = ptr.To("manager-1@10.0.0.1:9443_X"), &metav1.MicroTime{Time: now.Add(-time.Minute)}
	if change != nil {
		change(l)
	}
	return l
}

// hooksOf returns the expected webhooks of group butler: mutating (0) or validating (1).
func hooksOf(kind int, bundle []byte) (list []hook) {
	for _, name := range expectedHooks["butler.butlerlabs.dev"][kind] {
		list = append(list, hook{name, admissionv1.WebhookClientConfig{CABundle: bundle, Service: &admissionv1.ServiceReference{Namespace: "system", Name: "webhook"}}})
	}
	return list
}

func bundles(i *inventory.Inventory, bundle, serving []byte) []Finding {
	list, _ := CheckCertificates(i, Webhooks{mutating: hooksOf(0, bundle), validating: hooksOf(1, bundle)}, serving)
	return list
}

func pod(image string, created metav1.Time) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "butler-ipam:" + image}, {Name: "sidecar", Image: image}}}}
}

// certificates returns an authority and a certificate of webhook.system.svc with the
// given ends. Each is valid for one year.
func certificates(authorityEnds, certificateEnds time.Time) (authority, certificate []byte) {
	sign := func(t, parent *x509.Certificate, public any, key *ecdsa.PrivateKey) (*x509.Certificate, []byte) {
		t.SerialNumber, t.NotBefore, t.BasicConstraintsValid = big.NewInt(1), t.NotAfter.AddDate(-1, 0, 0), true
		der, err := x509.CreateCertificate(rand.Reader, t, parent, public, key)
		if err != nil {
			panic(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			panic(err)
		}
		return c, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{NotAfter: authorityEnds, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	parent, authority := sign(template, template, key.Public(), key)
	_, certificate = sign(&x509.Certificate{NotAfter: certificateEnds, DNSNames: []string{"webhook.system.svc"}}, parent, key.Public(), key)
	return authority, certificate
}

// The check of each defect finds the defect under its identifier, and no other defect.
// Each defect has a check.
func TestCheck_FindsEachDefect(t *testing.T) {
	all := maps.Clone(defectsOfObjects)
	maps.Copy(all, defectsOfInstallation)
	for _, d := range Defects() {
		t.Run(d.ID, func(t *testing.T) {
			find := all[d]
			if find == nil {
				t.Fatal("no test")
			}
			i := inventory.New(now, nil)
			i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.ResourceVersion = "1" }))
			found := find(i)
			if len(found) == 0 {
				t.Error("not found")
			}
			for _, f := range found {
				if f.Defect != d || f.Remedy == "" || f.Message == "" || f.Title == "" {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// Check finds no defect in healthy objects, nor in temporary states shorter than the
// grace time.
func TestCheck_Healthy(t *testing.T) {
	i := inventory.New(now, nil)
	address := &metal3v1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "metal-10-1-0-1", UID: "address", ResourceVersion: "6", CreationTimestamp: old},
		Spec:       metal3v1.IPAddressSpec{Address: "10.1.0.1", Claim: corev1.ObjectReference{Name: "machine"}, Pool: corev1.ObjectReference{Name: "metal"}},
	}
	reserved := address.DeepCopy()
	reserved.Name, reserved.UID, reserved.Spec.Address, reserved.Spec.Claim.Name = "metal-10-1-0-2", "reserved", "10.1.0.2", "_reserved"
	young := func(a *butlerv1.IPAllocation) { a.CreationTimestamp, a.Finalizers = fresh, nil }
	unreadyOf := func(since metav1.Time) func(a *butlerv1.IPAllocation) {
		return func(a *butlerv1.IPAllocation) {
			a.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: since, Reason: "Pending"}}
		}
	}
	for _, o := range []metav1.Object{
		changedPool("10.0.0.0/24", unchanged), ipPool(func(p *metal3v1.IPPool) { p.Annotations[butlerv1.AnnotationReuseDelay] = "1h" }), ipClaim("10.1.0.1"), address, reserved,
		allocation("a", "10.0.0.0", "10.0.0.3", ready), allocation("waits", "", "", young), allocation("unready", "10.0.0.8", "10.0.0.9", young),
		allocation("changed", "10.0.0.10", "10.0.0.11", unreadyOf(fresh)),
		allocation("deleted", "10.0.0.12", "10.0.0.12", ready, func(a *butlerv1.IPAllocation) { a.DeletionTimestamp = &fresh }),
	} {
		i.Add(o)
	}
	if list := Check(i, grace).Findings; len(list) > 0 {
		t.Errorf("%+v", list)
	}
	if list := Check(i, time.Second).Findings; len(list) != 5 { // waits, unready without its finalizer, changed, deleted
		t.Errorf("with a grace time of a second: %+v", list)
	}
}

// Check does not report unread objects as missing.
func TestCheck_NotRead(t *testing.T) {
	i := inventory.New(now, nil)
	i.LeaveOut("ipaddresses.ipam.metal3.io", "")
	i.LeaveOut("networkpools.butler.butlerlabs.dev", "another")
	i.Add(ipPool(unchanged))
	i.Add(ipClaim("10.1.0.1"))
	waiting := allocation("a", "", "", func(a *butlerv1.IPAllocation) { a.CreationTimestamp = fresh })
	i.Add(waiting)
	if list := Check(i, grace).Findings; len(list) > 0 {
		t.Errorf("%+v", list)
	}
	i.LeaveOut("networkpools.butler.butlerlabs.dev", "ns")
	if list := Check(i, grace).Findings; len(list) != 1 || list[0].Defect != PoolMissing {
		t.Errorf("in the namespace that was read: %+v", list)
	}
}

// The objects of a grant may be stored if their resource was not read in the namespace of
// the grant.
func TestCheckGrants_NotRead(t *testing.T) {
	open := journal.Entry{Token: journal.Token{7}, Resource: "ipallocations.butler.butlerlabs.dev", Namespace: "ns", NameHash: 1}
	for namespace, want := range map[string]int{"": 0, "another": 0, "ns": 1} {
		i := inventory.New(now, nil)
		i.LeaveOut(open.Resource, namespace)
		if found := checkGrants(i, []journal.Entry{open}, time.Hour); len(found) != want {
			t.Errorf("only namespace %q was read: %v, want %d findings", namespace, found, want)
		}
	}
}

// BenchmarkCheck checks 10,000 claims, and 10,000 addresses in use.
func BenchmarkCheck(b *testing.B) {
	i := inventory.New(now, nil)
	i.Add(changedPool("10.0.0.0/16", unchanged))
	var uses []Use
	for n := range 10_000 {
		address := fmt.Sprintf("10.0.%d.%d", n/128, 2*(n%128))
		a := allocation(fmt.Sprint("claim-", n), address, address, ready)
		a.UID = types.UID(a.Name)
		i.Add(a)
		uses = append(uses, Use{Address: rangeOf(fmt.Sprintf("10.0.%d.%d", n/128, 2*(n%128)+1)), By: "Node"})
	}
	for b.Loop() {
		if found := len(Check(i, grace).Findings) + len(CheckUses(i, nil, uses)); found < len(uses) {
			b.Fatalf("%d findings of %d used addresses", found, len(uses))
		}
	}
}

func TestCheckOwnedUses(t *testing.T) {
	i := inventory.New(now, nil)
	i.Add(changedPool("10.0.0.0/24", unchanged))
	i.Add(changedPool("10.0.0.0/25", func(p *butlerv1.NetworkPool) { p.Name, p.UID, p.Spec.RoutingDomain = "red", "red", "red" }))
	i.Add(changedPool("10.9.0.0/24", func(p *butlerv1.NetworkPool) { p.Name, p.UID, p.Spec.RoutingDomain = "blue", "blue", "blue" }))
	lb := func(a *butlerv1.IPAllocation) { a.Spec.Type = butlerv1.TypeLoadBalancer }
	i.Add(allocation("nodes", "10.0.0.0", "10.0.0.7", ready))
	i.Add(allocation("handed", "10.0.0.16", "10.0.0.23", ready, lb))
	i.Add(allocation("lb", "10.0.0.128", "10.0.0.135", ready, lb))
	i.Add(allocation("red", "10.0.0.64", "10.0.0.71", ready, func(a *butlerv1.IPAllocation) { a.Spec.PoolRef.Name = "red" }))
	i.Add(allocation("blue", "10.9.0.0", "10.9.0.7", ready, func(a *butlerv1.IPAllocation) { a.Spec.PoolRef.Name = "blue" }))
	vip := func(name, address string) {
		v := &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
		v.Spec.Address = address
		i.Add(v)
	}
	vip("svc-ns.web", "10.1.0.1/32")
	vip("own", "10.1.0.2/32")
	handed := [][]allocator.Range{{rangeOf("10.0.0.16-10.0.0.19"), rangeOf("10.0.0.20-10.0.0.23")}, {rangeOf("10.0.0.128-10.0.0.140")}}
	for _, tc := range []struct {
		address, service string
		reported         bool
	}{
		{"10.0.0.3", "", false},         // a node of the tenant
		{"10.0.0.3", "ns/web", true},    // and a Service of this cluster
		{"10.0.0.21", "ns/web", false},  // MetalLB of this cluster assigns addresses of the allocation
		{"10.0.0.130", "ns/web", true},  // MetalLB assigns others, too
		{"10.0.0.200", "ns/web", false}, // free
		{"10.0.0.65", "ns/web", false},  // owned in a routing domain that need not be the cluster's
		{"10.9.0.1", "ns/web", false},   // also if it is the only one that offers the address
		{"10.1.0.1", "ns/web", false},   // its ProxyVIP
		{"10.1.0.1", "ns/other", true},  // of another Service
		{"10.1.0.2", "ns/other", false}, // of no Service
		{"10.1.0.2", "", true},          // a virtual address is no node's
	} {
		by := "Node n"
		if tc.service != "" {
			by = "Service " + tc.service
		}
		found := CheckOwnedUses(i, nil, []Use{{Address: rangeOf(tc.address), By: by, Service: tc.service}}, handed)
		if got := len(found) == 1 && found[0].Defect == UsedAddress && strings.HasPrefix(found[0].Message, by+" uses "+tc.address+", which "); len(found) > 1 || got != tc.reported {
			t.Errorf("%s of %s: %+v, want a finding: %t", tc.address, by, found, tc.reported)
		}
	}
}

// Nodes and Services are compared with the pools in the routing domain of their network:
// the default routing domain, or the only one.
func TestCheckUses_RoutingDomain(t *testing.T) {
	for name, tc := range map[string]struct {
		domains  []string
		reported string // routing domain of the reported pool
	}{
		"default":                  {[]string{""}, "pool-"},
		"default and another":      {[]string{"red", ""}, "pool-"},
		"only one":                 {[]string{"red"}, "pool-red"},
		"several, without default": {[]string{"red", "blue"}, ""},
	} {
		i := inventory.New(now, nil)
		for _, domain := range tc.domains {
			i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) {
				p.Name, p.UID, p.Spec.RoutingDomain = "pool-"+domain, types.UID("pool-"+domain), domain
			}))
		}
		found := slices.Concat(CheckUses(i, nil, []Use{{Address: rangeOf("10.0.0.9"), By: "Node n"}}), CheckNetworks(i, nil, []Network{{"the Services", rangeOf("10.0.0.0/28")}}))
		var objects []string
		for _, f := range found {
			objects = append(objects, f.Objects[0].Name)
		}
		want := []string{tc.reported, tc.reported}
		if tc.reported == "" {
			want = nil
		}
		if !slices.Equal(objects, want) {
			t.Errorf("%s: findings about %q, want %q", name, objects, want)
		}
	}
	i := inventory.New(now, nil)
	i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.Name = "default" }))
	i.Add(changedPool("10.9.0.0/24", func(p *butlerv1.NetworkPool) { p.Name, p.UID, p.Spec.RoutingDomain = "red", "red", "red" }))
	if found := CheckUses(i, nil, []Use{{Address: rangeOf("10.9.0.9"), By: "Node n"}}); len(found) > 0 {
		t.Errorf("the pool of another routing domain: %+v", found)
	}
}

// The given routing domain is that of the cluster, whatever pools exist.
func TestCheckUses_GivenRoutingDomain(t *testing.T) {
	i := inventory.New(now, nil)
	for _, domain := range []string{"", "blue", "red"} {
		i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) {
			p.Name, p.UID, p.Spec.RoutingDomain = "pool-"+domain, types.UID("pool-"+domain), domain
		}))
	}
	for _, domain := range []string{"", "red", "green"} {
		uses := []Use{{Address: rangeOf("10.0.0.9"), By: "Node n"}}
		found := slices.Concat(CheckUses(i, &domain, uses), CheckOwnedUses(i, &domain, uses, nil), CheckNetworks(i, &domain, []Network{{"the Services", rangeOf("10.0.0.0/28")}}))
		var objects []string
		for _, f := range found {
			objects = append(objects, f.Objects[0].Name)
		}
		want := []string{"pool-" + domain, "pool-" + domain}
		if domain == "green" {
			want = nil // no pool is there
		}
		if !slices.Equal(objects, want) {
			t.Errorf("%q: findings about %q, want %q", domain, objects, want)
		}
	}
}

// A second read confirms a finding only about the same objects, not about new objects of
// the same names.
func TestSeen_Confirm(t *testing.T) {
	read := func(uid types.UID, user string) (*inventory.Inventory, []Finding) {
		i := inventory.New(now, nil)
		i.Add(changedPool("10.0.0.0/24", func(p *butlerv1.NetworkPool) { p.UID = "pool-" + uid }))
		i.Add(allocation("a", "", "", func(a *butlerv1.IPAllocation) { a.UID = "a-" + uid }))
		use := Use{Address: rangeOf("10.0.0.5"), By: "Service ns/web", UID: user, Service: "ns/web"}
		return i, append(Check(i, grace).Findings, CheckUses(i, nil, []Use{use})...)
	}
	before, first := read("1", "1")
	if len(first) != 2 {
		t.Fatalf("%+v", first)
	}
	seen := See(first, before)
	for name, tc := range map[string]struct {
		uid  types.UID
		user string
		want []Defect
	}{
		"the same":                          {"1", "1", []Defect{NoAddress, UsedAddress}},
		"another Service":                   {"1", "2", []Defect{NoAddress}},
		"claim and pool were created again": {"2", "1", nil},
	} {
		now, second := read(tc.uid, tc.user)
		var got []Defect
		for _, f := range seen.Confirm(second, now) {
			got = append(got, f.Defect)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if found := seen.Confirm(nil, before); len(found) > 0 {
		t.Errorf("findings of the first read only: %+v", found)
	}
}

// A claim that waits for a Cluster has one finding, with the remedy for its reason. The
// finding about a missing Cluster of a claim is IPAM109.
func TestCheckClaim_WaitsForCluster(t *testing.T) {
	claim := func() *metal3v1.IPClaim {
		c := ipClaim("")
		c.Annotations, c.Status.Address = nil, nil
		return c
	}
	for name, tc := range map[string]struct {
		pool     func(*metal3v1.IPPool)
		clusters inventory.Clusters
		want     string
	}{
		"Cluster of the claim is missing": {func(p *metal3v1.IPPool) { p.Spec.ClusterName = ptr.To("web") }, inventory.Clusters{}, "IPAM109 create the Cluster, or kubectl delete -n ns ipclaims.ipam.metal3.io machine"},
		"Cluster of the pool is missing":  {func(p *metal3v1.IPPool) { p.Spec.ClusterName = ptr.To("other") }, inventory.Clusters{"ns/web": {}}, "IPAM104 create the Cluster, or correct its name"},
		"Cluster is paused":               {func(p *metal3v1.IPPool) { p.Spec.ClusterName = ptr.To("web") }, inventory.Clusters{"ns/web": {Paused: true}}, "IPAM104 end the pause, unless it is intended"},
		"pool is paused":                  {func(p *metal3v1.IPPool) { p.Annotations["cluster.x-k8s.io/paused"] = "" }, inventory.Clusters{"ns/web": {}}, "IPAM104 end the pause, unless it is intended"},
		"no reason":                       {unchanged[*metal3v1.IPPool], inventory.Clusters{"ns/web": {}}, "IPAM104 release addresses of its pool, or enlarge the pool, unless the reason is another"},
	} {
		i := inventory.New(now, nil)
		i.SetClusters(tc.clusters, "")
		i.Add(ipPool(tc.pool))
		i.Add(claim())
		var got []string
		for _, f := range append(Check(i, grace).Findings, CheckClusters(i, tc.clusters, grace)...) {
			got = append(got, f.ID+" "+f.Remedy)
		}
		if !slices.Equal(got, []string{tc.want}) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A remedy names a pool by an argument that names no other pool.
func TestCheck_RemedyNamesOnePool(t *testing.T) {
	i := inventory.New(now, nil)
	i.Add(changedPool("10.0.0.0/30", func(p *butlerv1.NetworkPool) { p.DeletionTimestamp = &old }))
	i.Add(ipPool(func(p *metal3v1.IPPool) { p.Name = "pool" }))
	i.Add(allocation("a", "10.0.0.0", "10.0.0.3", ready))
	found := Check(i, grace).Findings
	if len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	for _, f := range found {
		if !strings.HasSuffix(f.Remedy, "kubectl ipam claims --pool NetworkPool/ns/pool") {
			t.Errorf("%s: %s", f.ID, f.Remedy)
		}
	}
}
