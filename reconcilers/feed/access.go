package feed

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// ReadAccess implements ledger.Source.
func (f *Feed) ReadAccess(name string) (access ledger.ReadAccess) {
	r := f.resources[name]
	if r == nil {
		return access
	}
	if r.readAccess != nil {
		access.Absent, access.Denied = r.readAccess()
	}
	f.denials.Lock()
	defer f.denials.Unlock()
	if access.Denied == nil {
		access.Denied = r.denied
	}
	return access
}

// recordDenied records that a live read of a resource was denied, while the informer of
// the resource may have a running watch. It retries in the background until a read
// succeeds.
func (f *Feed) recordDenied(r *resource, err error) {
	f.denials.Lock()
	defer f.denials.Unlock()
	if r.denied == nil {
		go f.retryDenied(r)
	}
	r.denied = err
}

func (f *Feed) retryDenied(r *resource) {
	readable := func(ctx context.Context) (bool, error) {
		err := f.live.List(ctx, r.newList(), client.Limit(1))
		if err != nil && !isAbsent(err) {
			return false, nil
		}
		f.denials.Lock()
		defer f.denials.Unlock()
		r.denied = nil
		return true, nil
	}
	_ = wait.PollUntilContextCancel(f.ctx, deniedPoll, false, readable) // fails only at the end of the process
}

// deniedPoll is the pause between two reads of a resource that the API server denies.
const deniedPoll = 5 * time.Second

// isAbsent reports whether the API server does not serve a resource.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

func ignoreAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}

// servesNothing reports whether the API server denies reading every served resource.
func (f *Feed) servesNothing() bool {
	for _, name := range f.served {
		if f.ReadAccess(name).Denied == nil {
			return false
		}
	}
	return len(f.served) > 0
}
