package reconcilers

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

// The first status of a claim follows its create response within 100 ms. Of these, the
// proof that confirms the owner begins 20 ms after the claim has been observed, and proof
// and write take some milliseconds each. What remains bounds the delays that the
// reconcilers add on purpose.
func TestFirstStatus_IsNotPostponed(t *testing.T) {
	const atMost = 50 * time.Millisecond
	for name, apart := range map[string]time.Duration{"one at a time": time.Second, "a person": 30 * time.Millisecond, "a burst": 100 * time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				changes := feed.NewChanges()
				changes.AddQueues("claims", "", nil)
				queue, pacer := changes.QueuesOf("claims").Claims, flow.NewPacer(mirrorEvery)
				var mu sync.Mutex
				notified, waited := map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Duration{}
				go func() {
					for {
						r, shutdown := queue.Get()
						if shutdown {
							return
						}
						if wait := pacer.Wait(r.NamespacedName, time.Now()); wait > 0 {
							queue.AddAfter(r, wait)
						} else {
							mu.Lock()
							waited[r.NamespacedName] = time.Since(notified[r.NamespacedName])
							mu.Unlock()
						}
						queue.Done(r)
					}
				}()
				const claims = 1000
				for i := range claims {
					k := ledger.Key{Resource: "claims", Name: fmt.Sprint(i)}
					mu.Lock()
					notified[feed.Request(k).NamespacedName] = time.Now()
					mu.Unlock()
					changes.Notify([]ledger.Key{k})
					time.Sleep(apart)
				}
				time.Sleep(time.Second)
				queue.ShutDown()
				synctest.Wait()
				if len(waited) != claims {
					t.Fatalf("%d of %d claims were served", len(waited), claims)
				}
				for claim, d := range waited {
					if d > atMost {
						t.Fatalf("claim %s waits %s for its first status, want at most %s", claim.Name, d, atMost)
					}
				}
			})
		})
	}
}
