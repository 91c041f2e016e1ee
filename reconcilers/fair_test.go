package reconcilers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestANamespaceThatIsSlowHasAFewWorkersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, ran := 10*time.Second, map[string]int{}
		f := newFair(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			ran[req.Namespace]++
			if req.Namespace == "slow" {
				time.Sleep(took)
			}
			return reconcile.Result{}, nil
		}), 8)
		// atOnce has so many objects of a namespace looked at, and says how many are.
		atOnce := func(namespace string, n int) int {
			clear(ran)
			for range n {
				go func() {
					result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace}})
					if err != nil || result.RequeueAfter != 0 && result.RequeueAfter != crowded {
						t.Errorf("result %+v, %v", result, err)
					}
				}()
				synctest.Wait() // they share a map
			}
			return ran[namespace]
		}
		for _, step := range []struct {
			what      string
			namespace string
			want      int
			after     time.Duration
		}{
			{"nothing is known of it", "slow", 8, took},
			{"it was slow", "slow", 2, 0},
			{"another was", "quick", 8, took},
			{"it is still slow", "slow", 2, took},
			{"others' time does not count", "slow", 2, took + slowFor},
		} {
			if got := atOnce(step.namespace, 8); got != step.want {
				t.Errorf("%s: %d of 8 in %s, want %d", step.what, got, step.namespace, step.want)
			}
			time.Sleep(step.after)
			synctest.Wait()
		}
		took = slowAfter / 2
		if got := atOnce("slow", 8); got != 8 {
			t.Errorf("it was quiet for a while: %d of 8, want all", got)
		}
		time.Sleep(took)
		synctest.Wait()
		if got := atOnce("slow", 8); got != 8 || len(f.slow) != 0 {
			t.Errorf("it was quick: %d of 8, want all; slow: %v", got, f.slow)
		}
		time.Sleep(took)
		synctest.Wait()
		if len(f.busy) != 0 {
			t.Errorf("busy: %v", f.busy)
		}
	})
}
