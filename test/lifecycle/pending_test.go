package lifecycle

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

var _ = Describe("an IPAllocation whose pool comes after it", func() {
	It("says so, and has its addresses within a second of the pool", func(ctx SpecContext) {
		namespace := shared.namespace(ctx)
		var lags []time.Duration
		for i := range 5 {
			a, b, p := claim(namespace, fmt.Sprintf("waits-%d", i), 4), pinned(namespace, fmt.Sprintf("pinned-%d", i), "10.44.0.0", "10.44.0.2"), pool(namespace, "10.44.0.0/24")
			p.Name = fmt.Sprintf("late-%d", i)
			p.Spec.RoutingDomain = p.Name
			a.Spec.PoolRef.Name, b.Spec.PoolRef.Name = p.Name, p.Name
			shared.create(ctx, a, b)
			for _, waiting := range []*v1alpha1.IPAllocation{a, b} {
				Eventually(stored(ctx, shared, waiting)).Should(SatisfyAll(
					HaveField("Status.Phase", v1alpha1.PhasePending), WithTransform(readyReason, Equal(v1alpha1.ReasonPoolNotFound))))
			}
			shared.create(ctx, p)
			created := time.Now()
			Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
			Eventually(stored(ctx, shared, b)).Should(WithTransform(ready, BeTrue()))
			lags = append(lags, time.Since(created))
			Expect(span(a)).To(Equal("10.44.0.3-10.44.0.6"), "what %s holds is not given away", b.Name)
			Expect(span(b)).To(Equal("10.44.0.0-10.44.0.2"))
			Expect(a.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationOrigin, v1alpha1.OriginAuto))
			Expect(b.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationOrigin, v1alpha1.OriginAdopted))
			Expect(b.Spec.Count).To(HaveValue(BeEquivalentTo(3)))
		}
		Expect(median(lags)).To(BeNumerically("<", time.Second), "median of %v", lags)
	})
})

