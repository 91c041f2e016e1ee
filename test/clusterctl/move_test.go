package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	clusterctllog "sigs.k8s.io/cluster-api/cmd/clusterctl/log"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// soon bounds the wait for a state that comes about within a second on an idle machine.
const soon = 30 * time.Second

// place is a management cluster.
type place struct {
	*sandbox.Sandbox
	client.Client
	t *testing.T
}

// start starts a management cluster with two managers.
func start(t *testing.T) place {
	t.Helper()
	return startWith(t, 2)
}

// startWith starts a management cluster; without managers there are no webhooks either.
func startWith(t *testing.T, managers int) place {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), ipamv1.AddToScheme(scheme),
		butlerv1.AddToScheme(scheme), metal3v1.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	s, err := sandbox.Start(t.Context(), sandbox.Options{ClusterAPI: true, Replicas: managers, ManagerArgs: []string{"--shutdown-delay=0s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := s.Config()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	p := place{s, c, t}
	p.label()
	return p
}

// label puts on the CRDs of Cluster API what clusterctl init does.
func (p place) label() {
	p.t.Helper()
	for _, name := range []string{"clusters.cluster.x-k8s.io", "ipaddressclaims.ipam.cluster.x-k8s.io", "ipaddresses.ipam.cluster.x-k8s.io"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.read(crd)
		before := crd.DeepCopy()
		for label, value := range map[string]string{"clusterctl.cluster.x-k8s.io": "", "cluster.x-k8s.io/provider": "cluster-api", "cluster.x-k8s.io/v1beta2": "v1beta2"} {
			metav1.SetMetaDataLabel(&crd.ObjectMeta, label, value)
		}
		if err := p.Patch(p.t.Context(), crd, client.MergeFrom(before)); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p place) read(o client.Object) {
	p.t.Helper()
	if err := p.Get(p.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		p.t.Fatal(err)
	}
}

func (p place) create(objects ...client.Object) {
	p.t.Helper()
	for _, o := range objects {
		if err := p.Create(p.t.Context(), o); err != nil {
			p.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

const namespace = "tenants"

// addresses is which claim has which address, of both kinds: by the answer, by what the
// claim's status names, and by the pool.
func (p place) addresses() (map[string]string, error) {
	ctx, in := context.Background(), client.InNamespace(namespace)
	var (
		claims         metal3v1.IPClaimList
		others         ipamv1.IPAddressClaimList
		owned          metal3v1.IPAddressList
		otherAddresses ipamv1.IPAddressList
	)
	if err := errors.Join(p.List(ctx, &claims, in), p.List(ctx, &others, in), p.List(ctx, &owned, in), p.List(ctx, &otherAddresses, in)); err != nil {
		return nil, err
	}
	all, objects := map[string]string{}, map[string]string{}
	for _, a := range owned.Items {
		objects["IPClaim/"+a.Name] = string(a.Spec.Address)
	}
	var errs []error
	for _, a := range otherAddresses.Items {
		objects["IPAddressClaim/"+a.Name] = a.Spec.Address
		errs = append(errs, p.ownedByPool(ctx, &a))
	}
	add := func(kind, name, answer, object string) {
		if answer == "" || objects[kind+"/"+object] != answer {
			errs = append(errs, fmt.Errorf("%s %s: the answer is %q, its address object %q has %q", kind, name, answer, object, objects[kind+"/"+object]))
		}
		all[kind+"/"+name] = answer
	}
	for _, c := range claims.Items {
		add("IPClaim", c.Name, c.Annotations[metal3v1.AnnotationIPAddress], ptr.Deref(c.Status.Address, corev1.ObjectReference{}).Name)
	}
	for _, c := range others.Items {
		if !meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ReadyCondition) {
			errs = append(errs, fmt.Errorf("IPAddressClaim %s is not ready: %+v", c.Name, c.Status.Conditions))
		}
		add("IPAddressClaim", c.Name, c.Annotations[metal3v1.AnnotationIPAddress], c.Status.AddressRef.Name)
	}
	return all, errors.Join(errs...)
}

// ownedByPool is an error where an address of the NetworkPool does not name the
// NetworkPool of this cluster as its owner, beside its claim.
func (p place) ownedByPool(ctx context.Context, a *ipamv1.IPAddress) error {
	if a.Spec.PoolRef.Kind != "NetworkPool" {
		return nil
	}
	pool := &butlerv1.NetworkPool{}
	if err := p.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.PoolRef.Name}, pool); err != nil {
		return err
	}
	if !slices.ContainsFunc(a.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "NetworkPool" && r.UID == pool.UID }) || len(a.OwnerReferences) != 2 {
		return fmt.Errorf("IPAddress %s: owners %+v, want its claim and NetworkPool %s", a.Name, a.OwnerReferences, pool.UID)
	}
	return nil
}

// settled waits until every claim has its address object, and gives who has what.
func (p place) settled(n int) map[string]string {
	p.t.Helper()
	var all map[string]string
	var last error
	err := wait.PollUntilContextTimeout(p.t.Context(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		all, last = p.addresses()
		return last == nil && len(all) == n, nil
	})
	if err != nil {
		p.t.Fatalf("%d claims, want %d: %v", len(all), n, last)
	}
	return all
}

// empty waits until nothing is left of what was moved.
func (p place) empty() {
	p.t.Helper()
	err := wait.PollUntilContextTimeout(p.t.Context(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		all, _ := p.addresses()
		err := p.Get(p.t.Context(), client.ObjectKey{Namespace: namespace, Name: "first"}, &metal3v1.IPPool{})
		return len(all) == 0 && apierrors.IsNotFound(err), nil
	})
	if err != nil {
		p.t.Fatal("claims or pools are left behind")
	}
}

const each = 17 // claims of a pool, but of the last, which has one fewer

// populate makes a Cluster with two IPPools and a NetworkPool beside it, and 50 claims.
func (p place) populate() {
	p.t.Helper()
	owner := p.cluster()
	p.shared()
	p.create(ipPool("first", "10.1.0.1", "10.1.0.40"), ipPool("second", "10.2.0.1", "10.2.0.40"))
	for i := range each {
		of := func(name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i), OwnerReferences: []metav1.OwnerReference{owner}}
		}
		p.create(
			&metal3v1.IPClaim{ObjectMeta: of("metal3"), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "first"}}},
			secondClaim(of("second")))
		if i < each-1 {
			p.create(sharedClaim(of("shared")))
		}
	}
}

