package write

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IgnoreStale drops the error of a write to an object if a newer version, or the end of
// the object, made it fail: the informer delivers that. A foreign webhook can deny a
// write with the same codes, 409 and 404. IgnoreStale therefore reads the object from the
// API server: if this very version is stored, no event will come, and the error stays.
func IgnoreStale(ctx context.Context, live client.Reader, o client.Object, err error) error {
	return NewStaleChecker(live).IgnoreStale(ctx, o, err)
}

// StaleChecker is IgnoreStale for repeated writes: it reads each version of an object
// once. A later write with the same error on the same version was denied as well, or the
// informer is behind and delivers the newer version. It is safe for concurrent use.
type StaleChecker struct {
	live client.Reader

	mu     sync.Mutex
	stored map[types.UID]string // object -> the resourceVersion that the API server had
}

// maxStored bounds the versions that a Checker remembers.
const maxStored = 10_000

// NewStaleChecker returns a checker that reads from the API server.
func NewStaleChecker(live client.Reader) *StaleChecker {
	return &StaleChecker{live: live, stored: map[types.UID]string{}}
}

// IgnoreStale is the function IgnoreStale, with at most one read for each version of an
// object.
func (c *StaleChecker) IgnoreStale(ctx context.Context, o client.Object, err error) error {
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) || c.known(o) {
		return err
	}
	stored := o.DeepCopyObject().(client.Object)
	switch readErr := c.live.Get(ctx, client.ObjectKeyFromObject(o), stored); {
	case apierrors.IsNotFound(readErr):
		return nil
	case readErr != nil:
		return readErr
	case stored.GetUID() != o.GetUID() || stored.GetResourceVersion() != o.GetResourceVersion():
		return nil
	}
	c.remember(o)
	return err
}

func (c *StaleChecker) known(o client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, known := c.stored[o.GetUID()]
	return known && version == o.GetResourceVersion()
}

func (c *StaleChecker) remember(o client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stored) >= maxStored {
		clear(c.stored)
	}
	c.stored[o.GetUID()] = o.GetResourceVersion()
}
