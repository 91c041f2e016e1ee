package lifecycle

import (
	"fmt"
	"math"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var _ = Describe("a NetworkPool", func() {
	var (
		namespace string
		p         *v1alpha1.NetworkPool
	)
	BeforeEach(func(ctx SpecContext) {
		namespace = shared.namespace(ctx)
		p = butlerPool(namespace)
		shared.create(ctx, p)
	})

	It("counts what it offers, and keeps a finalizer", func(ctx SpecContext) {
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("128/0/128")))
		Expect(p.Finalizers).To(ConsistOf(v1alpha1.FinalizerNetworkPool))
		Expect(p.Status.PoolSizeIPs).To(BeEquivalentTo(256))
		Expect(p.Status.UnmanagedRanges).To(Equal([]v1alpha1.UnmanagedRange{{Start: "10.40.0.1", End: "10.40.0.127"}}))
		Expect(p.Status.UnmanagedScopeIPs).To(BeEquivalentTo(127))
		Expect(p.Status.LargestFreeBlock).To(BeEquivalentTo(128))
		Expect(p.Status.FragmentationPercent).To(HaveValue(BeEquivalentTo(0)))
		Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
		Expect(reason(p.Status.Conditions, v1alpha1.ConditionReady)).To(Equal(v1alpha1.ReasonReady))
	})

	It("counts one allocation of eight", func(ctx SpecContext) {
		a := claim(namespace, "one", 8)
		shared.create(ctx, a)
		Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
		Expect(a.Status.Phase).To(Equal(v1alpha1.PhaseAllocated))
		Expect(a.Status.Addresses).To(HaveLen(8))
		Expect(a.Status.AllocatedAt).NotTo(BeNil())
		Expect(a.Status.AllocatedBy).To(Equal("networkpool-controller"))
		// Addresses count from their grant on, the allocation from when it is seen.
		Eventually(stored(ctx, shared, p)).Should(WithTransform(func(p *v1alpha1.NetworkPool) any { return p.Status.AllocationCount }, BeEquivalentTo(1)))
		Expect(numbers(p)).To(Equal("128/8/120"))
	})

	It("counts three allocations that share nothing, and has everything back when they are deleted", func(ctx SpecContext) {
		seen := map[string]bool{}
		for i := range 3 {
			a := claim(namespace, fmt.Sprintf("of-three-%d", i), 8)
			shared.create(ctx, a)
			Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
			for _, address := range a.Status.Addresses {
				Expect(seen).NotTo(HaveKey(address))
				seen[address] = true
			}
		}
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("128/24/104")))
		Expect(shared.DeleteAllOf(ctx, &v1alpha1.IPAllocation{}, client.InNamespace(namespace))).To(Succeed())
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("128/0/128")))
		Expect(p.Status.AllocationCount).To(BeZero())
	})

	It("stays while addresses of it are held, and goes when they are released", func(ctx SpecContext) {
		a := claim(namespace, "holder", 8)
		shared.create(ctx, a)
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("128/8/120")))
		By("being refused by the webhook", func() {
			err := shared.Delete(ctx, p)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
		})
		By("being held by the finalizer where the webhook is not asked: its namespace goes", func() {
			blocker := claim(namespace, "blocker", 1)
			blocker.Finalizers = []string{"example.com/blocker"}
			shared.create(ctx, blocker)
			_, _, err := shared.Kubectl(ctx, "", "delete", "namespace", namespace, "--wait=false")
			Expect(err).NotTo(HaveOccurred())
			// Namespaces are emptied by a controller that is not here.
			Expect(shared.Delete(ctx, p)).To(Succeed())
			Expect(shared.DeleteAllOf(ctx, &v1alpha1.IPAllocation{}, client.InNamespace(namespace))).To(Succeed())
			Eventually(gone(ctx, shared, a)).Should(BeTrue())
			Eventually(stored(ctx, shared, p)).Should(SatisfyAll(
				WithTransform(func(p *v1alpha1.NetworkPool) string { return reason(p.Status.Conditions, v1alpha1.ConditionReady) }, Equal(v1alpha1.ReasonDeleting)),
				HaveField("Finalizers", ConsistOf(v1alpha1.FinalizerNetworkPool)),
				HaveField("Status.AllocationCount", BeEquivalentTo(1))))
			Eventually(stored(ctx, shared, blocker)).Should(HaveField("Finalizers", ConsistOf("example.com/blocker")))
			Expect(blocker.Status.Phase).To(Equal(v1alpha1.PhaseReleased))
			blocker.Finalizers = nil
			Expect(shared.Update(ctx, blocker)).To(Succeed())
		})
		Eventually(gone(ctx, shared, p)).Should(BeTrue())
	})

	It("says how full it is where int64 has no number for it", func(ctx SpecContext) {
		p := pool(namespace, "2001:db8::/48")
		p.Name = "six"
		a := pinned(namespace, "a", "2001:db8:0:1::", "2001:db8:0:1:ffff:ffff:ffff:ffff")
		a.Spec.PoolRef.Name = "six"
		shared.create(ctx, p, a)
		Eventually(stored(ctx, shared, p)).Should(HaveField("Status.AllocatedIPs", BeEquivalentTo(math.MaxInt64)))
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionCapacityWarning)
		Expect(c.Status).To(Equal(metav1.ConditionFalse), c.Message)
		Expect(c.Message).To(Equal("0% of the addresses are allocated (about 2^64 of about 2^80)"))
		Expect(meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady).Message).To(HavePrefix("about 2^80 of about 2^80 addresses available"))
		labels := fmt.Sprintf(`{namespace=%q,pool="six",resource="networkpools.butler.butlerlabs.dev"} `, namespace)
		Expect(shared.metrics(ctx)()).To(SatisfyAll( // 2^64 of 2^80
			ContainSubstring("butler_network_pool_allocated_ips"+labels+"1.8446744073709552e+19\n"),
			ContainSubstring("butler_network_pool_total_ips"+labels+"1.2089258196146292e+24\n")))
	})

	It("says how full it is, and tells of each tier once, up and down", func(ctx SpecContext) {
		tiers := func(p *v1alpha1.NetworkPool) (text string) {
			for _, name := range []string{v1alpha1.ConditionCapacityWarning, v1alpha1.ConditionCapacityCritical, v1alpha1.ConditionCapacityExhausted} {
				c := meta.FindStatusCondition(p.Status.Conditions, name)
				switch {
				case c == nil:
					return "not all are there"
				case c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonUtilizationAboveThreshold:
					text += "+"
				case c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonUtilizationBelowThreshold:
					text += "-"
				}
			}
			return text
		}
		Eventually(stored(ctx, shared, p)).Should(WithTransform(tiers, Equal("---")))
		for _, step := range []struct {
			count int32
			want  string
		}{{89, "---"}, {1, "+--"}, {19, "++-"}, {13, "+++"}} { // of 128: 89, 90, 109, 122
			shared.create(ctx, claim(namespace, fmt.Sprintf("of-%d", step.count), step.count))
			Eventually(stored(ctx, shared, p)).Should(WithTransform(tiers, Equal(step.want)))
		}
		Eventually(shared.eventReasons(ctx, p)).Should(ConsistOf("PoolCapacityWarning", "PoolCapacityCritical", "PoolCapacityExhausted"))
		Expect(shared.Delete(ctx, claim(namespace, "of-89", 89))).To(Succeed())
		Eventually(stored(ctx, shared, p)).Should(WithTransform(tiers, Equal("---")))
		Eventually(shared.eventReasons(ctx, p)).Should(ContainElement("PoolCapacityRecovered"))
	})

	It("keeps its numbers right where another pool shows the same addresses", func(ctx SpecContext) {
		other := pool(namespace, "10.40.0.0/24", v1alpha1.IPRange{Start: "10.40.0.192", End: "10.40.0.255"})
		other.Name = "other"
		shared.create(ctx, other, pinned(namespace, "shared", "10.40.0.192", "10.40.0.199"))
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("128/8/120")))
		Eventually(stored(ctx, shared, other)).Should(WithTransform(numbers, Equal("64/8/56")))
	})

	It("is written to twice a second at most, and not at all when nothing happens", func(ctx SpecContext) {
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("128/0/128")))
		w, err := shared.Watch(ctx, &v1alpha1.NetworkPoolList{}, client.InNamespace(namespace), &client.ListOptions{Raw: resumeFrom(p.ResourceVersion)})
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		began := time.Now()
		for i := range 128 {
			shared.create(ctx, claim(namespace, fmt.Sprintf("busy-%03d", i), 1))
		}
		writes := 0
		full := func(event watch.Event) bool {
			writes++
			return numbers(event.Object.(*v1alpha1.NetworkPool)) == "128/128/0"
		}
		var event watch.Event
		for done := false; !done; done = full(event) {
			Eventually(w.ResultChan()).Should(Receive(&event))
		}
		Expect(writes).To(BeNumerically("<=", 2+int(2*time.Since(began).Seconds())))
		Eventually(func() (int, error) { return shared.count(ctx, namespace, ready) }).Should(Equal(128))
		Eventually(stored(ctx, shared, p)).Should(HaveField("Status.AllocationCount", BeEquivalentTo(128)))
		quiet := p.ResourceVersion
		Consistently(stored(ctx, shared, p), "1500ms").Should(HaveField("ResourceVersion", quiet))
	})

	It("is measured while it exists, and not after", func(ctx SpecContext) {
		shared.create(ctx, claim(namespace, "measured", 8))
		series := func() string {
			return fmt.Sprintf(`butler_network_pool_allocated_ips{namespace=%q,pool="pool",resource="networkpools.butler.butlerlabs.dev"} 8`, namespace)
		}
		Eventually(shared.metrics(ctx)).Should(ContainSubstring(series()))
		Expect(shared.Delete(ctx, claim(namespace, "measured", 8))).To(Succeed())
		Eventually(shared.Delete).WithArguments(ctx, p).Should(Succeed())
		Eventually(gone(ctx, shared, p)).Should(BeTrue())
		Eventually(shared.metrics(ctx)).ShouldNot(ContainSubstring(namespace))
	})
})

var _ = Describe("a NetworkPool that is full", func() {
	It("refuses further allocations, and takes the next one when there is room again", func(ctx SpecContext) {
		namespace := shared.namespace(ctx)
		p := pool(namespace, "10.41.0.0/29")
		shared.create(ctx, p, claim(namespace, "all", 8))
		err := shared.Create(ctx, claim(namespace, "more", 4))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("8/8/0")))
		Expect(shared.metrics(ctx)()).To(ContainSubstring(
			`butler_ip_allocation_processed_total{namespace=%q,pool="pool",resource="networkpools.butler.butlerlabs.dev",result="failed"} 1`, namespace))

		By("growing")
		shared.resize(ctx, p, "10.41.0.0/28")
		a := claim(namespace, "more", 4)
		shared.create(ctx, a)
		Expect(span(a)).To(Equal("10.41.0.8-10.41.0.11"))
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("16/12/4")))
	})
})