// cluster makes a Cluster that runs, and says how others are owned by it.
func (p place) cluster() metav1.OwnerReference {
	p.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workload"}, Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Cluster", Name: "workload"},
	}}
	p.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, cluster)
	p.provisioned()
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "workload", UID: cluster.UID}
}

// provisioned has the Cluster say what its providers do once it runs: clusterctl moves no
// other, and a move leaves the status behind.
func (p place) provisioned() {
	p.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workload"}}
	p.read(cluster)
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	cluster.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized", LastTransitionTime: metav1.Now(),
	}}
	if err := p.Status().Update(p.t.Context(), cluster); err != nil {
		p.t.Fatal(err)
	}
}

// shared makes the NetworkPool, which belongs to no Cluster and is in both places.
func (p place) shared() {
	p.t.Helper()
	p.create(&butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shared"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.3.0.0/27"}})
}

func sharedClaim(m metav1.ObjectMeta) *ipamv1.IPAddressClaim {
	return &ipamv1.IPAddressClaim{ObjectMeta: m, Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "shared"},
	}}
}

// secondClaim asks the second IPPool.
func secondClaim(m metav1.ObjectMeta) *ipamv1.IPAddressClaim {
	return &ipamv1.IPAddressClaim{ObjectMeta: m, Spec: ipamv1.IPAddressClaimSpec{
		ClusterName: "workload", PoolRef: ipamv1.IPPoolReference{APIGroup: metal3v1.GroupVersion.Group, Kind: "IPPool", Name: "second"},
	}}
}

func ipPool(name, start, end string) *metal3v1.IPPool {
	first, last := metal3v1.IP(start), metal3v1.IP(end)
	return &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: metal3v1.IPPoolSpec{
		ClusterName: ptr.To("workload"), NamePrefix: name, Prefix: 24, Pools: []metal3v1.Pool{{Start: &first, End: &last}},
	}}
}

// move has clusterctl do what the options say.
func move(t *testing.T, options clusterctl.MoveOptions) {
	t.Helper()
	if err := tryMove(t, options); err != nil {
		t.Fatal(err)
	}
}

func tryMove(t *testing.T, options clusterctl.MoveOptions) error {
	c, err := clusterctl.New(t.Context(), configFile(t))
	if err != nil {
		return err
	}
	options.Namespace = namespace
	return c.Move(t.Context(), options)
}

