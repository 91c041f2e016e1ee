package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

const (
	// callLimit is longer than the API server works on a request.
	callLimit = 40 * time.Second
	// keep is how many objects a client keeps at most.
	keep = 40
	// failedPause is how long a client rests after a failure, so that an API server that
	// is down does not fill the figures.
	failedPause = 200 * time.Millisecond
	// settleLimit is by when a create that failed is answered, once everything serves
	// again.
	settleLimit = 30 * time.Second
)

// load is the clients at work.
type load struct {
	sync.WaitGroup
	workers []*worker
}

// worker is one client.
type worker struct {
	*run
	id        int
	random    *rand.Rand
	n         int // names and calls so far
	own       []client.Object
	services  []string                // names
	restoring bool                    // what is created comes from a backup
	owed      client.Object           // the create of it failed: it is repeated before anything else is done
	tried     int                     // trials so far
	trial     netip.Prefix            // the pool of the last one
	trials    []*v1alpha1.NetworkPool // pools that are to be deleted
}

// startLoad starts clients that work until ctx ends: many for claims, and one for
// Services.
func (r *run) startLoad(ctx context.Context) *load {
	l := &load{}
	for id := range r.clients {
		w := &worker{run: r, id: id, random: rand.New(rand.NewPCG(r.seed, uint64(id)+2))}
		l.workers = append(l.workers, w)
		l.Go(func() {
			for ctx.Err() == nil {
				w.step()
			}
		})
	}
	w := &worker{run: r, id: r.clients, random: rand.New(rand.NewPCG(r.seed, uint64(r.clients)+2))}
	l.Go(func() {
		for ctx.Err() == nil {
			w.stepService(context.Background())
		}
	})
	return l
}

// settle repeats the creates that are still without an answer, now that everything
// serves.
func (l *load) settle() {
	limit := time.Now().Add(settleLimit)
	for _, w := range l.workers {
		l.Go(func() {
			for w.owed != nil && time.Now().Before(limit) {
				w.step()
			}
			if w.owed != nil {
				w.history.blame("the create of %s failed, and no repetition of it was answered in %s", w.owed.GetName(), settleLimit)
			}
		})
	}
	l.Wait()
}

// step does one thing. A call that has begun is brought to its end: how it ends is what
// counts.
func (w *worker) step() {
	ctx := context.Background()
	switch p := w.random.IntN(100); {
	case w.owed != nil:
		w.repeat(ctx)
	case len(w.own) > 0 && (p < 30 || len(w.own) >= keep):
		w.remove(ctx, p < 10)
	case len(w.own) > 0 && p < 36:
		w.label(ctx)
	case len(w.own) > 0 && p < 38:
		w.restore(ctx)
	case p < 40:
		[]func(context.Context){w.move, w.move, w.replacePool, w.takeOut, w.comeBack}[w.random.IntN(5)](ctx)
	case p < 45:
		w.rehearse(ctx, w.ask())
	case p < 55:
		w.apply(ctx, w.ask())
	case p < 57:
		w.try(ctx)
	default:
		w.create(ctx, w.ask())
	}
}

// ask is a new claim on a shared pool: one in five a ProxyVIP, one in five of Metal3 or
// Cluster API, the others allocations, by count or for an exact range, sometimes with a
// name that the API server completes.
func (w *worker) ask() client.Object {
	switch w.random.IntN(10) {
	case 0, 1:
		return w.askVIP()
	case 2, 3:
		return w.askClaim(w.random.IntN(2) == 0)
	}
	pools := []string{"wide", "wide", "narrow", "tiny"}
	a := w.claim(pools[w.random.IntN(len(pools))])
	size := 1 + w.random.IntN(4)
	if w.random.IntN(6) == 0 {
		prefix := netip.MustParsePrefix(cidrs[a.Spec.PoolRef.Name])
		pin(a, prefix, w.random.IntN(1<<(32-prefix.Bits())-size), size)
		return a
	}
	a.Spec.Count = new(int32(size))
	if w.random.IntN(6) == 0 {
		a.Name, a.GenerateName = "", a.Name+"-"
	}
	return a
}

// claim is a new one on a pool, which asks for nothing yet.
func (w *worker) claim(pool string) *v1alpha1.IPAllocation {
	w.n++
	return &v1alpha1.IPAllocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPAllocation"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d-%d", w.id, w.n), Namespace: namespace},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: pool},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Name: "chaos", Namespace: namespace},
			Type:             v1alpha1.TypeNodes,
		},
	}
}

// pin has a claim ask for so many addresses of a prefix, from the given one on.
func pin(a *v1alpha1.IPAllocation, prefix netip.Prefix, first, size int) {
	a.Spec.PinnedRange = &v1alpha1.PinnedIPRange{StartAddress: plus(prefix.Addr(), first).String(), EndAddress: plus(prefix.Addr(), first+size-1).String()}
}

