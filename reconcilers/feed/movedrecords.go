package feed

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/movedrecords"
)

// MovedRecords implements ledger.Source. It deletes the moved records of pools that are
// gone.
func (f *Feed) MovedRecords(ctx context.Context) ([]ledger.MovedRecord, error) {
	all, err := f.movedRecords.ReadAll(ctx)
	if err != nil {
		return nil, err
	}
	var kept []ledger.MovedRecord
	for _, record := range all {
		pools := f.resources[record.Pool.Resource]
		if pools == nil || pools.claim != nil || pools.hasPoolOf(record) {
			kept = append(kept, record)
			continue
		}
		stored, err := f.isPoolStored(ctx, pools, record)
		if err == nil && !stored {
			err = f.movedRecords.DeletePool(ctx, record.UID)
		}
		if stored || err != nil { // a record kept too long keeps no range from being allocated, since no pool has its UID
			kept = append(kept, record)
		}
	}
	return kept, nil
}

// SetMovedRecords sets the store of the moved records.
func (f *Feed) SetMovedRecords(store *movedrecords.Store) { f.movedRecords = store }

// isPoolStored reads from the API server whether the pool of a moved record is stored.
func (f *Feed) isPoolStored(ctx context.Context, pools *resource, record ledger.MovedRecord) (bool, error) {
	o := pools.empty()
	if err := f.live.Get(ctx, Request(record.Pool).NamespacedName, o); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return string(o.GetUID()) == record.UID, nil
}

// hasPoolOf reports whether the informer's store has the pool of a moved record.
func (r *resource) hasPoolOf(record ledger.MovedRecord) bool {
	name := record.Pool.Name
	if record.Pool.Namespace != "" {
		name = record.Pool.Namespace + "/" + name
	}
	o, stored, err := r.store.GetByKey(name)
	return err == nil && stored && string(o.(client.Object).GetUID()) == record.UID
}
