package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// What was stored since the backup has then never been, and what was deleted since is there. The managers run all the time, and nobody tells them:
// a watch is silent until the resourceVersion has passed the one that they know.
var _ = Describe("etcd restored from a backup", Ordered, func() {
	var (
		c           *cluster
		namespace   string
		kept, freed *v1alpha1.IPAllocation
	)
	// whileDown does something to the data of etcd.
	whileDown := func(ctx SpecContext, do func(data string) error) {
		GinkgoHelper()
		for _, p := range []*sandbox.Process{c.APIServer(), c.Etcd()} {
			Expect(p.Kill()).To(Succeed())
			Expect(p.Wait(ctx)).NotTo(Succeed())
		}
		Expect(do(filepath.Join(c.Dir(), "etcd"))).To(Succeed())
		for _, p := range []*sandbox.Process{c.Etcd(), c.APIServer()} {
			Expect(p.Start()).To(Succeed())
			Expect(p.Ready(ctx)).To(Succeed())
		}
	}
	create := func(ctx SpecContext, name string) *v1alpha1.IPAllocation {
		GinkgoHelper()
		a := claim(namespace, name, 1)
		Eventually(func() error { return c.Create(ctx, a) }).Should(Succeed())
		return a
	}
	BeforeAll(func(ctx SpecContext) {
		c = start(ctx, sandbox.Options{Replicas: 2, Restart: true})
		DeferCleanup(c.Stop)
		namespace = c.namespace(ctx)
		c.create(ctx, pool(namespace, "10.61.0.0/28"))
		kept, freed = create(ctx, "kept"), create(ctx, "freed")
		Eventually(stored(ctx, c, freed)).Should(WithTransform(ready, BeTrue()))
		backup := GinkgoT().TempDir()
		whileDown(ctx, func(data string) error { return os.CopyFS(backup, os.DirFS(data)) })

		Eventually(func() error { return client.IgnoreNotFound(c.Delete(ctx, freed.DeepCopy())) }).Should(Succeed())
		Eventually(gone(ctx, c, freed.DeepCopy())).Should(BeTrue())
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: namespace}}
		Expect(c.Create(ctx, other)).To(Succeed())
		for i := range 300 { // so that the restored etcd is behind for a while
			other.Data = map[string]string{"i": fmt.Sprint(i)}
			Expect(c.Update(ctx, other)).To(Succeed())
		}
		whileDown(ctx, func(data string) error {
			if err := os.RemoveAll(data); err != nil {
				return err
			}
			return os.CopyFS(data, os.DirFS(backup))
		})
	})

	It("gives no address that is held again", func(ctx SpecContext) {
		fresh := create(ctx, "fresh")
		Expect(span(fresh)).NotTo(BeElementOf(span(kept), span(freed)))
		Eventually(stored(ctx, c, fresh)).Should(WithTransform(ready, BeTrue()))
		Expect(stored(ctx, c, freed)()).To(WithTransform(ready, BeTrue()))
	})

	It("is noticed by each replica, which ends and reads everything anew", func(ctx SpecContext) {
		for _, m := range c.Managers() {
			Eventually(func() (string, error) {
				log, err := os.ReadFile(m.LogPath())
				return string(log), err
			}).Should(ContainSubstring("restored from a backup"))
			Eventually(func() error { return m.Probe(ctx) }).Should(Succeed())
		}
	})
})
