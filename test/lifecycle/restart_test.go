package lifecycle

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// snapshot is all that is stored of pools and allocations: name -> resourceVersion and range.
func (c *cluster) snapshot(ctx context.Context, namespace string) map[string]string {
	GinkgoHelper()
	var allocations v1alpha1.IPAllocationList
	var pools v1alpha1.NetworkPoolList
	Expect(c.List(ctx, &allocations, client.InNamespace(namespace))).To(Succeed())
	Expect(c.List(ctx, &pools, client.InNamespace(namespace))).To(Succeed())
	objects := map[string]string{}
	for i := range allocations.Items {
		a := &allocations.Items[i]
		objects["allocation "+a.Name] = a.ResourceVersion + " " + span(a)
	}
	for i := range pools.Items {
		objects["pool "+pools.Items[i].Name] = pools.Items[i].ResourceVersion
	}
	return objects
}

var _ = Describe("a restart with 5,000 allocations", Ordered, func() {
	const total = 5000
	var (
		c         *cluster
		namespace string
		manager   *sandbox.Manager
		before    map[string]string
	)
	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{Replicas: 1})
		DeferCleanup(c.Stop)
		namespace, manager = c.namespace(ctx), c.Managers()[0]
		p := pool(namespace, "10.60.0.0/17")
		c.create(ctx, p)
		creates, ctx2 := errgroup.WithContext(ctx)
		creates.SetLimit(32)
		for i := range total {
			creates.Go(func() error { return c.Create(ctx2, claim(namespace, fmt.Sprintf("a-%04d", i), 5)) })
		}
		Expect(creates.Wait()).To(Succeed())
		Eventually(func() (int, error) { return c.count(ctx, namespace, ready) }).WithTimeout(time.Minute).Should(Equal(total))
		Eventually(stored(ctx, c, p)).Should(HaveField("Status.AllocatedIPs", BeEquivalentTo(5*total)))
		before = c.snapshot(ctx, namespace)
	}, NodeTimeout(5*time.Minute))

	// busy is how much slower a machine may be that runs other tests meanwhile.
	const busy = 3

	// unchanged starts the manager and looks at all there is when it serves.
	unchanged := func(ctx SpecContext, within time.Duration) {
		GinkgoHelper()
		started := time.Now()
		Expect(manager.Start()).To(Succeed())
		Expect(manager.Ready(ctx)).To(Succeed())
		took := time.Since(started)
		AddReportEntry("serving after", took.String())
		a := claim(namespace, fmt.Sprintf("after-%d", started.UnixNano()), 5)
		c.create(ctx, a)
		Expect(before).NotTo(ContainElement(HaveSuffix(" " + span(a))))
		Eventually(stored(ctx, c, a)).Should(WithTransform(ready, BeTrue()))
		Expect(c.Delete(ctx, a)).To(Succeed())
		Eventually(gone(ctx, c, a)).Should(BeTrue())
		after := c.snapshot(ctx, namespace)
		delete(before, "pool pool") // it counts, and records the release
		delete(after, "pool pool")
		Expect(after).To(Equal(before))
		Expect(took).To(BeNumerically("<", busy*within))
	}

	It("after SIGTERM changes nothing, and serves within 3 s", func(ctx SpecContext) {
		Expect(manager.Terminate()).To(Succeed())
		Expect(manager.Wait(ctx)).To(Succeed())
		unchanged(ctx, 3*time.Second)
	})

	It("after SIGKILL changes nothing, and serves within 8 s", func(ctx SpecContext) {
		Expect(manager.Kill()).To(Succeed())
		Expect(manager.Wait(ctx)).NotTo(Succeed())
		unchanged(ctx, 8*time.Second)
	})

	It("of everything changes nothing", func(ctx SpecContext) {
		for _, p := range []*sandbox.Process{manager.Process, c.APIServer(), c.Etcd()} {
			Expect(p.Kill()).To(Succeed())
			Expect(p.Wait(ctx)).NotTo(Succeed())
		}
		for _, p := range []*sandbox.Process{c.Etcd(), c.APIServer()} {
			Expect(p.Start()).To(Succeed())
			Expect(p.Ready(ctx)).To(Succeed())
		}
		unchanged(ctx, 8*time.Second)
	})
})
