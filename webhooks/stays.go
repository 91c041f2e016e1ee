package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// takesNothing refuses an update of a claim that is being deleted, or taken to another cluster, by which it would have what it had not: nobody
// grants it that. What it gives up is its own affair.
func (k *claims[T]) takesNothing(old, c T) error {
	was, is := k.claim(old), k.claim(c)
	for _, r := range is.Ranges {
		if !slices.Contains(was.Ranges, r) {
			return invalid{field.Forbidden(k.subject().exact(r), fmt.Sprintf(
				"%s cannot be asked for by what is being deleted, or moved to another cluster: create another object", r))}
		}
	}
	if was.Token != is.Token && !is.Token.IsZero() {
		return invalid{field.Forbidden(field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationGrant), "is the allocator's: leave it as it is, or out")}
	}
	if is.Pool != was.Pool && is.Pool != (ledger.Key{}) || is.For != was.For {
		return invalid{field.Forbidden(field.NewPath("spec"), "what is being deleted, or moved to another cluster, stays with its pool and its claim: create another object")}
	}
	return nil
}

// staysInSpace has a claim of no pool, that holds addresses, say itself which routing domain they are of, as nothing else does: it cannot change that, and
// one that leaves its pool must say it.
func (k *claims[T]) staysInSpace(ctx context.Context, old, c T) error {
	was, is := k.claim(old), k.claim(c)
	label := field.NewPath("metadata", "labels").Key(v1alpha1.LabelRoutingDomain)
	switch {
	case len(was.Ranges) == 0 || is.Pool != (ledger.Key{}):
		return nil
	case was.Pool == (ledger.Key{}):
		if is.Space != was.Space {
			return invalid{field.Forbidden(label, fmt.Sprintf("cannot be changed while addresses are held without a pool: they are of routing domain %q: create another %s and delete this one",
				was.Space, k.subject().kind.Kind))}
		}
		return nil
	}
	pool, err := k.pool(ctx, was.Pool, k.cached)
	missing := (*ledger.NoPoolError)(nil)
	if errors.As(err, &missing) {
		pool, err = k.pool(ctx, was.Pool, k.live)
	}
	if errors.As(err, &missing) { // its label told already
		pool.Space, err = was.Space, nil
	}
	if err == nil && is.Space != pool.Space {
		err = invalid{field.Invalid(label, is.Space, fmt.Sprintf(
			"must be %q, the routing domain of pool %s, which the addresses are of, to leave that pool: correct the label in the same update", pool.Space, was.Pool))}
	}
	return err
}