var _ = Describe("IPAllocations that the webhooks were not asked about", Ordered, func() {
	var (
		c         *cluster
		namespace string
	)
	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{}) // no webhooks
		DeferCleanup(c.Stop)
		_, err := c.AddManager(ctx)
		Expect(err).NotTo(HaveOccurred())
	})
	BeforeEach(func(ctx SpecContext) { namespace = c.namespace(ctx) })

	It("get all that a create through them gets", func(ctx SpecContext) {
		a, b := claim(namespace, "counted", 3), claim(namespace, "by-default", 1)
		b.Spec.Count, b.Spec.Type = nil, v1alpha1.TypeNodes
		c.create(ctx, butlerPool(namespace), a, b)
		Eventually(stored(ctx, c, a)).Should(WithTransform(ready, BeTrue()))
		Eventually(stored(ctx, c, b)).Should(WithTransform(ready, BeTrue()))
		Expect(a.Finalizers).To(ConsistOf(v1alpha1.FinalizerIPAllocation))
		Expect(a.Labels).To(Equal(map[string]string{
			v1alpha1.LabelNetworkPool: "pool", v1alpha1.LabelTenant: "tenant", v1alpha1.LabelTeam: "team",
			v1alpha1.LabelAllocationType: "loadbalancer", v1alpha1.LabelRoutingDomain: namespace}))
		Expect(a.Annotations).To(HaveKey(v1alpha1.AnnotationGrant))
		Expect(a.Status.Addresses).To(HaveLen(3))
		Expect(b.Spec.Count).To(HaveValue(BeEquivalentTo(5)), "the default of type nodes")
	})

	It("fail while the pool is full, and are served when it grows, the older first", func(ctx SpecContext) {
		p := pool(namespace, "10.45.0.0/29")
		c.create(ctx, p, claim(namespace, "all", 8))
		Eventually(stored(ctx, c, p)).Should(WithTransform(numbers, Equal("8/8/0")))
		older, younger := claim(namespace, "z-older", 4), claim(namespace, "a-younger", 4)
		c.create(ctx, older)
		Eventually(stored(ctx, c, older)).Should(SatisfyAll(
			HaveField("Status.Phase", v1alpha1.PhaseFailed), WithTransform(readyReason, Equal(v1alpha1.ReasonPoolExhausted))))
		Eventually(c.eventReasons(ctx, older)).Should(ConsistOf("AllocationFailed"))
		c.createLater(ctx, older, younger)
		Eventually(stored(ctx, c, younger)).Should(HaveField("Status.Phase", v1alpha1.PhaseFailed))

		c.resize(ctx, p, "10.45.0.0/28")
		Eventually(stored(ctx, c, older)).Should(WithTransform(ready, BeTrue()))
		Eventually(stored(ctx, c, younger)).Should(WithTransform(ready, BeTrue()))
		Expect(span(older)).To(Equal("10.45.0.8-10.45.0.11"))
		Expect(span(younger)).To(Equal("10.45.0.12-10.45.0.15"))
	})

	It("are served when another is released", func(ctx SpecContext) {
		holder, next := claim(namespace, "holder", 8), claim(namespace, "next", 2)
		c.create(ctx, pool(namespace, "10.46.0.0/29"), holder)
		Eventually(stored(ctx, c, holder)).Should(WithTransform(ready, BeTrue()))
		c.create(ctx, next)
		Eventually(stored(ctx, c, next)).Should(WithTransform(readyReason, Equal(v1alpha1.ReasonPoolExhausted)))
		Expect(c.Delete(ctx, holder)).To(Succeed())
		Eventually(stored(ctx, c, next)).Should(WithTransform(ready, BeTrue()))
	})

	It("are told what is wrong with a range of their own choice", func(ctx SpecContext) {
		p := pool(namespace, "10.47.0.0/24")
		p.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.47.0.0/28"}}
		outside, reserved, reversed := pinned(namespace, "outside", "10.48.0.0", "10.48.0.3"), pinned(namespace, "reserved", "10.47.0.0", "10.47.0.3"), pinned(namespace, "reversed", "10.47.0.99", "10.47.0.90")
		c.create(ctx, p, outside, reserved, reversed)
		for object, want := range map[*v1alpha1.IPAllocation]string{outside: "is outside the pool", reserved: "is reserved", reversed: "is reversed"} {
			Eventually(stored(ctx, c, object)).Should(WithTransform(readyReason, Equal(v1alpha1.ReasonAllocationFailed)))
			Expect(object.Status.Phase).To(Equal(v1alpha1.PhaseFailed))
			Expect(meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady).Message).To(ContainSubstring(want))
		}
	})

	It("are served by the hundred, each by two writes", func(ctx SpecContext) {
		for i := range 100 {
			c.create(ctx, claim(namespace, fmt.Sprintf("many-%02d", i), 1))
		}
		Eventually(func() (int, error) { return c.count(ctx, namespace, hasPhase(v1alpha1.PhasePending)) }).Should(Equal(100))
		c.create(ctx, pool(namespace, "10.49.0.0/24"))
		Eventually(func() (int, error) { return c.count(ctx, namespace, ready) }).Should(Equal(100))
		var list v1alpha1.IPAllocationList
		Expect(c.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		seen := map[string]bool{}
		for i := range list.Items {
			a := &list.Items[i]
			Expect(seen).NotTo(HaveKey(span(a)))
			seen[span(a)] = true
			Expect(a.Generation).To(BeEquivalentTo(2), "%s was answered more than once", a.Name)
		}
	})
})

func hasPhase(want v1alpha1.IPAllocationPhase) func(*v1alpha1.IPAllocation) bool {
	return func(a *v1alpha1.IPAllocation) bool { return a.Status.Phase == want }
}

func all(*v1alpha1.IPAllocation) bool { return true }

// count is how many allocations of a namespace are so.
func (c *cluster) count(ctx context.Context, namespace string, is func(*v1alpha1.IPAllocation) bool) (int, error) {
	var list v1alpha1.IPAllocationList
	err := c.List(ctx, &list, client.InNamespace(namespace))
	n := 0
	for i := range list.Items {
		if is(&list.Items[i]) {
			n++
		}
	}
	return n, err
}

// createLater stores an allocation under a creationTimestamp that is later than another's: it has seconds only.
func (c *cluster) createLater(ctx context.Context, than, a *v1alpha1.IPAllocation) {
	GinkgoHelper()
	Eventually(time.Now).Should(BeTemporally(">", than.CreationTimestamp.Add(time.Second)))
	c.create(ctx, a)
}
