package main

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	trialBits  = 28
	trialSize  = 1 << (32 - trialBits)
	trialPairs = 8 // fill a pool, and go on a little
)

// trialSpace is where the pools of trials begin: each has addresses that no other pool ever has.
var trialSpace = netip.MustParseAddr("10.64.0.0")

// try compares dry runs with the same calls in earnest, made right after them, in a new pool that nobody but this client knows of. They end
// alike, down to the addresses, because nothing changes between the two but by this client:
//
//   - nothing of the pool is deleted as long as the trial lasts, so no release is under way
//   - a call that failed may have left a grant, which ends some time: it ends the trial too
//   - so may one that was answered, where its first mutating call was given a range, the answer was lost with the journal's holder, and the
//     next holder gave another. And a new holder may have to find out first what the last one knew. So a pair counts only as long as the
//     journal's epoch is that in which the trial began: then one process has answered everything.
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
		if now, err := w.store.Read(ctx); err == nil && now.Epoch == began.Epoch {
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

// cidrOf a shared pool, or that of the trial.
func (w *worker) cidrOf(pool string) string {
	if cidr, shared := cidrs[pool]; shared {
		return cidr
	}
	return w.trial.String()
}
