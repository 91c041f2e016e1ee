package main

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	trialBits  = 28
	trialSize  = 1 << (32 - trialBits)
	trialPairs = 8 // fill a pool, and go on a little
)

// trialSpace is where the pools of trials begin: each has addresses that no other pool
// ever has.
var trialSpace = netip.MustParseAddr("10.64.0.0")

// try compares dry runs with the same creates without dry run, sent directly after the
// dry runs, in a new pool that only this client uses. Both results must be equal,
// including the addresses, because only this client changes the pool:
//
//   - Nothing of the pool is deleted during the trial, so no release is under way.
//   - A failed create may have left a grant, which expires at an unknown time: the trial
//     ends too.
//   - A successful create may also have left a grant: its first mutating call got a
//     range, the response was lost with the leader, and the next leader granted another
//     range. And a new leader may have to wait before it has the information of its
//     predecessor. So a pair counts only while the journal's term is the term at the
//     beginning of the trial: then one process has responded to all calls.
func (w *worker) try(ctx context.Context) {
	if len(w.trials) > 0 { // the oldest, most likely to be empty
		if err := w.client.Delete(ctx, w.trials[0]); err == nil || apierrors.IsNotFound(err) {
			w.trials = w.trials[1:]
		}
	}
	w.tried++
	prefix := netip.PrefixFrom(plus(trialSpace, (w.tried*w.clients+w.id)*trialSize), trialBits)
	pool := &v1alpha1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("trial-%d-%d", w.id, w.tried), Namespace: namespace},
		Spec:       v1alpha1.NetworkPoolSpec{CIDR: prefix.String()},
	}
	if w.client.Create(ctx, pool) != nil {
		return
	}
	w.trial = prefix
	began, err := w.store.Read(ctx)
	if err != nil {
		return
	}
	for range trialPairs {
		a := w.askTrial(pool.Name, prefix)
		dry, earnest := w.rehearse(ctx, a.DeepCopy()), w.create(ctx, a)
		if failed(dry.err) || failed(earnest.err) {
			return
		}
		if now, err := w.store.Read(ctx); err == nil && now.Term == began.Term {
			w.history.compare(dry, earnest)
		}
	}
	w.trials = append(w.trials, pool)
}

// askTrial is a claim that may be one too many for its pool, or too large.
func (w *worker) askTrial(pool string, prefix netip.Prefix) *v1alpha1.IPAllocation {
	a := w.claim(pool)
	switch w.random.IntN(5) {
	case 0:
		pin(a, prefix, w.random.IntN(trialSize), 1+w.random.IntN(3))
	case 1:
		a.Spec.Count = new(int32(1 + w.random.IntN(trialSize+1)))
	default:
		a.Spec.Count = new(int32(1 + w.random.IntN(4)))
	}
	return a
}

// isOfTrial reports whether a claim's pool is the pool of a trial.
func isOfTrial(o client.Object) bool {
	a, is := o.(*v1alpha1.IPAllocation)
	if !is {
		return false
	}
	_, shared := cidrs[a.Spec.PoolRef.Name]
	return !shared
}

// cidrOf a shared pool, or that of the trial.
func (w *worker) cidrOf(pool string) string {
	if cidr, shared := cidrs[pool]; shared {
		return cidr
	}
	return w.trial.String()
}
