package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

func TestLifecycle(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(suite.Soon)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	ctrllog.SetLogger(GinkgoLogr)
	RunSpecs(t, "Lifecycle")
}

// cluster is what one sandbox's specs work with.
type cluster struct {
	*sandbox.Sandbox
	client.WithWatch
}

// shared has one manager and the webhooks; specs that stop them start a cluster of their own.
var shared *cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	shared = start(ctx, sandbox.Options{Replicas: 1})
	DeferCleanup(func() error { return errors.Join(shared.WithinRights(), shared.Stop()) })
})

func start(ctx context.Context, o sandbox.Options) *cluster {
	GinkgoHelper()
	o.ManagerArgs = append([]string{"--shutdown-delay=0s"}, o.ManagerArgs...)
	s, err := sandbox.Start(ctx, o)
	Expect(err).NotTo(HaveOccurred())
	c, err := suite.Client(s)
	Expect(err).NotTo(HaveOccurred())
	running = append(running, s)
	return &cluster{s, c}
}

// running is every sandbox there is, for what their managers say when a spec fails.
var running []*sandbox.Sandbox

var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() {
		return
	}
	for _, s := range running {
		for _, m := range s.Managers() {
			if text, err := os.ReadFile(m.LogPath()); err == nil {
				fmt.Fprintf(GinkgoWriter, "the last of %s:\n%s\n", m.LogPath(), text[max(0, len(text)-8<<10):])
			}
		}
	}
})

// namespace makes one for a spec.
func (c *cluster) namespace(ctx context.Context) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(c.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

// pool is a NetworkPool named "pool", in a routing domain of the spec's own. It is not stored yet.
func pool(namespace, cidr string, ranges ...v1alpha1.IPRange) *v1alpha1.NetworkPool {
	p := &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: namespace},
		Spec:       v1alpha1.NetworkPoolSpec{CIDR: cidr, RoutingDomain: namespace},
	}
	if len(ranges) > 0 {
		p.Spec.TenantAllocation = &v1alpha1.TenantAllocation{Ranges: ranges}
	}
	return p
}

// resize gives a stored pool another CIDR, whatever is written to its status meanwhile.
func (c *cluster) resize(ctx context.Context, p *v1alpha1.NetworkPool, cidr string) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		p.Spec.CIDR = cidr
		return c.Update(ctx, p)
	})).To(Succeed())
}

// butlerPool is the pool of Butler's own tests: 128 of 256 addresses.
func butlerPool(namespace string) *v1alpha1.NetworkPool {
	return pool(namespace, "10.40.0.0/24", v1alpha1.IPRange{Start: "10.40.0.128", End: "10.40.0.255"})
}

// claim is an IPAllocation of the pool named "pool" for some addresses. It is not stored yet.
func claim(namespace, name string, count int32) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: "pool"},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "tenant", Namespace: "team"},
			Type:             v1alpha1.TypeLoadBalancer,
			Count:            ptr.To(count),
		},
	}
}

// pinned is claim for a range of its author's choice.
func pinned(namespace, name, first, last string) *v1alpha1.IPAllocation {
	a := claim(namespace, name, 1)
	a.Spec.Count = nil
	a.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: first, EndAddress: last}
	return a
}

// stored reads an object anew, for Eventually.
func stored[T client.Object](ctx context.Context, c client.Reader, o T) func() (T, error) {
	return func() (T, error) { return o, c.Get(ctx, client.ObjectKeyFromObject(o), o) }
}

// gone says whether an object is, for Eventually.
func gone(ctx context.Context, c client.Reader, o client.Object) func() bool {
	return func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(o), o)) }
}

// ready and the like read one thing of an object, for Should(HaveField…)-style waits.
func ready(a *v1alpha1.IPAllocation) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady)
}

func reason(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

func readyReason(a *v1alpha1.IPAllocation) string {
	return reason(a.Status.Conditions, v1alpha1.ConditionReady)
}

// span is the range of an allocation as text.
func span(a *v1alpha1.IPAllocation) string {
	if a.Spec.PinnedRange == nil {
		return ""
	}
	return a.Spec.PinnedRange.StartAddress + "-" + a.Spec.PinnedRange.EndAddress
}

// numbers of a pool: total, allocated, available.
func numbers(p *v1alpha1.NetworkPool) string {
	return fmt.Sprintf("%d/%d/%d", p.Status.TotalIPs, p.Status.AllocatedIPs, p.Status.AvailableIPs)
}

// eventReasons lists the reasons of the events about an object.
func (c *cluster) eventReasons(ctx context.Context, o client.Object) func() ([]string, error) {
	return func() ([]string, error) {
		var events corev1.EventList
		err := c.List(ctx, &events, client.InNamespace(o.GetNamespace()), client.MatchingFields{"involvedObject.uid": string(o.GetUID())})
		var reasons []string
		for _, e := range events.Items {
			reasons = append(reasons, e.Reason)
		}
		return reasons, err
	}
}

// create stores objects one after the other.
func (c *cluster) create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(c.Create(ctx, o)).To(Succeed())
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// resumeFrom is the options of a watch of everything after a version.
func resumeFrom(version string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: version}
}