// configFile is an empty one: without it clusterctl looks for one at home.
func configFile(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/clusterctl.yaml"
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (p place) kubeconfig() clusterctl.Kubeconfig { return clusterctl.Kubeconfig{Path: p.Kubeconfig()} }

const total = 3*each - 1

func TestMove_ThereAndBack(t *testing.T) {
	here, there := start(t), start(t)
	here.populate()
	there.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	there.shared()
	before := here.settled(total)

	release := here.busyWith("metal3-0")
	moved := make(chan error, 1)
	go func() {
		moved <- tryMove(t, clusterctl.MoveOptions{FromKubeconfig: here.kubeconfig(), ToKubeconfig: there.kubeconfig()})
	}()
	release(there)
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, there.settled(total)); diff != "" {
		t.Errorf("there (-before +after):\n%s", diff)
	}
	here.empty()
	here.givesNothingAway(before)

	there.provisioned()
	move(t, clusterctl.MoveOptions{FromKubeconfig: there.kubeconfig(), ToKubeconfig: here.kubeconfig()})
	if diff := cmp.Diff(before, here.settled(total)); diff != "" {
		t.Errorf("back (-before +after):\n%s", diff)
	}
	there.empty()
	there.givesNothingAway(before)
}

// busyWith leaves an IPClaim as a replica does that is giving it an address, with the
// managers frozen. What it returns waits until clusterctl says that it waits, sees that
// nothing has been moved, and thaws the managers: the claim is in nobody's way then.
func (p place) busyWith(name string) (release func(to place)) {
	p.t.Helper()
	each := func(do func(*sandbox.Manager) error) {
		for _, m := range p.Managers() {
			if err := do(m); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	each(func(m *sandbox.Manager) error { return m.Freeze() })
	claim := &metal3v1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.read(claim)
	before := claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "butler-ipam")
	if err := p.Patch(p.t.Context(), claim, client.MergeFrom(before)); err != nil {
		p.t.Fatal(err)
	}
	waits := make(chan struct{}, 1)
	clusterctllog.SetLogger(funcr.New(func(_, line string) {
		if strings.Contains(line, "Move blocked by") {
			waits <- struct{}{}
		}
	}, funcr.Options{}))
	return func(to place) {
		p.t.Helper()
		select {
		case <-waits:
		case <-time.After(soon):
			p.t.Error("clusterctl does not wait for the claim")
		}
		var moved clusterv1.ClusterList
		if err := to.List(p.t.Context(), &moved, client.InNamespace(namespace)); err != nil || len(moved.Items) > 0 {
			p.t.Errorf("%d Clusters are moved already: %v", len(moved.Items), err)
		}
		each(func(m *sandbox.Manager) error { return m.Thaw() })
	}
}

// givesNothingAway asks for every address that the shared pool has left, and fails the
// test where one is among those that were moved.
func (p place) givesNothingAway(moved map[string]string) {
	p.t.Helper()
	has := map[string]string{}
	for claim, a := range moved {
		has[a] = claim
	}
	var fresh []*ipamv1.IPAddressClaim
	got := 0
	for i := range 32 {
		c := sharedClaim(metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("fresh-%d", i)})
		p.create(c)
		fresh = append(fresh, c)
		a := c.Annotations[metal3v1.AnnotationIPAddress]
		if a != "" {
			got++
		}
		if claim, moved := has[a]; moved {
			p.t.Errorf("%s got %s, which %s has in the other cluster", c.Name, a, claim)
		}
	}
	if want := 32 - (each - 1); got != want {
		p.t.Errorf("%d claims got an address, want %d", got, want)
	}
	for _, c := range fresh {
		if err := p.Delete(p.t.Context(), c); err != nil {
			p.t.Fatal(err)
		}
	}
	err := wait.PollUntilContextTimeout(p.t.Context(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		all, _ := p.addresses()
		return len(all) == 0, nil
	})
	if err != nil {
		p.t.Fatal("claims are not released")
	}
}

func TestMove_ToADirectory(t *testing.T) {
	here, there := start(t), start(t)
	here.populate()
	there.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	there.shared()
	before := here.settled(total)
	dir := t.TempDir()
	move(t, clusterctl.MoveOptions{FromKubeconfig: here.kubeconfig(), ToDirectory: dir})
	move(t, clusterctl.MoveOptions{FromDirectory: dir, ToKubeconfig: there.kubeconfig()})
	if diff := cmp.Diff(before, there.settled(total)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
