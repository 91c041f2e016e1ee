package main

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// put stores entries, key -> value, in one transaction: up to 128.
func put(ctx context.Context, e *clientv3.Client, entries map[string][]byte) error {
	puts := make([]clientv3.Op, 0, len(entries))
	for key, value := range entries {
		puts = append(puts, clientv3.OpPut(key, string(value)))
	}
	_, err := e.Txn(ctx).Then(puts...).Commit()
	return err
}

// get reads the value of one key.
func get(ctx context.Context, e *clientv3.Client, key string) ([]byte, error) {
	answer, err := e.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(answer.Kvs) != 1 {
		return nil, fmt.Errorf("etcd has no %s", key)
	}
	return answer.Kvs[0].Value, nil
}

// changed counts the keys that begin so and were written after a revision, and gives the present one.
func changed(ctx context.Context, e *clientv3.Client, prefix string, since int64) (n int, now int64, err error) {
	answer, err := e.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(since+1))
	if err != nil {
		return 0, 0, err
	}
	return len(answer.Kvs), answer.Header.Revision, nil
}

// awaitReady returns when all objects of a collection, n of them, are Ready. It follows them where they are stored: a watch on the API server,
// which has to put every object into JSON once more for it, would take a fifth of what is measured away from it.
func (c *collection) awaitReady(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ready := make(map[string]bool, n)
	see := func(value []byte) error {
		var o object
		if len(value) == 0 { // deleted
			return nil
		}
		if err := json.Unmarshal(value, &o); err != nil {
			return err
		}
		if o.ready() {
			ready[o.Metadata.Name] = true
		}
		return nil
	}
	stored, err := c.etcd.Get(ctx, c.storage(), clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range stored.Kvs {
		if err := see(kv.Value); err != nil {
			return err
		}
	}
	if len(ready) == n {
		return nil
	}
	for changes := range c.etcd.Watch(ctx, c.storage(), clientv3.WithPrefix(), clientv3.WithRev(stored.Header.Revision+1)) {
		for _, e := range changes.Events {
			if err := see(e.Kv.Value); err != nil {
				return err
			}
		}
		if len(ready) == n {
			return nil
		}
	}
	return fmt.Errorf("%d of %d objects are Ready: %w", len(ready), n, ctx.Err())
}

// storage is where the API server keeps the objects of a collection, as far as their resource is not its own.
func (c *collection) storage() string {
	prefix := "/registry/" + c.group() + "/" + c.resource + "/"
	if c.clusterScoped {
		return prefix
	}
	return prefix + c.namespace + "/"
}
