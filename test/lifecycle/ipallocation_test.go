package lifecycle

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var _ = Describe("an IPAllocation", func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) {
		namespace = shared.namespace(ctx)
		shared.create(ctx, butlerPool(namespace))
	})

	It("mirrors its range in its status", func(ctx SpecContext) {
		a := claim(namespace, "five", 5)
		shared.create(ctx, a)
		Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
		s := a.Status
		Expect(s.Phase).To(Equal(v1alpha1.PhaseAllocated))
		Expect(s.StartAddress).To(Equal("10.40.0.128"))
		Expect(s.EndAddress).To(Equal("10.40.0.132"))
		Expect(s.Addresses).To(Equal([]string{"10.40.0.128", "10.40.0.129", "10.40.0.130", "10.40.0.131", "10.40.0.132"}))
		Expect(s.AllocatedCount).To(BeEquivalentTo(5))
		Expect(s.CIDR).To(BeEmpty(), "five addresses are no network")
		Expect(s.ObservedGeneration).To(Equal(a.Generation))
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
		Expect(c.Reason).To(Equal(v1alpha1.ReasonAllocated))
		Expect(c.Message).To(Equal("5 IPs allocated from pool"))
		Eventually(shared.eventReasons(ctx, a)).Should(ConsistOf("IPsAllocated"))
	})

	It("is Ready within a second, by one write", func(ctx SpecContext) {
		var lags []time.Duration
		for i := range 20 {
			a := claim(namespace, fmt.Sprintf("quick-%02d", i), 2)
			shared.create(ctx, a)
			created := time.Now()
			versions := shared.versions(ctx, a, ready)
			lags = append(lags, time.Since(created))
			Expect(versions).To(HaveLen(1))
		}
		Expect(median(lags)).To(BeNumerically("<", time.Second), "median of %v", lags)
	})

	It("has its network in status.cidr where its range is one", func(ctx SpecContext) {
		a := claim(namespace, "eight", 8)
		shared.create(ctx, a)
		Eventually(stored(ctx, shared, a)).Should(HaveField("Status.CIDR", "10.40.0.128/29"))
	})

	It("lists no more than 4096 addresses, and says so", func(ctx SpecContext) {
		large := pool(namespace, "10.64.0.0/18")
		large.Name = "large"
		a, b := claim(namespace, "at-the-limit", 4096), claim(namespace, "above", 4097)
		a.Spec.PoolRef.Name, b.Spec.PoolRef.Name = "large", "large"
		shared.create(ctx, large, a, b)
		Eventually(stored(ctx, shared, a)).Should(HaveField("Status.Addresses", HaveLen(4096)))
		Eventually(stored(ctx, shared, b)).Should(WithTransform(ready, BeTrue()))
		Expect(b.Status.Addresses).To(BeEmpty())
		Expect(b.Status.AllocatedCount).To(BeEquivalentTo(4097))
		Expect(meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady).Message).To(ContainSubstring("not listed"))
	})

	It("gets finalizer and labels back when somebody takes them off", func(ctx SpecContext) {
		a := claim(namespace, "stripped", 1)
		shared.create(ctx, a)
		Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
		labels := a.Labels
		Expect(labels).To(HaveKeyWithValue(v1alpha1.LabelNetworkPool, "pool"))
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null,"labels":null}}`))
		Expect(shared.Patch(ctx, a, patch)).To(Succeed())
		Expect(a.Finalizers).To(BeEmpty())
		Eventually(stored(ctx, shared, a)).Should(SatisfyAll(
			HaveField("Finalizers", ConsistOf(v1alpha1.FinalizerIPAllocation)), HaveField("Labels", labels)))
	})

	It("gets its status back when somebody empties it", func(ctx SpecContext) {
		a := claim(namespace, "emptied", 3)
		shared.create(ctx, a)
		Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
		addresses := a.Status.Addresses
		a.Status = v1alpha1.IPAllocationStatus{}
		Expect(shared.Status().Update(ctx, a)).To(Succeed())
		Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
		Expect(a.Status.Addresses).To(Equal(addresses))
	})
})

// versions watches an object from the version given until it is done, and gives those that came.
func (c *cluster) versions(ctx context.Context, a *v1alpha1.IPAllocation, done func(*v1alpha1.IPAllocation) bool) []*v1alpha1.IPAllocation {
	GinkgoHelper()
	w, err := c.Watch(ctx, &v1alpha1.IPAllocationList{}, client.InNamespace(a.Namespace), client.MatchingFields{"metadata.name": a.Name},
		&client.ListOptions{Raw: resumeFrom(a.ResourceVersion)})
	Expect(err).NotTo(HaveOccurred())
	defer w.Stop()
	var versions []*v1alpha1.IPAllocation
	for {
		var event watch.Event
		Eventually(w.ResultChan()).Should(Receive(&event))
		if event.Type != watch.Modified {
			continue
		}
		version := event.Object.(*v1alpha1.IPAllocation)
		if versions = append(versions, version); done(version) {
			return versions
		}
	}
}
