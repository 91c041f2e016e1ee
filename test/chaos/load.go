package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	// callLimit is longer than the API server works on a request.
	callLimit = 40 * time.Second
	// keep is how many objects a client keeps at most.
	keep = 40
	// failedPause is how long a client rests after a failure, so that an API server that is down does not fill the figures.
	failedPause = 200 * time.Millisecond
)

// worker is one client.
type worker struct {
	*run
	id     int
	random *rand.Rand
	n      int
	own    []*v1alpha1.IPAllocation
}

// startLoad starts clients that work until ctx ends.
func (r *run) startLoad(ctx context.Context) *sync.WaitGroup {
	var all sync.WaitGroup
	for id := range r.clients {
		w := &worker{run: r, id: id, random: rand.New(rand.NewPCG(r.seed, uint64(id)+2))}
		all.Go(func() {
			for ctx.Err() == nil {
				w.step()
			}
		})
	}
	return &all
}

// step does one thing. A call that has begun is brought to its end: how it ends is what counts.
func (w *worker) step() {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	switch p := w.random.IntN(100); {
	case len(w.own) > 0 && (p < 30 || len(w.own) >= keep):
		w.remove(ctx, p < 10)
	case len(w.own) > 0 && p < 40:
		w.label(ctx)
	case p < 45:
		_ = w.client.Create(ctx, w.ask(), client.DryRunAll) // whatever it says, it must leave nothing
	case p < 55:
		w.apply(ctx)
	default:
		w.create(ctx, w.ask())
	}
}

// ask is a new claim: by count or for an exact range, sometimes with a name that the API server completes.
func (w *worker) ask() *v1alpha1.IPAllocation {
	w.n++
	name := fmt.Sprintf("c%d-%d", w.id, w.n)
	pools := []string{"wide", "wide", "narrow", "tiny"}
	a := &v1alpha1.IPAllocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPAllocation"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: pools[w.random.IntN(len(pools))]},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "chaos", Namespace: namespace},
			Type:             v1alpha1.TypeNodes,
		},
	}
	size := 1 + w.random.IntN(4)
	if w.random.IntN(6) == 0 {
		prefix := netip.MustParsePrefix(cidrs[a.Spec.PoolRef.Name])
		first := w.random.IntN(1<<(32-prefix.Bits()) - size)
		a.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: plus(prefix.Addr(), first), EndAddress: plus(prefix.Addr(), first+size-1)}
		return a
	}
	a.Spec.Count = new(int32(size))
	if w.random.IntN(6) == 0 {
		a.Name, a.GenerateName = "", name+"-"
	}
	return a
}

func plus(a netip.Addr, n int) string {
	b := a.As4()
	for i := 3; i >= 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	return netip.AddrFrom4(b).String()
}

func (w *worker) create(ctx context.Context, a *v1alpha1.IPAllocation) {
	name := a.Name
	err := w.client.Create(ctx, a)
	w.answered(a, name, err)
}

// answered takes down how a create ended.
func (w *worker) answered(a *v1alpha1.IPAllocation, name string, err error) {
	w.history.created(a, name, err)
	switch {
	case err == nil:
		w.own = append(w.own, a)
	case !refusal(err):
		time.Sleep(failedPause)
	}
}

// apply creates by server-side apply, and applies once more: the second must change nothing.
func (w *worker) apply(ctx context.Context) {
	a := w.ask()
	if a.GenerateName != "" {
		a.Name, a.GenerateName = strings.TrimSuffix(a.GenerateName, "-"), ""
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err != nil {
		panic(err) // it is one of our own types
	}
	unstructured.RemoveNestedField(object, "status")
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	for try := range 2 {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
		err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("chaos"))
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, a)
		}
		if try == 0 {
			w.answered(a, a.Name, err)
		} else {
			w.history.updated(a, err)
		}
		if err != nil {
			return
		}
	}
}

func (w *worker) label(ctx context.Context) {
	a := w.own[w.random.IntN(len(w.own))].DeepCopy()
	patch := client.MergeFrom(a.DeepCopy())
	metav1.SetMetaDataLabel(&a.ObjectMeta, "chaos", fmt.Sprint(w.n))
	w.n++
	w.history.updated(a, w.client.Patch(ctx, a, patch))
}

// remove deletes an object, and creates it anew where it is said to.
func (w *worker) remove(ctx context.Context, anew bool) {
	i := w.random.IntN(len(w.own))
	a := w.own[i]
	if err := w.client.Delete(ctx, a); err != nil && !apierrors.IsNotFound(err) {
		return // it is tried again some time
	}
	w.own = append(w.own[:i], w.own[i+1:]...)
	if !anew || a.GenerateName != "" {
		return
	}
	again := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: a.Name, Namespace: namespace}, Spec: a.Spec}
	again.Spec.PinnedRange = nil
	if again.Spec.Count == nil {
		again.Spec.Count = new(int32(1))
	}
	err := w.client.Create(ctx, again)
	if apierrors.IsAlreadyExists(err) {
		return // its release is under way
	}
	w.history.recreated(again, err)
	if err == nil {
		w.own = append(w.own, again)
	}
}
