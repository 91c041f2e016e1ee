package flow

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestNamespacesThatAreSlowHaveAFewWorkersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took, ran := 10*time.Second, map[string]int{}
		f := NewFairness(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			ran[req.Namespace]++
			if strings.HasPrefix(req.Namespace, "slow") {
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
			{"it was quiet, which shows nothing", "slow", 2, took},
			{"nothing is known of a second", "slow 2", 8, took},
			{"the first is still slow", "slow", 2, 0},
			{"the second is slow", "slow 2", 2, took},
			{"two are slow", "slow", 2, 0},
			{"they are slow again", "slow 2", 2, 0},
			{"nothing is known of a third", "slow 3", 8, took},
			{"the third is slow", "slow 3", 2, 0},
			{"and the second", "slow 2", 2, 0},
			{"together they have no more", "slow", 0, 0},
			{"others have theirs", "quick", 8, took + slowFor},
			{"it was turned away for long, which shows nothing", "slow", 2, took + slowFor},
		} {
			if got := atOnce(step.namespace, 8); got != step.want {
				t.Errorf("%s: %d of 8 in %s, want %d", step.what, got, step.namespace, step.want)
			}
			time.Sleep(step.after)
			synctest.Wait()
		}
		took = slowAfter / 2
		for _, namespace := range []string{"slow", "slow 2", "slow 3"} {
			for _, want := range []int{2, 8} {
				if got := atOnce(namespace, 8); got != want {
					t.Errorf("%s is quick: %d of 8, want %d", namespace, got, want)
				}
				time.Sleep(took)
				synctest.Wait()
			}
		}
		if len(f.busy) != 0 || len(f.slow) != 0 {
			t.Errorf("busy: %v, slow: %v", f.busy, f.slow)
		}
	})
}