func plus(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	for i := 3; i >= 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	return netip.AddrFrom4(b)
}

// call makes a create of some kind and takes down how it ends.
func (w *worker) call(ctx context.Context, o client.Object, dryRun bool, send func(context.Context) error) *call {
	w.n++
	c := newCall(fmt.Sprintf("c%d-%d", w.id, w.n), w.id, o)
	c.dryRun, c.pool, c.poolName, c.restored = dryRun, w.windowOf(o), poolNameOf(o), w.restoring
	c.make(ctx, o, send)
	w.history.called(c)
	if failed(c.err) {
		time.Sleep(failedPause)
	}
	return c
}

// rehearse makes a dry run.
func (w *worker) rehearse(ctx context.Context, o client.Object) *call {
	return w.call(ctx, o, true, func(ctx context.Context) error { return w.client.Create(ctx, o, client.DryRunAll) })
}

// create makes a call in earnest.
func (w *worker) create(ctx context.Context, o client.Object) *call {
	return w.earnest(ctx, o, func(ctx context.Context) error { return w.client.Create(ctx, o) })
}

// earnest keeps what a call has made. Where that failed and had a name, it is to be
// repeated.
func (w *worker) earnest(ctx context.Context, o client.Object, send func(context.Context) error) *call {
	asked := o.DeepCopyObject().(client.Object)
	c := w.call(ctx, o, false, send)
	switch {
	case c.err == nil:
		w.own = append(w.own, o)
	case failed(c.err) && asked.GetName() != "":
		w.owed = asked
	}
	return c
}

// repeat makes a create once more that has failed. That its name is taken is an answer
// too: what failed may have been stored.
func (w *worker) repeat(ctx context.Context) {
	o := w.owed
	w.owed = nil
	c := w.create(ctx, o)
	if apierrors.IsAlreadyExists(c.err) && w.client.Get(ctx, client.ObjectKeyFromObject(o), o) == nil {
		w.own = append(w.own, o)
	}
}

// apply creates by server-side apply, and applies once more: the second must change
// nothing.
func (w *worker) apply(ctx context.Context, o client.Object) {
	if prefix := o.GetGenerateName(); prefix != "" {
		o.SetName(strings.TrimSuffix(prefix, "-"))
		o.SetGenerateName("")
	}
	var sent map[string]any
	send := func(ctx context.Context) (err error) {
		if sent == nil {
			if sent, err = runtime.DefaultUnstructuredConverter.ToUnstructured(o); err != nil {
				return err
			}
			unstructured.RemoveNestedField(sent, "status")
			unstructured.RemoveNestedField(sent, "metadata", "creationTimestamp")
		}
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(sent)}
		if err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("chaos")); err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
	}
	if c := w.earnest(ctx, o, send); c.err == nil && send(ctx) == nil {
		w.updated(o, c.owned)
	}
}

func (w *worker) label(ctx context.Context) {
	o := w.own[w.random.IntN(len(w.own))]
	was := addressesOf(o)
	updated := o.DeepCopyObject().(client.Object)
	updated.SetLabels(map[string]string{"chaos": fmt.Sprint(w.n)})
	if w.client.Patch(ctx, updated, client.MergeFrom(o)) == nil {
		w.updated(updated, was)
	}
}

// updated looks at the answer to an update, which must have left the range as it was. A
// claim that was stored while its pool was absent may have got its range since.
func (w *worker) updated(o client.Object, was addresses) {
	if is := addressesOf(o); is != was && (lacks(o, is) || !is.complete(was) || !lacks(o, was)) {
		w.history.blame("the answer to an update of %s says %s, it had %s", o.GetName(), is, was)
	}
}

// remove deletes an object, and creates it anew where it is said to.
func (w *worker) remove(ctx context.Context, anew bool) {
	i := w.random.IntN(len(w.own))
	o := w.own[i]
	if err := w.client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
		return // it is tried again some time
	}
	w.own = slices.Delete(w.own, i, i+1)
	if !anew || o.GetGenerateName() != "" {
		return
	}
	switch o := o.(type) {
	case *v1alpha1.IPAllocation:
		if !isOfTrial(o) {
			again := w.claim(o.Spec.PoolRef.Name)
			again.Name, again.Spec.Count = o.Name, o.Spec.Count
			w.create(ctx, again)
		}
	case *novaedgev1.ProxyVIP:
		again := w.askVIP()
		again.Name, again.GenerateName = o.Name, ""
		w.create(ctx, again)
	default:
		_, addressClaim := o.(*ipamv1.IPAddressClaim)
		again := w.askClaim(addressClaim)
		again.SetName(o.GetName())
		again.SetGenerateName("")
		w.create(ctx, again)
	}
}
