package flow

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// served is a request that a worker has served.
type served struct {
	name    string
	ended   time.Time
	atStart int // requests at work when the request began
}

// workshop serves requests of a queue as a controller does.
type workshop struct {
	queue Queue
	work  func(reconcile.Request) (again time.Duration)

	mu      sync.Mutex
	atWork  int
	began   []served
	ended   []served
	workers sync.WaitGroup
}

// startWorkshop starts a controller's workers.
func startWorkshop(regular int, work func(reconcile.Request) time.Duration) *workshop {
	w := &workshop{queue: NewQueue(""), work: work}
	for range QueueOptions(w.queue, regular).MaxConcurrentReconciles {
		w.workers.Go(func() {
			for w.serveNext() {
			}
		})
	}
	return w
}

func (w *workshop) serveNext() bool {
	r, ended := w.queue.Get()
	if ended {
		return false
	}
	defer w.queue.Done(r)
	w.mu.Lock()
	w.atWork++
	w.began = append(w.began, served{r.String(), time.Now(), w.atWork})
	w.mu.Unlock()
	if again := w.work(r); again > 0 {
		w.queue.AddAfter(r, again)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atWork--
	w.ended = append(w.ended, served{name: r.String(), ended: time.Now()})
	return true
}

// add adds requests a-1 to a-n, the oldest first.
func (w *workshop) add(namespace string, names ...string) {
	for _, name := range names {
		w.queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
}

// stop waits for the workers: began and ended can be read then.
func (w *workshop) stop() {
	w.queue.ShutDown()
	w.workers.Wait()
}

// numbered returns n names.
func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%05d", i))
	}
	return names
}

// namesOf returns the names of what the workers began, or ended.
func namesOf(all []served) (names []string) {
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

func TestQueue_NamespacesTakeTurnsOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorkshop(1, func(reconcile.Request) time.Duration {
			time.Sleep(10 * time.Millisecond)
			return 0
		})
		w.add("first", "1")
		synctest.Wait() // the worker is busy
		w.add("a", "1", "2", "3", "4")
		w.add("b", "1", "2")
		w.add("c", "1")
		time.Sleep(time.Second)
		w.stop()
		if got, want := namesOf(w.began), []string{"first/1", "a/1", "b/1", "c/1", "a/2", "b/2", "a/3", "a/4"}; !slices.Equal(got, want) {
			t.Errorf("served %q, want %q", got, want)
		}
	})
}

// A Pacer postpones most requests once. If a postponed request lost its place, each
// request would wait twice for all others.
func TestQueue_PostponedRequestKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[string]bool{}
		w := startWorkshop(1, func(r reconcile.Request) time.Duration {
			time.Sleep(300 * time.Millisecond)
			first := !seen[r.Name]
			seen[r.Name] = true
			switch {
			case first && r.Name == "1":
				return keepsPlace
			case first && r.Name == "2":
				return keepsPlace + 1
			}
			return 0
		})
		w.add("a", "1", "2", "3", "4", "5")
		time.Sleep(10 * time.Second)
		w.stop()
		if got, want := namesOf(w.began), []string{"a/1", "a/2", "a/3", "a/1", "a/4", "a/5", "a/2"}; !slices.Equal(got, want) {
			t.Errorf("served %q, want %q", got, want)
		}
		if q := w.queue.(*queue).turns; len(q.postponed)+len(q.began)+len(q.busy)+len(q.byName)+q.requests > 0 {
			t.Errorf("left in the queue: %+v", q)
		}
	})
}

// All tenants share one namespace. One slow write made the namespace slow for half a
// minute: a quarter of the workers served it, and each further request was queued again
// after a second, in any order.
func TestQueue_SlowNamespaceIsServedInOrderByAllRegularWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const regular, requests, each = 20, 6000, 200 * time.Millisecond
		w := startWorkshop(regular, func(r reconcile.Request) time.Duration {
			if r.Name == "00000" {
				time.Sleep(slowAfter)
			}
			time.Sleep(each)
			return 0
		})
		began := time.Now()
		w.add("tenants", numbered(requests)...)
		var names []string
		for _, name := range numbered(requests) {
			names = append(names, "tenants/"+name)
		}
		time.Sleep(time.Hour)
		w.stop()
		if len(w.began) != requests {
			t.Errorf("%d requests were served %d times", requests, len(w.began))
		}
		for i, s := range w.began { // the workers that are free at the same time record their requests in any order
			if ahead := slices.Index(names, s.name) - i; ahead > regular || ahead < -regular {
				t.Fatalf("request %s was served at position %d", s.name, i)
			}
		}
		last := w.ended[len(w.ended)-1].ended.Sub(began)
		if want := requests/regular*each + slowAfter; last > want {
			t.Errorf("the last request was served after %s, want at most %s", last, want)
		}
	})
}

func TestQueue_SlowNamespacesLeaveWorkersToOthers(t *testing.T) {
	const regular, spare = 8, 2
	for name, slow := range map[string][]string{"one slow namespace": {"slow"}, "three slow namespaces": {"slow", "slow-2", "slow-3"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := startWorkshop(regular, func(r reconcile.Request) time.Duration {
					if slices.Contains(slow, r.Namespace) {
						time.Sleep(10 * time.Second)
					} else {
						time.Sleep(10 * time.Millisecond)
					}
					return 0
				})
				for _, namespace := range slow {
					w.add(namespace, numbered(100)...)
				}
				time.Sleep(30 * time.Second) // each is known to be slow
				for range 100 {
					synctest.Wait() // until each worker that has ended a request has begun the next one
					w.mu.Lock()
					atWork := w.atWork
					w.mu.Unlock()
					if atWork != regular {
						t.Fatalf("%d requests of slow namespaces are at work, want %d", atWork, regular)
					}
					before := time.Now()
					w.add("quick", numbered(4)...)
					time.Sleep(100 * time.Millisecond)
					w.mu.Lock()
					var waits []time.Duration
					for _, s := range w.ended {
						if s.ended.After(before) && len(s.name) > 5 && s.name[:6] == "quick/" {
							waits = append(waits, s.ended.Sub(before))
						}
					}
					w.mu.Unlock()
					if len(waits) != 4 || slices.Max(waits) > 4/spare*10*time.Millisecond {
						t.Fatalf("requests of another namespace were served after %v", waits)
					}
				}
				w.stop()
			})
		})
	}
}

func TestQueue_SlowNamespaceBecomesQuickAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := 2 * slowAfter
		w := startWorkshop(4, func(reconcile.Request) time.Duration {
			time.Sleep(took)
			return 0
		})
		isSlow := func() bool {
			q := w.queue.(*queue).turns
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.isSlow("a")
		}
		serve := func(name string) {
			w.add("a", name)
			time.Sleep(took)
			synctest.Wait()
		}
		if serve("1"); !isSlow() {
			t.Error("not slow after a slow object")
		}
		took = slowAfter / 2
		if serve("2"); !isSlow() {
			t.Error("not slow right after a slow object")
		}
		time.Sleep(slowFor)
		if !isSlow() {
			t.Error("not slow although no object has shown that it is quick")
		}
		if serve("3"); isSlow() {
			t.Error("slow after a quick object")
		}
		w.stop()
	})
}
