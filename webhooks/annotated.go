package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// annotated is the part of an adapter whose claims have their answer in the annotation ipAddress. One that asks for any address is stored whether or
// not there is one, as its clients expect; one that names its address is refused where it cannot have that.
type annotated[T client.Object] struct {
	cached   client.Reader
	clusters metal3.Clusters
}

func (annotated[T]) answered(c T) bool {
	a, _ := metal3.Asked(c)
	return a.IsValid()
}

func (annotated[T]) unanswered(c T) T {
	c = c.DeepCopyObject().(T)
	annotations := c.GetAnnotations()
	for _, key := range []string{v1alpha1.AnnotationIPAddress, butlerv1.AnnotationGrant, butlerv1.AnnotationOrigin} {
		delete(annotations, key)
	}
	c.SetAnnotations(annotations)
	return c
}

// moves is true where nobody has answered what the stored claim asks for.
func (annotated[T]) moves(old, c T) bool {
	was, _ := metal3.Asked(old)
	is, _ := metal3.Asked(c)
	return !metal3.Answered(old) && is.IsValid() && is != was
}

func (annotated[T]) fill(p *patch, c T, ranges []allocator.Range) (warnings []string) {
	if a, _ := metal3.Asked(c); !a.IsValid() {
		setAnnotations(p, c, map[string]string{v1alpha1.AnnotationIPAddress: ranges[0].First.String()})
	}
	return nil
}

func (annotated[T]) restore(p *patch, stored, updated T) {
	setAnnotations(p, updated, absent(updated, stored, v1alpha1.AnnotationIPAddress))
}

// setAnnotations writes into the patch and the object.
func setAnnotations(p *patch, o metav1.Object, values map[string]string) {
	p.annotations(o, values)
	all := o.GetAnnotations()
	for key, value := range values {
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
	}
	o.SetAnnotations(all)
}

// unmet has a claim wait whose pool cannot give it anything now, unless it names its address: nobody knows whether it may have that.
func (annotated[T]) unmet(c T, err error) (hint string, refusal error) {
	var (
		wait     *metal3.WaitError
		deleting *ledger.PoolDeletingError
		paused   *ledger.PoolPausedError
		faulty   *ledger.FaultyPoolError
		held     *ledger.HeldError
	)
	named, _ := metal3.Asked(c)
	switch {
	case errors.As(err, &wait), errors.As(err, &paused), (errors.As(err, &deleting) || errors.As(err, &faulty)) && !named.IsValid():
		return err.Error() + ": the claim is stored without an address", nil
	case errors.Is(err, allocator.ErrExhausted):
		return fmt.Sprintf("%s: %v: the claim is stored without an address and gets one as soon as there is room", metal3.FailureExhausted, err), nil
	case errors.As(err, &held) && !named.IsValid(): // what its pool keeps for it, or an address object holds
		return fmt.Sprintf("%s: an address is kept for it, but %s: the claim is stored without an address and gets that one when it is free",
			metal3.FailureHeld, held.SeenFrom(c.GetNamespace())), nil
	case errors.As(err, &held):
		return "", fmt.Errorf("%w: %w", metal3.FailureHeld, err)
	}
	return "", err
}

// wantsOfIPPool is what a claim asks of an IPPool. While that waits nobody gets an address who does not name one.
func (a annotated[T]) wantsOfIPPool(ctx context.Context, c T, pool ledger.Key, pools client.Reader) ([]ledger.Want, error) {
	p, err := readPool(ctx, pool, pools, &v1alpha1.IPPool{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	want, err := metal3.WantOfClaim(p, c)
	asked, _ := metal3.Asked(c)
	if wait := metal3.WaitPool(p, a.clusters); wait != nil && (!asked.IsValid() && err == nil || errors.Is(err, metal3.FailureHeld)) {
		return nil, wait // clusterctl creates the address object, by which the claim has what is kept, after the claim and before it unpauses the Cluster
	}
	if err != nil {
		return nil, err
	}
	return want.Ledger(), nil
}

// keptForAnother says that an IPPool keeps another address for a claim than it got while it had no name. One that named its address is
// most likely back under the name that was generated for it once, and keeps what it names.
func keptForAnother(ctx context.Context, c metav1.Object, pool ledger.Key, pools client.Reader) error {
	if c.GetAnnotations()[butlerv1.AnnotationOrigin] == butlerv1.OriginPinned {
		return nil
	}
	p, err := readPool(ctx, pool, pools, &v1alpha1.IPPool{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil
	}
	has, _ := metal3.Asked(c)
	if want, err := metal3.WantOf(p, c.GetName(), ""); err == nil && want.Kept && want.Address != has {
		return &ledger.NotServingError{Here: true, RetryAfter: time.Second,
			Reason: fmt.Sprintf("pool %s keeps %s for a claim of the name that was generated, %s", pool, want.Address, c.GetName())}
	}
	return nil
}

// completeWith writes the label of a routing domain and a finalizer.
func completeWith(p *patch, c metav1.Object, space, finalizer string) {
	p.finalizer(c, finalizer)
	if _, has := c.GetLabels()[butlerv1.LabelRoutingDomain]; !has && space != "" {
		p.entries("labels", c.GetLabels(), map[string]string{butlerv1.LabelRoutingDomain: space})
	}
}

// standIn is the part of an adapter whose objects hold an address for a claim, and ask for nothing.
type standIn[T metav1.Object] struct{}

func (standIn[T]) ours(T) bool { return true }

func (standIn[T]) renamed(context.Context, T, client.Reader) error { return nil }

func (standIn[T]) answered(T) bool { return true }

func (standIn[T]) failed(T) bool { return false }

func (standIn[T]) unanswered(o T) T { return o }

func (standIn[T]) follow(*patch, T, T) {}

func (standIn[T]) moves(_, _ T) bool { return false }

func (standIn[T]) fill(*patch, T, []allocator.Range) (warnings []string) { return nil }

func (standIn[T]) restore(*patch, T, T) {}

func (standIn[T]) complete(*patch, T, string) {}

// unmetBy is what becomes of such an object: that its claim has the address is as it should be, and what its pool does not offer it holds all the same.
func unmetBy(held ledger.Claim, err error) (hint string, refusal error) {
	var (
		by       *ledger.HeldError
		outside  *allocator.OutsideError
		deleting *ledger.PoolDeletingError
		faulty   *ledger.FaultyPoolError
	)
	switch {
	case errors.As(err, &by) && (by.Moved || by.Holder == held.For && (by.Pool == held.Pool || by.Pool == (ledger.Key{}))):
		return "", nil
	case errors.As(err, &by):
		return "", fmt.Errorf("%w: %w", metal3.FailureHeld, err)
	case errors.As(err, &outside), errors.As(err, &deleting), errors.As(err, &faulty):
		return err.Error() + ": the address is held all the same", nil
	}
	return "", err
}

// exactAddress is where an object of one address says it.
func exactAddress(allocator.Range) *field.Path { return field.NewPath("spec", "address") }
