package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// The adversary deletes a pool in use, without its finalizer, and restores it later from
// a backup. Until then a create of the pool's claims is stored without a range, or with
// the range that it names and does not own yet. The history knows when each pool was
// absent.

// losePool is the fault.
const losePool = "lose-pool"

const (
	// absenceMargin is added to both ends of an absence.
	absenceMargin = time.Second
	// poolLimit bounds the deletion and the restore of a pool, which are repeated while
	// the API server fails.
	poolLimit = time.Minute
)

// poolEraser is the user who may delete a pool in use, and forge records: no webhook of
// the allocator is called for this user.
const poolEraser = "chaos-pool-eraser"

// absence is the time in which a pool was not stored, or may not have been.
type absence struct {
	pool        string
	began, over time.Time // over is zero while the pool is absent
	lost        bool      // the pool was deleted
}

// covers reports whether the API server may have processed the call while the pool was
// absent.
func (a *absence) covers(c *call) bool {
	ended := c.ended
	if c.err != nil { // the API server may still process the last attempt
		ended = c.began.Add(callLimit)
	}
	return a.pool == c.poolName && !a.began.Add(-absenceMargin).After(ended) && (a.over.IsZero() || !c.began.After(a.over.Add(absenceMargin)))
}

// losing records that a pool may be absent from now on, until over is called.
func (h *history) losing(pool string) (over func(lost bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &absence{pool: pool, began: time.Now()}
	h.absences = append(h.absences, a)
	return func(lost bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		a.over, a.lost = time.Now(), lost
	}
}

// poolAbsent reports whether the API server may have processed the call while the pool of
// its claim was absent.
func (v *verdict) poolAbsent(c *call) bool {
	return c != nil && slices.ContainsFunc(v.absences, func(a *absence) bool { return a.covers(c) })
}

// poolNameOf returns kind and name of the pool of a claim; "" for a claim without a pool.
func poolNameOf(o client.Object) string {
	switch o := o.(type) {
	case *butlerv1.IPAllocation:
		return "NetworkPool " + o.Spec.PoolRef.Name
	case *novaedgev1.ProxyVIP:
		if o.Spec.PoolRef != nil {
			return "ProxyIPPool " + o.Spec.PoolRef.Name
		}
	case *metal3v1.IPClaim:
		return "IPPool " + o.Spec.Pool.Name
	case *ipamv1.IPAddressClaim:
		return o.Spec.PoolRef.Kind + " " + o.Spec.PoolRef.Name
	}
	return ""
}

// lostPools are the pools that the adversary deletes, without content.
func lostPools() (pools []client.Object) {
	for _, name := range []string{"wide", "narrow", "tiny"} {
		pools = append(pools, &butlerv1.NetworkPool{})
		pools[len(pools)-1].SetName(name)
	}
	for _, name := range []string{ipPool, restoredIPPool} {
		pools = append(pools, &metal3v1.IPPool{})
		pools[len(pools)-1].SetName(name)
	}
	pools = append(pools, &novaedgev1.ProxyIPPool{})
	pools[len(pools)-1].SetName(vipPool)
	for _, p := range pools[:len(pools)-1] {
		p.SetNamespace(namespace)
	}
	return pools
}

// eraser returns the client of poolEraser, and exempts that user from all webhooks of the
// allocator.
func eraser(ctx context.Context, s *sandbox.Sandbox, c client.Client) (client.Client, error) {
	exempt := admissionregistrationv1.MatchCondition{Name: "not-chaos", Expression: fmt.Sprintf("request.userInfo.username != %q", poolEraser)}
	validating, mutating := &admissionregistrationv1.ValidatingWebhookConfigurationList{}, &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if err := errors.Join(c.List(ctx, validating), c.List(ctx, mutating)); err != nil {
		return nil, err
	}
	var exempted []string
	for i := range validating.Items {
		v := &validating.Items[i]
		for j := range v.Webhooks {
			v.Webhooks[j].MatchConditions = append(v.Webhooks[j].MatchConditions, exempt)
		}
		if err := c.Update(ctx, v); err != nil {
			return nil, err
		}
		exempted = append(exempted, v.Name)
	}
	for i := range mutating.Items {
		m := &mutating.Items[i]
		for j := range m.Webhooks {
			m.Webhooks[j].MatchConditions = append(m.Webhooks[j].MatchConditions, exempt)
		}
		if err := c.Update(ctx, m); err != nil {
			return nil, err
		}
		exempted = append(exempted, m.Name)
	}
	if !slices.Contains(exempted, "butler-ipam") {
		return nil, fmt.Errorf("the webhooks of the allocator are not among %s: nothing denies the deletion of a pool in use", exempted)
	}
	config, err := s.ConfigFor(poolEraser, "system:masters")
	if err != nil {
		return nil, err
	}
	config.Timeout = callLimit
	return client.New(config, client.Options{Scheme: c.Scheme()})
}

// toPool deletes a pool, and restores it.
func (a *adversary) toPool(d deed) harm {
	all := lostPools()
	p := all[d.pool%len(all)]
	gvk, err := a.eraser.GroupVersionKindFor(p)
	if err != nil {
		panic(err) // the scheme has all kinds of pools
	}
	name := gvk.Kind + " " + p.GetName()
	var (
		backup client.Object // nil where the pool was not deleted
		over   func(lost bool)
	)
	return harm{
		victim: name,
		do: func(ctx context.Context) (err error) {
			over = a.history.losing(name)
			backup, err = a.deletePool(context.WithoutCancel(ctx), p)
			return err
		},
		undo: func(ctx context.Context) (err error) {
			if backup != nil {
				err = a.restorePool(context.WithoutCancel(ctx), backup)
			}
			over(backup != nil)
			return err
		},
	}
}

// deletePool removes the finalizers of a pool, deletes that very version, and returns its
// backup when the pool is gone. A manager that adds its finalizer in between, or changes
// anything else, makes another attempt necessary. An IPPool that lists moved ranges is
// not deleted: they would be free.
func (r *run) deletePool(ctx context.Context, p client.Object) (backup client.Object, err error) {
	key := client.ObjectKeyFromObject(p)
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, poolLimit, true, func(ctx context.Context) (gone bool, err error) {
		stored := p.DeepCopyObject().(client.Object)
		switch err := r.eraser.Get(ctx, key, stored); {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, nil // the API server does not answer
		case backup != nil && stored.GetResourceVersion() == backup.GetResourceVersion(): // an earlier DELETE may still be processed
		case r.history.listsMoved(stored):
			backup = nil
			return true, nil
		}
		if r.eraser.Patch(ctx, stored, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"finalizers": null}}`))) != nil || r.history.listsMoved(stored) {
			return false, nil
		}
		backup = stored.DeepCopyObject().(client.Object)
		_ = r.eraser.Delete(ctx, stored, client.Preconditions{UID: ptr.To(stored.GetUID()), ResourceVersion: ptr.To(stored.GetResourceVersion())})
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be deleted: %w", key.Name, err)
	}
	if backup == nil {
		return nil, nil
	}
	return saved(backup), nil
}

// listsMoved reports whether a pool is an IPPool with addresses that claims took to
// another cluster.
func (h *history) listsMoved(pool client.Object) bool {
	p, is := pool.(*metal3v1.IPPool)
	if !is {
		return false
	}
	for _, c := range poolrecord.ReadList(p).Ranges {
		if c.Until.IsZero() {
			return true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.stored.moved {
		if p.Name == ipPool && !d.freed { // somebody replaced the list a moment ago
			return true
		}
	}
	return false
}

// restorePool creates a pool from its backup. A create whose answer was lost may have
// been stored.
func (r *run) restorePool(ctx context.Context, backup client.Object) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, poolLimit, true, func(ctx context.Context) (bool, error) {
		last = r.client.Create(ctx, backup.DeepCopyObject().(client.Object))
		return last == nil || apierrors.IsAlreadyExists(last), nil
	})
	if err != nil {
		return fmt.Errorf("%s is not restored: %w", backup.GetName(), errors.Join(err, last))
	}
	return nil
}

// waitsWithReason reports whether a claim that was stored while its pool was absent still
// waits, and another owns an address that it names, or its pool has no room for it.
func (r *run) waitsWithReason(o client.Object, owned map[netip.Addr]int) bool {
	if !waits(o) || !r.history.storedWithoutPool(o) {
		return false
	}
	names := addressesOf(o)
	if shared(owned, names) {
		return true
	}
	for i, n := range sizesOf(o) {
		if n == 0 || names[i].IsValid() {
			continue
		}
		networks := (&worker{run: r}).windowOf(o)
		if !slices.ContainsFunc(networks[min(i, len(networks)-1):], func(network string) bool { return hasRoom(netip.MustParsePrefix(network), n, owned) }) {
			return true
		}
	}
	return false
}

// hasRoom reports whether a network has n free addresses in a row. Those of a network of
// ProxyVIPs are without its edges.
func hasRoom(network netip.Prefix, n int64, owned map[netip.Addr]int) bool {
	free := int64(0)
	for at := network.Addr(); network.Contains(at); at = at.Next() {
		if free++; owned[at] > 0 || slices.Contains(vipNetworks, network.String()) && !offered(at) {
			free = 0
		}
		if free == n {
			return true
		}
	}
	return false
}

// storedWithoutPool reports whether the create of a claim was processed while its pool
// may have been absent.
func (h *history) storedWithoutPool(o client.Object) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := o.GetAnnotations()[callAnnotation]
	i := slices.IndexFunc(h.calls, func(c *call) bool { return c.id == id })
	return i >= 0 && slices.ContainsFunc(h.absences, func(a *absence) bool { return a.covers(h.calls[i]) })
}
