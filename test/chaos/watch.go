package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// claims is where the API server keeps them: one key for each, with its JSON. In the
// order of keys.
var claims = []struct {
	prefix string
	empty  func() client.Object
}{
	{"/registry/butler.butlerlabs.dev/ipallocations/" + namespace + "/", func() client.Object { return &butlerv1.IPAllocation{} }},
	{"/registry/ipam.cluster.x-k8s.io/ipaddressclaims/" + namespace + "/", func() client.Object { return &ipamv1.IPAddressClaim{} }},
	{"/registry/ipam.metal3.io/ipclaims/" + namespace + "/", func() client.Object { return &metal3v1.IPClaim{} }},
	{"/registry/novaedge.io/proxyvips/", func() client.Object { return &novaedgev1.ProxyVIP{} }},
}

// claimAt is an empty claim for what is stored under a key; nil for what is no claim.
func claimAt(key string) client.Object {
	for _, c := range claims {
		if strings.HasPrefix(key, c.prefix) {
			return c.empty()
		}
	}
	return nil
}

// watch takes every version of every claim out of etcd until ctx ends. When etcd was down
// it goes on with the next revision. It is one watch for all kinds, and for the keys
// between theirs, as only one watch has its events in the order of revisions.
//
// It relies on etcd to keep what the watch has not had yet. The API server has etcd
// forget what is older than five minutes, and that stays so: without it an hour's run
// outgrows etcd's 2 GiB. No fault lasts as long, and if the watch were behind all the
// same, etcd would say so, and the run would end without a verdict.
func (h *history) watch(ctx context.Context, c *clientv3.Client) error {
	next := int64(1)
	for ctx.Err() == nil {
		for r := range c.Watch(ctx, claims[0].prefix, clientv3.WithRange(clientv3.GetPrefixRangeEnd(claims[len(claims)-1].prefix)), clientv3.WithPrevKV(), clientv3.WithRev(next)) {
			if r.CompactRevision > 0 {
				return fmt.Errorf("etcd has forgotten what came before revision %d; the watch has seen what came before %d", r.CompactRevision, next)
			}
			for _, e := range r.Events {
				if err := h.saw(e); err != nil {
					return err
				}
				next = e.Kv.ModRevision + 1
			}
		}
		pause(ctx)
	}
	return nil
}

// ipPoolKey is where the API server keeps the IPPool.
const ipPoolKey = "/registry/ipam.metal3.io/ippools/" + namespace + "/" + ipPool

// sawPool takes in a version of the IPPool.
func (h *history) sawPool(e *clientv3.Event) error {
	p := &metal3v1.IPPool{}
	if e.Type == clientv3.EventTypeDelete { // its moved ranges are free
		h.mu.Lock()
		defer h.mu.Unlock()
		clear(h.stored.moved)
		return nil
	}
	if err := json.Unmarshal(e.Kv.Value, p); err != nil {
		return fmt.Errorf("%s at revision %d: %w", e.Kv.Key, e.Kv.ModRevision, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stored.listed(poolrecord.ReadList(p).Ranges, e.Kv.ModRevision, time.Now())
	return nil
}

func (h *history) saw(e *clientv3.Event) error {
	if string(e.Kv.Key) == ipPoolKey {
		return h.sawPool(e)
	}
	o := claimAt(string(e.Kv.Key))
	if o == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := int64(0)
	if e.PrevKv != nil {
		before = e.PrevKv.ModRevision
	}
	if e.Type == clientv3.EventTypeDelete {
		return h.stored.remove(path.Base(string(e.Kv.Key)), e.Kv.ModRevision, before)
	}
	if err := json.Unmarshal(e.Kv.Value, o); err != nil {
		return fmt.Errorf("%s at revision %d: %w", e.Kv.Key, e.Kv.ModRevision, err)
	}
	return h.stored.put(versionOf(o, e.Kv.ModRevision), before)
}

func versionOf(o client.Object, revision int64) version {
	v := version{revision: revision, name: o.GetName(), uid: string(o.GetUID()), call: o.GetAnnotations()[callAnnotation], owned: addressesOf(o), whole: whole(o)}
	v.ready, v.flagged = stateOf(o)
	v.waits = waits(o)
	return v
}

// caughtUp waits until the history ends with what etcd holds.
func (h *history) caughtUp(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if owned, err := revisions(ctx, c); err == nil && h.endsWith(owned) {
			return nil
		}
		pause(ctx)
	}
	return errors.New("the watch of etcd does not come to what etcd holds")
}

// revisions are those of the claims that etcd holds: name -> revision.
func revisions(ctx context.Context, c *clientv3.Client) (map[string]int64, error) {
	owned := map[string]int64{}
	for _, claim := range claims {
		stored, err := c.Get(ctx, claim.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return nil, err
		}
		for _, kv := range stored.Kvs {
			owned[path.Base(string(kv.Key))] = kv.ModRevision
		}
	}
	return owned, nil
}

func (h *history) endsWith(owned map[string]int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, revision := range owned {
		if o := h.stored.live[name]; o == nil || o.last != revision {
			return false
		}
	}
	return len(owned) == len(h.stored.live)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}
