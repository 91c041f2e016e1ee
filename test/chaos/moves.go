package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Claims go to other clusters, as clusterctl takes them there, and people replace the
// pool that lists their addresses, or take one out of the list.

const deleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"

// pausedCluster is the Cluster that is being moved. None of the pools is its own.
func pausedCluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "moving"}, Spec: clusterv1.ClusterSpec{
		Paused: ptr.To(true), InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Cluster", Name: "moving"},
	}}
}

// departure is an address that the IPPool has listed as one that a claim took to another
// cluster.
type departure struct {
	claim    string
	revision int64 // of the list
	seen     time.Time
	freed    bool // a person took it out of the list, or tried to
}

// trespass is a claim that has an address which is listed as another's.
type trespass struct {
	by   *object
	at   netip.Addr
	left departure
}

// listed takes in a list of the IPPool. An address stays where it went when a list lacks
// it.
func (c *chronicle) listed(moved []ledger.RecordedRange, revision int64, now time.Time) {
	for _, m := range moved {
		at := m.Range.First
		if o := c.live[m.Claim.Name]; !m.Until.IsZero() || o != nil && o.owned[0] == m.Range { // it has come back
			continue
		}
		if _, known := c.moved[at]; !known {
			c.moved[at] = departure{claim: m.Claim.Name, revision: revision, seen: now}
		}
	}
}

// arrived takes in that a claim has addresses: its own come back with it.
func (c *chronicle) arrived(o *object) {
	for at := range o.owned.each {
		switch d, away := c.moved[at]; {
		case !away:
		case d.claim == o.name:
			delete(c.moved, at)
		default:
			c.trespasses = append(c.trespasses, trespass{o, at, d})
		}
	}
}

// freed takes down that a person is about to take an address out of a list that shows it.
func (h *history) freed(at netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, away := h.stored.moved[at]; away {
		d.freed = true
		h.stored.moved[at] = d
	}
}

// judgeMoves: what is listed as another's in another cluster is given to nobody by a call
// that began later.
func (v *verdict) judgeMoves() {
	for _, t := range v.stored.trespasses {
		if c := v.byID[t.by.call]; v.answered(t.by) && !t.left.freed && c.began.After(t.left.seen) {
			v.blame("%s has %s, which %s has in another cluster, as the pool listed at revision %d", t.by, t.at, t.left.claim, t.left.revision)
		}
	}
}

// move does to an IPClaim what clusterctl does, and to its IPAddress before.
func (w *worker) move(ctx context.Context) {
	i := slices.IndexFunc(w.own, func(o client.Object) bool {
		c, is := o.(*metal3v1.IPClaim)
		return is && c.Spec.Pool.Name == ipPool
	})
	if i < 0 {
		return
	}
	claim := &metal3v1.IPClaim{}
	if w.client.Get(ctx, client.ObjectKeyFromObject(w.own[i]), claim) != nil || claim.Status.Address == nil || claim.DeletionTimestamp != nil {
		return
	}
	address := &metal3v1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim.Status.Address.Name}}
	for _, o := range []client.Object{address, claim} {
		mark := fmt.Sprintf(`{"metadata": {"annotations": {%q: ""}}}`, deleteForMove)
		marked := persist(ctx, func(ctx context.Context) error {
			return w.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(mark)))
		})
		if marked != nil || persist(ctx, func(ctx context.Context) error { return w.client.Delete(ctx, o) }) != nil {
			return // it is tried again some time
		}
		w.release(ctx, o)
	}
	w.own = slices.Delete(w.own, i, i+1)
}

// release takes the finalizers off an object that was deleted as moved, as clusterctl
// does: nobody else does it, so it is repeated until it succeeds.
func (w *worker) release(ctx context.Context, o client.Object) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := w.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"finalizers": null}}`)))
		return client.IgnoreNotFound(err) == nil, nil
	})
}

// pool edits the IPPool, as its list of what went to other clusters is now; without
// effect where the list is another meanwhile.
func (w *worker) editPool(ctx context.Context, edit func(p *metal3v1.IPPool, l poolrecord.List, moved []ledger.RecordedRange)) {
	p := &metal3v1.IPPool{}
	if w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ipPool}, p) != nil {
		return
	}
	l := poolrecord.ReadList(p)
	moved := slices.DeleteFunc(slices.Clone(l.Ranges), func(c ledger.RecordedRange) bool { return !c.Until.IsZero() })
	if len(moved) > 0 {
		edit(p, l, moved)
	}
}

// replacePool is kubectl replace with a manifest that has no annotations.
func (w *worker) replacePool(ctx context.Context) {
	w.editPool(ctx, func(p *metal3v1.IPPool, _ poolrecord.List, _ []ledger.RecordedRange) {
		p.Annotations = nil
		_ = w.client.Update(ctx, p)
	})
}

// takeOut is a person who knows that an address is free after all.
func (w *worker) takeOut(ctx context.Context) {
	w.editPool(ctx, func(p *metal3v1.IPPool, l poolrecord.List, moved []ledger.RecordedRange) {
		out := moved[w.random.IntN(len(moved))]
		w.history.freed(out.Range.First)
		rest := slices.DeleteFunc(l.Ranges, func(c ledger.RecordedRange) bool { return c == out })
		if p.Annotations[butlerv1.AnnotationCooldown], _ = poolrecord.FormatList(p, rest, l.StoredRevision()); len(rest) == 0 {
			p.Annotations[butlerv1.AnnotationCooldown] = "[]"
		}
		_ = w.client.Update(ctx, p)
	})
}

// comeBack creates a claim that went to another cluster, with its address.
func (w *worker) comeBack(ctx context.Context) {
	w.editPool(ctx, func(_ *metal3v1.IPPool, _ poolrecord.List, moved []ledger.RecordedRange) {
		back := moved[w.random.IntN(len(moved))]
		claim := w.askClaim(false).(*metal3v1.IPClaim)
		claim.Spec.Pool.Name = ipPool
		claim.SetGenerateName("")
		claim.SetName(back.Claim.Name)
		claim.SetAnnotations(map[string]string{metal3v1.AnnotationIPAddress: back.Range.First.String()})
		w.create(ctx, claim)
	})
}

// movedDifferences are those between what the IPPool lists and what the history has seen
// go, and have not seen come back. What is listed is owned.
func (r *run) movedDifferences(ctx context.Context, owned map[netip.Addr]int) (found []string) {
	p := &metal3v1.IPPool{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ipPool}, p); err != nil {
		return []string{err.Error()}
	}
	listed := map[netip.Addr]bool{}
	for _, c := range poolrecord.ReadList(p).Ranges {
		listed[c.Range.First] = true
		owned[c.Range.First]++
	}
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	for at, d := range r.history.stored.moved {
		if !d.freed && !listed[at] {
			found = append(found, fmt.Sprintf("pool %s does not list %s, which %s took to another cluster", ipPool, at, d.claim))
		}
	}
	return found
}
