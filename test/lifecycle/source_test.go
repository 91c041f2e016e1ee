package lifecycle

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/test/sandbox"
)

// These are the promises to the ledger that no user sees until one is broken: a grant ends on the strength of them.
var _ = Describe("what the ledger asks of the API server", Ordered, func() {
	var (
		c    *cluster
		feed *reconcilers.Feed
		l    *ledger.Ledger

		startInformers func()
	)
	const namespace = sandbox.Namespace
	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{}) // nobody else writes here
		DeferCleanup(c.Stop)
		process, end := context.WithCancel(context.Background())
		DeferCleanup(end)
		mgr, err := manager.New(c.Config(), manager.Options{Scheme: c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		l = ledger.New(ledger.Config{ClaimKinds: []string{butler.KindIPAllocation}, PoolKinds: []string{butler.KindNetworkPool}})
		feed, err = reconcilers.NewFeed(process, mgr, l, reconcilers.Butler)
		Expect(err).NotTo(HaveOccurred())
		startInformers = func() {
			go func() {
				defer GinkgoRecover()
				Expect(mgr.Start(process)).To(Succeed())
			}()
		}
	})

	It("says whether anything is stored", func(ctx SpecContext) {
		Expect(feed.Any(ctx)).To(BeFalse())
		c.create(ctx, pool(namespace, "10.0.0.0/8"))
		Expect(feed.Any(ctx)).To(BeTrue())
	})

	It("reads every object, over several pages", func(ctx SpecContext) {
		const total = 1100
		var creates errgroup.Group
		creates.SetLimit(16)
		uids := make([]string, total)
		for i := range total {
			creates.Go(func() error {
				a := pinned(namespace, fmt.Sprintf("paged-%04d", i), fmt.Sprintf("10.0.%d.%d", i/256, i%256), fmt.Sprintf("10.0.%d.%d", i/256, i%256))
				err := c.Create(ctx, a)
				uids[i] = string(a.UID)
				return err
			})
		}
		Expect(creates.Wait()).To(Succeed())
		seen := map[string]bool{}
		Expect(feed.Scan(ctx, butler.KindIPAllocation, namespace, func(claim ledger.Claim) { seen[claim.UID] = true })).To(Succeed())
		Expect(seen).To(HaveLen(total))
		Expect(feed.Refresh(ctx, butler.KindIPAllocation, true)).To(Succeed())
		Expect(feed.Refresh(ctx, butler.KindNetworkPool, true)).To(Succeed())
		for _, uid := range uids {
			Expect(l.Standing(uid).Answered).To(BeTrue())
		}
		usage, known := l.Usage(butler.NetworkPoolKey(namespace, "pool"))
		Expect(known).To(BeTrue())
		Expect(usage.Claims).To(Equal(total))
		Expect(feed.Scan(ctx, butler.KindIPAllocation, "elsewhere", func(ledger.Claim) { Fail("an object of another namespace") })).To(Succeed())
	})

	It("touches an allocation without a range so that no older write to it lands, each time", func(ctx SpecContext) {
		a := claim(namespace, "touched", 4)
		c.create(ctx, a)
		key := butler.IPAllocationKey(namespace, a.Name)
		for range 2 {
			older := a.DeepCopy()
			version, err := feed.Touch(ctx, key, string(a.UID))
			Expect(err).NotTo(HaveOccurred())
			older.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: "10.9.0.0", EndAddress: "10.9.0.3"}
			Expect(apierrors.IsConflict(c.Update(ctx, older))).To(BeTrue())
			Expect(c.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
			Expect(fields.ResourceVersion(a)).To(Equal(version))
		}
	})

	It("leaves alone what has its range, and says what is not there", func(ctx SpecContext) {
		a := pinned(namespace, "answered", "10.9.1.0", "10.9.1.3")
		c.create(ctx, a)
		key := butler.IPAllocationKey(namespace, a.Name)
		Expect(feed.Touch(ctx, key, string(a.UID))).To(Equal(fields.ResourceVersion(a)))
		version := a.ResourceVersion
		Expect(c.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
		Expect(a.ResourceVersion).To(Equal(version))

		Expect(feed.Touch(ctx, key, "another-uid")).To(BeZero())
		Expect(feed.Touch(ctx, butler.IPAllocationKey(namespace, "missing"), string(a.UID))).To(BeZero())
	})

	It("says as which version a pool is stored", func(ctx SpecContext) {
		p := &v1alpha1.NetworkPool{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "pool"}, p)).To(Succeed())
		Expect(feed.Touch(ctx, butler.NetworkPoolKey(namespace, "pool"), "")).To(Equal(fields.ResourceVersion(p)))
		Expect(feed.Touch(ctx, butler.NetworkPoolKey(namespace, "missing"), "")).To(BeZero())
	})

	It("forgets what was read live and is gone before the informers have come that far, as that has no event", func(ctx SpecContext) {
		p := pool(namespace, "10.60.0.0/24")
		p.Name = "brief"
		a, stays := pinned(namespace, "brief", "10.60.0.0", "10.60.0.3"), pinned(namespace, "stays", "10.0.99.0", "10.0.99.3")
		a.Spec.PoolRef.Name = p.Name
		c.create(ctx, p, a, stays)
		Expect(feed.Refresh(ctx, butler.KindIPAllocation, true)).To(Succeed())
		Expect(feed.Refresh(ctx, butler.KindNetworkPool, true)).To(Succeed())
		Expect(l.Standing(string(a.UID)).Known).To(BeTrue())
		Expect(c.Delete(ctx, a)).To(Succeed())
		Expect(c.Delete(ctx, p)).To(Succeed())
		Consistently(func() bool { return l.Standing(string(a.UID)).Known }, "1500ms").Should(BeTrue())

		startInformers()
		Eventually(func() bool { return l.Standing(string(a.UID)).Known }).Should(BeFalse())
		Eventually(func() bool { _, known := l.Usage(butler.NetworkPoolKey(namespace, p.Name)); return known }).Should(BeFalse())
		Expect(l.Standing(string(stays.UID)).Answered).To(BeTrue())
	})
})
