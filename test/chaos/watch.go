package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// allocationsPrefix is where the API server keeps allocations: one key for each, with its JSON.
const allocationsPrefix = "/registry/butler.butlerlabs.dev/ipallocations/" + namespace + "/"

func etcdClient(s *sandbox.Sandbox) (*clientv3.Client, error) {
	url, config, err := s.EtcdAccess()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: config, Logger: zap.NewNop()})
}

// watch takes every version of every allocation out of etcd until ctx ends. When etcd was down it goes on with the next revision.
//
// It relies on etcd to keep what the watch has not had yet. The API server has etcd forget what is older than five minutes, and that stays
// so: without it an hour's run outgrows etcd's 2 GiB. No fault lasts as long, and if the watch were behind all the same, etcd would say
// so, and the run would end without a verdict.
func (h *history) watch(ctx context.Context, c *clientv3.Client) error {
	next := int64(1)
	for ctx.Err() == nil {
		for r := range c.Watch(ctx, allocationsPrefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(next)) {
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

func (h *history) saw(e *clientv3.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := int64(0)
	if e.PrevKv != nil {
		before = e.PrevKv.ModRevision
	}
	if e.Type == clientv3.EventTypeDelete {
		return h.stored.remove(path.Base(string(e.Kv.Key)), e.Kv.ModRevision, before)
	}
	a := &v1alpha1.IPAllocation{}
	if err := json.Unmarshal(e.Kv.Value, a); err != nil {
		return fmt.Errorf("%s at revision %d: %w", e.Kv.Key, e.Kv.ModRevision, err)
	}
	return h.stored.put(versionOf(a, e.Kv.ModRevision), before)
}

func versionOf(a *v1alpha1.IPAllocation, revision int64) version {
	v := version{revision: revision, name: a.Name, uid: string(a.UID), call: a.Annotations[callAnnotation], held: rangeOf(a)}
	v.whole = v.held.IsValid() && a.Annotations[v1alpha1.AnnotationGrant] != "" && slices.Contains(a.Finalizers, v1alpha1.FinalizerIPAllocation)
	if ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		v.ready, v.flagged = ready.Status == metav1.ConditionTrue, ready.Reason == v1alpha1.ReasonAddressConflict
	}
	return v
}

// rangeOf is not valid where the allocation has none.
func rangeOf(a *v1alpha1.IPAllocation) allocator.Range {
	if a.Spec.PinnedRange == nil {
		return allocator.Range{}
	}
	r, _ := allocator.ParseRange(a.Spec.PinnedRange.StartAddress + "-" + a.Spec.PinnedRange.EndAddress)
	return r
}

// caughtUp waits until the history ends with what etcd holds.
func (h *history) caughtUp(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if held, err := c.Get(ctx, allocationsPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()); err == nil && h.endsWith(held) {
			return nil
		}
		pause(ctx)
	}
	return errors.New("the watch of etcd does not come to what etcd holds")
}

func (h *history) endsWith(held *clientv3.GetResponse) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kv := range held.Kvs {
		if o := h.stored.live[path.Base(string(kv.Key))]; o == nil || o.last != kv.ModRevision {
			return false
		}
	}
	return len(held.Kvs) == len(h.stored.live)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}
