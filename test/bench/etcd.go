package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

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

// changed counts the keys that begin so and were written after a revision, and gives the
// present one.
func changed(ctx context.Context, e *clientv3.Client, prefix string, since int64) (n int, now int64, err error) {
	answer, err := e.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(since+1))
	if err != nil {
		return 0, 0, err
	}
	return len(answer.Kvs), answer.Header.Revision, nil
}

// object is one as far as it matters here.
type object struct {
	Metadata struct{ Name string }
	Spec     struct{ Claim, ClaimRef struct{ Name string } } // of an IPAddress of Metal3, of Cluster API
	Status   struct {
		Address    *struct{ Name string } // of an IPClaim, which has no conditions
		AddressRef struct{ Name string }  // of an IPAddressClaim, to which the in-cluster provider gives no condition
		Conditions []struct{ Type, Status string }
	}
}

func (o *object) ready() bool {
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" || c.Type == "Bound" {
			return c.Status == "True"
		}
	}
	return o.Status.Address != nil || o.Status.AddressRef.Name != ""
}

func (o *object) name() string { return o.Metadata.Name }

// heldFor is the name of the claim that an IPAddress is for.
func (o *object) heldFor() string { return o.Spec.Claim.Name + o.Spec.ClaimRef.Name }

// follower sees what is written under a prefix. It looks where objects are stored: a
// watch on the API server, which has to put every object into JSON once more for it,
// would take a fifth of what is measured away from it.
type follower struct {
	etcd   *clientv3.Client
	prefix string
	from   int64 // revision
}

// following misses nothing that is written after it returns.
func (b *bench) following(ctx context.Context, prefix string) (follower, error) {
	now, err := b.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return follower{}, err
	}
	return follower{b.etcd, prefix, now.Header.Revision + 1}, nil
}

// until hands every object that is written to see, and of one that is deleted its name
// alone, until that has seen enough.
func (f follower) until(ctx context.Context, see func(o *object, deleted bool) (enough bool)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for changes := range f.etcd.Watch(ctx, f.prefix, clientv3.WithPrefix(), clientv3.WithRev(f.from)) {
		for _, e := range changes.Events {
			var o object
			deleted := e.Type == clientv3.EventTypeDelete
			if deleted {
				o.Metadata.Name = path.Base(string(e.Kv.Key))
			} else if err := json.Unmarshal(e.Kv.Value, &o); err != nil {
				return err
			}
			if see(&o, deleted) {
				return nil
			}
		}
	}
	return fmt.Errorf("changes under %s: %w", f.prefix, cmp.Or(context.Cause(ctx), errors.New("etcd has ended the watch")))
}

// awaitReady returns when all objects of a collection, n of them, are Ready.
func (c *collection) awaitReady(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ready := make(map[string]bool, n)
	see := func(o *object, deleted bool) bool {
		if !deleted && o.ready() {
			ready[o.Metadata.Name] = true
		}
		return len(ready) == n
	}
	stored, err := c.etcd.Get(ctx, c.storage(), clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range stored.Kvs {
		var o object
		if err := json.Unmarshal(kv.Value, &o); err != nil {
			return err
		}
		if see(&o, false) {
			return nil
		}
	}
	if err := (follower{c.etcd, c.storage(), stored.Header.Revision + 1}).until(ctx, see); err != nil {
		return fmt.Errorf("%d of %d objects are Ready: %w", len(ready), n, err)
	}
	return nil
}

// storage is where the API server keeps the objects of a collection, as far as their
// resource is not its own.
func (c *collection) storage() string {
	if c.clusterScoped {
		return "/registry/" + c.group() + "/" + c.resource + "/"
	}
	return c.storageOf(c.resource)
}

// storageOf is where it keeps those of another resource of the same API and namespace.
func (c *collection) storageOf(resource string) string {
	return "/registry/" + c.group() + "/" + resource + "/" + c.namespace + "/"
}
