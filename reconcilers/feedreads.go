package reconcilers

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/records"
)

// Scan implements ledger.Source.
func (f *Feed) Scan(ctx context.Context, name, namespace string, visit func(ledger.Claim)) error {
	k, err := f.kind(name)
	if err != nil {
		return err
	}
	all, _, err := f.list(ctx, k, client.InNamespace(namespace))
	if err != nil {
		return ignoreAbsent(err)
	}
	for _, o := range all {
		visit(k.claim(o))
	}
	return nil
}

// Read implements ledger.Source.
func (f *Feed) Read(ctx context.Context, key ledger.Key) (c ledger.Claim, there bool, err error) {
	k, err := f.kind(key.Kind)
	if err != nil {
		return ledger.Claim{}, false, err
	}
	o := k.empty()
	err = f.live.Get(ctx, request(key).NamespacedName, o)
	var answer apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Name == key.Name {
		return ledger.Claim{}, false, nil // any other 404 says that the kind is not served
	}
	if err != nil {
		return ledger.Claim{}, false, err
	}
	return k.claim(o), true, nil
}

// Touch implements ledger.Source.
func (f *Feed) Touch(ctx context.Context, key ledger.Key, uid string) (uint64, error) {
	k, err := f.kind(key.Kind)
	if err != nil {
		return 0, err
	}
	return k.touch(ctx, key, uid)
}

// Keep has the feed read the records of a store.
func (f *Feed) Keep(store *records.Store) { f.records = store }

// Records implements ledger.Source. It deletes those of pools that are gone.
func (f *Feed) Records(ctx context.Context) ([]ledger.Record, error) {
	all, err := f.records.All(ctx)
	if err != nil {
		return nil, err
	}
	var kept []ledger.Record
	for _, r := range all {
		if k := f.kinds[r.Pool.Kind]; k == nil || k.stores(r) {
			kept = append(kept, r)
			continue
		}
		there, err := poolExists(ctx, f.live, r.Pool, r.UID)
		if err == nil && !there && r.Fault == nil {
			_, err = f.records.Save(ctx, r, nil)
		}
		if there || err != nil { // a record that is kept too long keeps nothing, as no pool has its UID
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// stores tells whether the local copy has the pool of a record.
func (k *kind) stores(r ledger.Record) bool {
	name := r.Pool.Name
	if r.Pool.Namespace != "" {
		name = r.Pool.Namespace + "/" + name
	}
	o, there, err := k.store.GetByKey(name)
	return err == nil && there && string(o.(client.Object).GetUID()) == r.UID
}
