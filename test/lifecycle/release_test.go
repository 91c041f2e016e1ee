package lifecycle

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

var _ = Describe("a release", func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = shared.namespace(ctx) })

	It("is recorded in the pool, and the addresses are free when the object is gone", func(ctx SpecContext) {
		p := pool(namespace, "10.42.0.0/28")
		a := claim(namespace, "short-lived", 8)
		shared.create(ctx, p, a)
		Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
		Expect(shared.Delete(ctx, a)).To(Succeed())
		Eventually(gone(ctx, shared, a)).Should(BeTrue())
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("16/0/16")))
		Expect(p.Status.Releases).To(HaveLen(1))
		r := p.Status.Releases[0]
		Expect(r.Name).To(Equal("short-lived"))
		Expect(r.Tenant).To(BeEquivalentTo(a.Spec.TenantClusterRef))
		Expect(r.StartAddress + "-" + r.EndAddress).To(Equal("10.42.0.0-10.42.0.7"))
		Expect(r.AllocatedAt.Equal(a.Status.AllocatedAt)).To(BeTrue())
		Expect(r.ReleasedAt.IsZero()).To(BeFalse())
		Expect(r.ReusableAt).To(BeNil())
	})

	It("says Released as long as others keep the object, and holds the addresses", func(ctx SpecContext) {
		p := pool(namespace, "10.42.0.0/28")
		a := claim(namespace, "kept", 16)
		a.Finalizers = []string{"example.com/keeper"}
		shared.create(ctx, p, a)
		Eventually(stored(ctx, shared, a)).Should(WithTransform(ready, BeTrue()))
		Expect(shared.Delete(ctx, a)).To(Succeed())
		Eventually(stored(ctx, shared, a)).Should(HaveField("Finalizers", ConsistOf("example.com/keeper")))
		Expect(a.Status.Phase).To(Equal(v1alpha1.PhaseReleased))
		Expect(a.Status.ReleasedAt).NotTo(BeNil())
		Expect(readyReason(a)).To(Equal(v1alpha1.ReasonReleased))
		Expect(apierrors.IsForbidden(shared.Create(ctx, claim(namespace, "next", 1)))).To(BeTrue())
		a.Finalizers = nil
		Expect(shared.Update(ctx, a)).To(Succeed())
		Eventually(shared.Create).WithArguments(ctx, claim(namespace, "next", 1)).Should(Succeed())
	})

	It("needs no record where there never was a range, and no pool", func(ctx SpecContext) {
		a := claim(namespace, "never-served", 1)
		shared.create(ctx, a)
		Eventually(stored(ctx, shared, a)).Should(WithTransform(readyReason, Equal(v1alpha1.ReasonPoolNotFound)))
		Expect(shared.Delete(ctx, a)).To(Succeed())
		Eventually(gone(ctx, shared, a)).Should(BeTrue())
	})

	It("of three hundred at once is recorded for each", func(ctx SpecContext) {
		p := pool(namespace, "10.42.0.0/22")
		p.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour} // what rests stays on record
		shared.create(ctx, p)
		for i := range 300 {
			shared.create(ctx, claim(namespace, fmt.Sprintf("many-%03d", i), 2))
		}
		Expect(shared.DeleteAllOf(ctx, &v1alpha1.IPAllocation{}, client.InNamespace(namespace))).To(Succeed())
		Eventually(func() (int, error) { return shared.count(ctx, namespace, all) }).WithTimeout(time.Minute).Should(BeZero())
		Expect(shared.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		Expect(releasedOnce(p)).To(HaveLen(300))
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("1024/600/424")), "what rests is not available")
	})

	// full is a pool whose record has no room, with an allocation that waits for its release to be recorded.
	full := func(ctx SpecContext) (*v1alpha1.NetworkPool, *v1alpha1.IPAllocation) {
		GinkgoHelper()
		p := pool(namespace, "10.42.0.0/20")
		p.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
		a := claim(namespace, "waits", 1)
		shared.create(ctx, p, a)
		now := metav1.Now().Rfc3339Copy()
		hour := metav1.NewTime(now.Add(time.Hour))
		var records []v1alpha1.Release
		for i := range 1024 {
			address := fmt.Sprintf("10.42.%d.%d", 8+i/256, i%256)
			records = append(records, v1alpha1.Release{
				Name: fmt.Sprint("rests-", i), Tenant: v1alpha1.RecordedReference(a.Spec.TenantClusterRef),
				StartAddress: address, EndAddress: address, ReleasedAt: now, ReusableAt: &hour,
			})
		}
		Eventually(func() error {
			if err := shared.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			p.Status.Releases = records
			return shared.Status().Update(ctx, p)
		}).Should(Succeed())
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("4096/1025/3071")))
		Expect(shared.Delete(ctx, a)).To(Succeed())
		Eventually(shared.eventReasons(ctx, p)).Should(ContainElement("ReleasesWait"))
		Expect(shared.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		return p, a
	}

	It("that waits for room in the record has it when the pool's delay is shortened", func(ctx SpecContext) {
		p, a := full(ctx)
		Eventually(func() error {
			if err := shared.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			p.Spec.ReuseDelay = &metav1.Duration{Duration: time.Second}
			return shared.Update(ctx, p)
		}).Should(Succeed())
		Eventually(gone(ctx, shared, a)).Should(BeTrue())
		Eventually(stored(ctx, shared, p)).Should(WithTransform(numbers, Equal("4096/0/4096")))
		Expect(p.Status.Releases[len(p.Status.Releases)-1].Name).To(Equal("waits"))
	})

	It("waits for no room in the record of a pool that goes with its namespace", func(ctx SpecContext) {
		p, a := full(ctx)
		Expect(shared.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		Expect(shared.Delete(ctx, p)).To(Succeed())
		Eventually(gone(ctx, shared, a)).Should(BeTrue())
		Eventually(gone(ctx, shared, p)).Should(BeTrue())
	})

	It("is recorded in a pool that goes, which others keep", func(ctx SpecContext) {
		p := pool(namespace, "10.42.0.0/28")
		p.Finalizers = []string{"example.com/keeper"}
		a := claim(namespace, "waits", 1)
		a.Finalizers = []string{"example.com/keeper"}
		shared.create(ctx, p, a)
		Eventually(stored(ctx, shared, p)).Should(HaveField("Finalizers", HaveLen(2)))
		Expect(shared.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		Expect(shared.Delete(ctx, p)).To(Succeed())
		Eventually(func() error { // somebody takes off that of the allocator
			if err := shared.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			p.Finalizers = []string{"example.com/keeper"}
			return shared.Update(ctx, p)
		}).Should(Succeed())
		Expect(shared.Delete(ctx, a)).To(Succeed())
		Eventually(stored(ctx, shared, a)).Should(HaveField("Finalizers", ConsistOf("example.com/keeper")))
		Expect(shared.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		Expect(releasedOnce(p)).To(HaveKey("waits"))
	})

	It("is kept on record a while, also where nothing rests", func(ctx SpecContext) {
		p := pool(namespace, "10.42.0.0/24")
		shared.create(ctx, p)
		for i := range 50 {
			shared.create(ctx, claim(namespace, fmt.Sprintf("many-%02d", i), 2))
		}
		Expect(shared.DeleteAllOf(ctx, &v1alpha1.IPAllocation{}, client.InNamespace(namespace))).To(Succeed())
		Eventually(stored(ctx, shared, p)).WithTimeout(time.Minute).Should(WithTransform(numbers, Equal("256/0/256")))
		Expect(len(p.Status.Releases)).To(BeNumerically(">=", 32))
		releasedOnce(p)
	})
})

// releasedOnce is the names on a pool's record, each of which is there once.
func releasedOnce(p *v1alpha1.NetworkPool) map[string]bool {
	GinkgoHelper()
	names := map[string]bool{}
	for _, r := range p.Status.Releases {
		Expect(names).NotTo(HaveKey(r.Name))
		names[r.Name] = true
	}
	return names
}

var _ = Describe("a release with a manager that dies", Ordered, func() {
	var (
		c         *cluster
		namespace string
		manager   *sandbox.Manager
	)
	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{Replicas: 1})
		DeferCleanup(c.Stop)
		manager = c.Managers()[0]
	})
	BeforeEach(func(ctx SpecContext) { namespace = c.namespace(ctx) })

	dieAndReturn := func(ctx SpecContext) {
		GinkgoHelper()
		Expect(manager.Kill()).To(Succeed())
		Expect(manager.Wait(ctx)).NotTo(Succeed())
		Expect(manager.Start()).To(Succeed())
		Expect(manager.Ready(ctx)).To(Succeed())
	}

	It("still rests for the pool's reuseDelay", func(ctx SpecContext) {
		p := pool(namespace, "10.43.0.0/29")
		p.Spec.ReuseDelay = &metav1.Duration{Duration: 20 * time.Second}
		a := claim(namespace, "before", 8)
		c.create(ctx, p, a)
		Eventually(stored(ctx, c, a)).Should(WithTransform(ready, BeTrue()))
		Expect(c.Delete(ctx, a)).To(Succeed())
		Eventually(gone(ctx, c, a)).Should(BeTrue())
		dieAndReturn(ctx)

		Expect(c.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		Expect(p.Status.Releases).To(HaveLen(1))
		reusable := p.Status.Releases[0].ReusableAt
		Expect(reusable.Sub(p.Status.Releases[0].ReleasedAt.Time)).To(Equal(20 * time.Second))
		Expect(time.Now()).To(BeTemporally("<", reusable.Time), "the restart took longer than the addresses rest: nothing is shown")
		Expect(apierrors.IsForbidden(c.Create(ctx, claim(namespace, "early", 8)))).To(BeTrue())
		Eventually(c.Create).WithArguments(ctx, claim(namespace, "after", 8)).WithTimeout(30 * time.Second).Should(Succeed())
		Expect(time.Now()).To(BeTemporally(">=", reusable.Time))
	}, SpecTimeout(3*time.Minute))

	It("is recorded for each of many, and leaves none behind", func(ctx SpecContext) {
		const total = 300
		p := pool(namespace, "10.43.0.0/22")
		p.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
		c.create(ctx, p)
		for i := range total {
			c.create(ctx, claim(namespace, fmt.Sprintf("many-%03d", i), 2))
		}
		Eventually(func() (int, error) { return c.count(ctx, namespace, ready) }).Should(Equal(total))
		for _, left := range []int{total - 1, total / 2} {
			Expect(c.DeleteAllOf(ctx, &v1alpha1.IPAllocation{}, client.InNamespace(namespace))).To(Succeed())
			Eventually(func() (int, error) { return c.count(ctx, namespace, all) }).Should(BeNumerically("<=", left))
			dieAndReturn(ctx)
		}
		Eventually(func() (int, error) { return c.count(ctx, namespace, all) }).WithTimeout(time.Minute).Should(BeZero())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		Expect(releasedOnce(p)).To(HaveLen(total))
	}, SpecTimeout(3*time.Minute))
})
