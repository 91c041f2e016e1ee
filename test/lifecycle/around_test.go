package lifecycle

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// earlier gives a stored allocation the status that an earlier allocator wrote: its only record of the range.
func (c *cluster) earlier(ctx SpecContext, a *v1alpha1.IPAllocation, first, last string) {
	GinkgoHelper()
	at := metav1.Unix(1_700_000_000, 0)
	a.Status = v1alpha1.IPAllocationStatus{
		Phase: v1alpha1.PhaseAllocated, StartAddress: first, EndAddress: last, AllocatedCount: int64(*a.Spec.Count),
		AllocatedAt: &at, AllocatedBy: "networkpool-controller", CIDR: first + "-" + last,
	}
	meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready"})
	Expect(c.Status().Update(ctx, a)).To(Succeed())
}

var _ = Describe("what was stored while no manager ran", Ordered, func() {
	var c *cluster
	// Nothing is granted for so long after the first start among objects: a journal may have been lost.
	const quarantine = 45 * time.Second
	const adopted, lone, clash, readyClash, faulty = "adopted", "lone", "clash", "ready-clash", "faulty"
	in := func(namespace string, a *v1alpha1.IPAllocation) *v1alpha1.IPAllocation {
		a.Namespace = namespace
		return a
	}
	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{ManagerArgs: []string{"--grant-expiry=" + quarantine.String()}})
		DeferCleanup(c.Stop)
		for _, name := range []string{adopted, lone, clash, readyClash, faulty} {
			_, _, err := c.Kubectl(ctx, "", "create", "namespace", name)
			Expect(err).NotTo(HaveOccurred())
		}
		By("an earlier allocator: 200 ranges of five, with gaps of three, in status alone", func() {
			c.create(ctx, pool(adopted, "10.50.0.0/20"))
			for i := range 200 {
				a := claim(adopted, fmt.Sprintf("old-%03d", i), 5)
				c.create(ctx, a)
				at := 8 * i
				c.earlier(ctx, a, fmt.Sprintf("10.50.%d.%d", at/256, at%256), fmt.Sprintf("10.50.%d.%d", at/256, at%256+4))
			}
		})
		By("one whose pool is gone", func() {
			a := claim(lone, "old", 5)
			c.create(ctx, a)
			c.earlier(ctx, a, "10.50.0.0", "10.50.0.4")
		})
		By("two allocations around the webhooks that want the same", func() {
			older, younger := pinned(clash, "z-older", "10.51.0.0", "10.51.0.7"), pinned(clash, "a-younger", "10.51.0.4", "10.51.0.11")
			c.create(ctx, pool(clash, "10.51.0.0/24"), older)
			c.createLater(ctx, older, younger)
		})
		By("two that want the same, of which the younger is in use", func() {
			older, younger := claim(readyClash, "older", 8), claim(readyClash, "younger", 8)
			c.create(ctx, pool(readyClash, "10.52.0.0/24"), older)
			c.createLater(ctx, older, younger)
			c.earlier(ctx, younger, "10.52.0.0", "10.52.0.7")
			older.Spec.PinnedRange = pinned("", "", "10.52.0.0", "10.52.0.7").Spec.PinnedRange
			Expect(c.Update(ctx, older)).To(Succeed())
		})
		By("a pool that breaks a rule which no schema can state, and an allocation of it", func() {
			p := pool(faulty, "10.53.0.0/24", v1alpha1.IPRange{Start: "10.53.0.16", End: "10.53.0.99"})
			p.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.53.0.0/27"}}
			a := claim(faulty, "old", 1)
			c.create(ctx, p, a)
			c.earlier(ctx, a, "10.53.0.99", "10.53.0.99")
		})
		Expect(c.InstallWebhooks(ctx)).To(Succeed())
		_, err := c.AddManager(ctx)
		Expect(err).NotTo(HaveOccurred())
	})

	It("keeps the addresses of an earlier allocator, and has them in spec", func(ctx SpecContext) {
		Eventually(func() (int, error) { return c.count(ctx, adopted, ready) }).Should(Equal(200))
		Eventually(func() (int, error) {
			return c.count(ctx, adopted, func(a *v1alpha1.IPAllocation) bool {
				return a.Annotations[v1alpha1.AnnotationOrigin] == v1alpha1.OriginAdopted && a.Status.ObservedGeneration == a.Generation
			})
		}).WithTimeout(2 * time.Minute).Should(Equal(200)) // 400 writes

		var list v1alpha1.IPAllocationList
		Expect(c.List(ctx, &list, client.InNamespace(adopted))).To(Succeed())
		for i := range list.Items {
			a := &list.Items[i]
			at := 8 * i
			Expect(span(a)).To(Equal(fmt.Sprintf("10.50.%d.%d-10.50.%d.%d", at/256, at%256, at/256, at%256+4)))
			Expect(span(a)).To(Equal(a.Status.StartAddress + "-" + a.Status.EndAddress))
			Expect(a.Status.AllocatedAt.Unix()).To(BeEquivalentTo(1_700_000_000))
			Expect(a.Status.CIDR).To(BeEmpty())
			Expect(a.Finalizers).To(ConsistOf(v1alpha1.FinalizerIPAllocation))
		}
	})

	It("adopts an allocation of an earlier allocator also where its pool is missing", func(ctx SpecContext) {
		a := in(lone, claim("", "old", 5))
		Eventually(stored(ctx, c, a)).Should(WithTransform(span, Equal("10.50.0.0-10.50.0.4")))
		Eventually(stored(ctx, c, a)).Should(HaveField("Status.ObservedGeneration", BeEquivalentTo(2)))
		Expect(ready(a)).To(BeTrue())
	})

	It("is not given away", func(ctx SpecContext) {
		next, between := claim(adopted, "next", 4), claim(adopted, "between", 3)
		Eventually(c.Create).WithArguments(ctx, next).WithTimeout(2 * quarantine).Should(Succeed())
		Expect(span(next)).To(Equal("10.50.6.61-10.50.6.64"))
		c.create(ctx, between)
		Expect(span(between)).To(Equal("10.50.0.5-10.50.0.7"))
	}, SpecTimeout(3*quarantine))

	It("gives what two want to the older, tells the other, and moves nobody", func(ctx SpecContext) {
		older, younger := in(clash, claim("", "z-older", 1)), in(clash, claim("", "a-younger", 1))
		Eventually(stored(ctx, c, younger)).Should(WithTransform(readyReason, Equal(v1alpha1.ReasonAddressConflict)))
		Eventually(stored(ctx, c, older)).Should(WithTransform(ready, BeTrue()))
		Expect(older.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationOrigin, v1alpha1.OriginAdopted))
		Expect(younger.Status.Phase).To(Equal(v1alpha1.PhaseFailed))
		message := meta.FindStatusCondition(younger.Status.Conditions, v1alpha1.ConditionReady).Message
		Expect(message).To(ContainSubstring("10.51.0.4-10.51.0.7 is held by ipallocations/z-older"))
		Expect(span(younger)).To(Equal("10.51.0.4-10.51.0.11"))
		Eventually(c.eventReasons(ctx, younger)).Should(ConsistOf("AddressConflict"))
		Eventually(c.metrics(ctx)).Should(ContainSubstring("butler_ipam_address_conflicts 2\n"))

		By("the older being deleted")
		Expect(c.Delete(ctx, older)).To(Succeed())
		Eventually(stored(ctx, c, younger)).Should(WithTransform(ready, BeTrue()))
		Expect(span(younger)).To(Equal("10.51.0.4-10.51.0.11"))
		Eventually(c.metrics(ctx)).Should(ContainSubstring("butler_ipam_address_conflicts 1\n"))
	})

	It("leaves what two want with the one that is in use", func(ctx SpecContext) {
		older, younger := in(readyClash, claim("", "older", 8)), in(readyClash, claim("", "younger", 8))
		Eventually(stored(ctx, c, older)).Should(WithTransform(readyReason, Equal(v1alpha1.ReasonAddressConflict)))
		Eventually(stored(ctx, c, younger)).Should(WithTransform(span, Equal("10.52.0.0-10.52.0.7")))
		Expect(ready(younger)).To(BeTrue())
	})

	It("has a pool that breaks a rule corrected before it gives anything, and keeps what that gave", func(ctx SpecContext) {
		const says = "pool faulty/pool breaks a rule and gives out no addresses until it is corrected: spec.reserved[0].cidr: "
		Expect(c.Create(ctx, claim(faulty, "new", 1))).To(MatchError(ContainSubstring(says)))
		correct := func(last string) error {
			p := pool(faulty, "")
			if err := c.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			p.Spec.Reserved = nil
			p.Spec.TenantAllocation.Ranges[0].End = last
			return c.Update(ctx, p)
		}
		Expect(correct("10.53.0.98")).To(MatchError(ContainSubstring("10.53.0.99 would leave the pool's ranges while it is held by ipallocations/old")))
		Expect(correct("10.53.0.99")).To(Succeed())
		old, next := in(faulty, claim("", "old", 1)), claim(faulty, "new", 1)
		Eventually(stored(ctx, c, old)).Should(WithTransform(span, Equal("10.53.0.99-10.53.0.99")))
		Expect(ready(old)).To(BeTrue())
		Expect(c.Create(ctx, next)).To(Succeed())
		Expect(span(next)).To(Equal("10.53.0.16-10.53.0.16"))
	})

	It("is found out also where the manager runs and the webhooks are gone", func(ctx SpecContext) {
		for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
			_, _, err := c.Kubectl(ctx, "", "delete", kind, "--all")
			Expect(err).NotTo(HaveOccurred())
		}
		thief := pinned(clash, "thief", "10.51.0.8", "10.51.0.8")
		// The API server calls the webhooks until it has heard of their end; they refuse.
		Eventually(c.Create).WithArguments(ctx, thief).Should(Succeed())
		Eventually(stored(ctx, c, thief)).Should(WithTransform(readyReason, Equal(v1alpha1.ReasonAddressConflict)))
	})
})
