// Package overtaken tells a write that came too late from one that is refused with the same codes.
package overtaken

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ignore drops the error of a write to an object in this version which a newer one, or the end of the object, got ahead of: the informer brings
// that. A webhook of somebody's may give the same answers, 409 and 404, as long as nobody changes the object: then the API server, which is asked,
// has this very version, no event comes, and the error stays.
func Ignore(ctx context.Context, live client.Reader, o client.Object, err error) error {
	return NewChecker(live).Ignore(ctx, o, err)
}

// Checker is Ignore for writes that are repeated: the API server is asked once per version of an object. A later write that meets the same error on the
// same version is refused as well, or the informer is behind and brings the newer version. It is safe for concurrent use.
type Checker struct {
	live client.Reader

	mu     sync.Mutex
	stored map[types.UID]string // object -> the resourceVersion that the API server had
}

// maxStored bounds the versions that a Checker remembers.
const maxStored = 10_000

// NewChecker makes a Checker that asks the API server through live.
func NewChecker(live client.Reader) *Checker {
	return &Checker{live: live, stored: map[types.UID]string{}}
}

// Ignore is the function Ignore.
func (c *Checker) Ignore(ctx context.Context, o client.Object, err error) error {
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

func (c *Checker) known(o client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	version, known := c.stored[o.GetUID()]
	return known && version == o.GetResourceVersion()
}

func (c *Checker) remember(o client.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stored) >= maxStored {
		clear(c.stored)
	}
	c.stored[o.GetUID()] = o.GetResourceVersion()
}
