package reconcilers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Claims of Metal3 and of Cluster API have their address in an object of its own, made for them when it is known to be theirs alone.
//
//	claim ── answered, confirmed ──▶ address made ──▶ claim's status names it
//	claim ── being deleted, nobody else's finalizer left ──▶ address deleted ──▶ gone ──▶ rest recorded ──▶ claim's finalizer off ──▶ gone
//
// No claim goes while an address of its own may still be on its way into the API server, or from there to the informers, which may be behind those of
// the claims: nobody would ever ask for that one.
// Somebody else may make such an object, before its claim or after: it is the claim's then, and gets its owners and finalizer, as does an object that a
// restore brought without them. One whose claim is gone, or has another pool or address, and which nobody can be expected to restore any more, goes after
// orphanAge.

// DefaultOrphanAge is for how long an address is without its claim, as the leader of this term has observed it, before it is deleted. A restore brings the
// one soon after the other. When the API server says that they were made does not count: its clock may be another.
const DefaultOrphanAge = 10 * time.Minute

// orphans are addresses without their claim. The zero value is ready.
type orphans struct {
	mu   sync.Mutex
	term time.Time // in which they were observed: what another leader saw is not known
	of   map[types.NamespacedName]map[types.UID]time.Time
}

// since returns when an address was first observed without its claim.
func (o *orphans) since(term time.Time, claim types.NamespacedName, address types.UID, now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil || !o.term.Equal(term) {
		o.term, o.of = term, map[types.NamespacedName]map[types.UID]time.Time{}
	}
	if o.of[claim] == nil {
		o.of[claim] = map[types.UID]time.Time{}
	}
	first, known := o.of[claim][address]
	if !known {
		first = now
		o.of[claim][address] = now
	}
	return first
}

// retain forgets the addresses for a claim but these, which are still without it.
func (o *orphans) retain(claim types.NamespacedName, addresses []client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.of[claim], func(address types.UID, _ time.Time) bool {
		return !slices.ContainsFunc(addresses, func(a client.Object) bool { return a.GetUID() == address })
	})
	if len(o.of[claim]) == 0 {
		delete(o.of, claim)
	}
}

// addressed is the part of an API whose claims, T, have their answer in the annotation ipAddress, and then in an address object, A.
type addressed[T, A client.Object] struct {
	kind    *addressKind
	fresh   func() T
	claimOf func(T) ledger.Claim
	// named is the name of the address that the status of a claim names, "" for none.
	named func(T) string
	// want is the object for the address that a claim has. Without the pool there is none: that is a NotFound error.
	want func(context.Context, *desk, T) (A, error)
	// finalizers are those of a claim and of its address; ours all that we give addresses.
	finalizers func(T) (claim, address string)
	ours       []string
	owner      string // kind of the claims, as owner references name it
}

func (a addressed[T, A]) empty() T { return a.fresh() }

func (a addressed[T, A]) claim(c T) ledger.Claim { return a.claimOf(c) }

func (addressed[T, A]) unreadable(c T) error {
	if _, err := metal3.Asked(c); err != nil {
		return metal3.FailureUnreadable(c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	}
	return nil
}

func (a addressed[T, A]) held(c T) bool { return len(a.claimOf(c).Ranges) > 0 }

// vouched goes by the address that the status names, which somebody uses, rather than by an annotation that was written later: the existing provider
// did not look at that.
func (a addressed[T, A]) vouched(ctx context.Context, d *desk, c T) (others []allocator.Range, yes bool, err error) {
	if a.named(c) == "" {
		return nil, false, nil
	}
	all, err := a.addresses(ctx, d, client.ObjectKeyFromObject(c))
	for _, o := range all {
		if held := a.kind.claim(o); o.GetName() == a.named(c) && held.Pool == a.claimOf(c).Pool && len(held.Ranges) == 1 {
			others = held.Ranges
		}
	}
	return others, true, err
}

func (addressed[T, A]) fill(c T, ranges []allocator.Range) {
	annotations := c.GetAnnotations()
	if len(ranges) == 0 {
		return
	}
	if named, err := metal3.Asked(c); err == nil && named == ranges[0].First {
		return // in its author's words
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationIPAddress] = ranges[0].First.String()
	c.SetAnnotations(annotations)
}

// complete gives a claim the label of its routing domain and its finalizer, and lets it be moved.
func (a addressed[T, A]) complete(c T, space string) bool {
	lacked := unblock(c)
	labels := c.GetLabels()
	if _, has := labels[butlerv1.LabelRoutingDomain]; !has && space != "" {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[butlerv1.LabelRoutingDomain] = space
		c.SetLabels(labels)
		lacked = true
	}
	finalizer, _ := a.finalizers(c)
	return controllerutil.AddFinalizer(c, finalizer) || lacked
}

func (a addressed[T, A]) touch(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (uint64, error) {
	return touchWith(ctx, c, live, k, uid, a.fresh())
}

// isFor tells whether an address object holds its address for a claim. One of another pool is there for another claim of that name.
func (a addressed[T, A]) isFor(c T, held ledger.Claim) bool {
	claim := a.claimOf(c)
	return held.For == claim.Key && held.Pool == claim.Pool
}

// addresses lists the objects that hold an address for a claim, as the informers have them: copy before changing.
func (a addressed[T, A]) addresses(ctx context.Context, d *desk, claim types.NamespacedName) ([]A, error) {
	return listIndexed[A](ctx, d.client, a.kind.emptyList(), metal3.IndexFor, claim.Namespace, claim.Name)
}

// heldFor is what a claim wants by an address object of its pool; false where there is none.
func (a addressed[T, A]) heldFor(ctx context.Context, d *desk, c T) ([]ledger.Want, bool, error) {
	all, err := a.addresses(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return nil, false, err
	}
	objects := make([]ledger.Claim, len(all))
	for i, o := range all {
		objects[i] = a.kind.claim(o)
	}
	asked, _ := metal3.Asked(c)
	held, has := metal3.HeldFor(a.claimOf(c).Pool, asked, objects...)
	if !has {
		return nil, false, nil
	}
	return metal3.WantOfStandIn(held), true, nil
}

// attempt is the last try to make an address for a claim, from its beginning.
type attempt struct {
	claim  types.UID
	name   string // of the address
	began  time.Time
	stored bool // else nobody knows
}

// attempts are those whose addresses the informers do not show yet. The zero value is ready.
type attempts struct {
	of sync.Map // claim's name -> attempt
	// What live reads have shown of claims in the present term, so that an attempt that is repeated needs no read: that the claim is there, and that
	// nothing of its own is left. In a term nothing but this replica ends the first, or the second.
	there, left sync.Map // claim's name -> proof
}

type proof struct {
	claim types.UID
	term  time.Time
}

// proven tells whether a live read of this term has shown something of a claim before.
func proven(proofs *sync.Map, c client.Object, term time.Time) bool {
	last, known := proofs.Load(client.ObjectKeyFromObject(c))
	return known && last == proof{c.GetUID(), term}
}

func prove(proofs *sync.Map, c client.Object, term time.Time) {
	proofs.Store(client.ObjectKeyFromObject(c), proof{c.GetUID(), term})
}

func (a *attempts) last(c client.Object) attempt {
	if last, ok := a.of.Load(client.ObjectKeyFromObject(c)); ok && last.(attempt).claim == c.GetUID() {
		return last.(attempt)
	}
	return attempt{}
}

func (a *attempts) forget(claim types.NamespacedName) {
	for _, m := range []*sync.Map{&a.of, &a.there, &a.left} {
		m.Delete(claim)
	}
}

// address is the name of the object for the address that a claim has, which is made where there is none. It is "" where that has to wait for the pool,
// or is not to be because the claim goes: either brings the claim back. The error is a later where nothing else would.
func (a addressed[T, A]) address(ctx context.Context, d *desk, c T) (string, error) {
	asked, _ := metal3.Asked(c)
	isIt := func(o A) bool {
		held := a.kind.claim(o)
		return a.isFor(c, held) && len(held.Ranges) == 1 && held.Ranges[0].First == asked
	}
	all, err := a.addresses(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(all, isIt); i >= 0 {
		d.made.forget(client.ObjectKeyFromObject(c))
		return all[i].GetName(), a.own(ctx, d, c, all[i])
	}
	want, err := a.want(ctx, d, c)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return a.make(ctx, d, c, want, isIt)
}

// finalizerAgain is how long an owned address object stays without the finalizer that was taken off: who does that may be about to delete the object.
const finalizerAgain = time.Second

// own has an address object say whose it is, and keeps it from being deleted while the claim is there, also where somebody else made it, a restore brought it
// without either, or it was made for another claim of that name. Where that is refused it is the claim's all the same.
func (a addressed[T, A]) own(ctx context.Context, d *desk, c T, stored A) error {
	if stored.GetDeletionTimestamp() != nil {
		return nil
	}
	_, finalizer := a.finalizers(c)
	isOwned := slices.ContainsFunc(stored.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == c.GetUID() })
	var unmarked []client.Object
	if isOwned && !controllerutil.ContainsFinalizer(stored, finalizer) {
		unmarked = append(unmarked, stored)
	}
	since := d.unmarked.observe(client.ObjectKeyFromObject(c), d.now(), unmarked)
	if isOwned && len(unmarked) == 0 {
		return nil
	}
	if left := since[stored.GetUID()].Add(finalizerAgain).Sub(d.now()); isOwned && left > 0 {
		return later(left)
	}
	want, err := a.want(ctx, d, c)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	o := copied(stored)
	others := slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), func(r metav1.OwnerReference) bool {
		return slices.ContainsFunc(want.GetOwnerReferences(), func(w metav1.OwnerReference) bool { return w.Kind == r.Kind })
	})
	o.SetOwnerReferences(append(others, want.GetOwnerReferences()...))
	controllerutil.AddFinalizer(o, finalizer)
	if err := d.overtaken.Ignore(ctx, stored, d.save(ctx, stored, o)); !refused(err) {
		return err
	}
	return nil
}

// make makes the address object of a claim. Where another object has that name, which may stand for several addresses, it gets a longer one.
//
// It is made for no claim that is going. Each kind has an informer of its own, and that of a replica which has just taken over may show the end of an
// address before that of its claim: whether a claim is still there that had one before, or that the last holder of the journal knew, the API server
// says.
//
// Nothing keeps an address out of the API server that is sent and arrives much later, or by a replica that was frozen: the journal's next holder may
// have made it, given it back and let the claim go by then. Only who sent it knows, and takes it back.
func (a addressed[T, A]) make(ctx context.Context, d *desk, c T, want A, isIt func(A) bool) (string, error) {
	if last := d.made.last(c); last.stored {
		if err := a.awaitShown(ctx, d, c, last); err != nil {
			return "", err
		}
	}
	term, err := d.ledger.Term()
	if doubt := (*ledger.NotServingError)(nil); errors.As(err, &doubt) {
		return "", later(doubt.RetryAfter) // zero where another replica goes on with it
	}
	if err != nil {
		return "", err
	}
	if (a.named(c) != "" || d.ledger.Landing(string(c.GetUID()), time.Time{}) > 0) && !proven(&d.made.there, c, term) {
		if there, err := a.there(ctx, d, c); err != nil || !there {
			return "", err // its end comes by itself
		}
		prove(&d.made.there, c, term)
	}
	try := attempt{claim: c.GetUID(), began: d.now()}
	for _, suffix := range []string{"", "-" + digest(c.GetNamespace()+"/"+c.GetName())} {
		o := copied(want)
		o.SetName(want.GetName() + suffix)
		if d.spacing.Failures(client.ObjectKeyFromObject(c)) > 0 && a.isTaken(ctx, d, o, isIt) {
			err = apierrors.NewAlreadyExists(schema.ParseGroupResource(a.kind.kind), o.GetName())
			continue
		}
		err = d.client.Create(ctx, o)
		try.name = o.GetName()
		if try.stored = err == nil; try.stored || undecided(err) {
			d.made.of.Store(client.ObjectKeyFromObject(c), try)
		}
		if err == nil {
			if now, err := d.ledger.Term(); err != nil || !now.Equal(term) {
				return "", a.unlessGone(ctx, d, c, o)
			}
			return o.GetName(), nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", unmade(err)
		}
		if err := d.live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return "", err
		}
		if isIt(o) {
			return o.GetName(), nil
		}
	}
	return "", unmade(err)
}

// isTaken tells whether the informers show another object of a name.
func (a addressed[T, A]) isTaken(ctx context.Context, d *desk, o A, isIt func(A) bool) bool {
	shown := a.kind.empty()
	err := d.client.Get(ctx, client.ObjectKeyFromObject(o), shown, client.UnsafeDisableDeepCopy)
	return err == nil && !isIt(shown.(A))
}

// awaitShown has an address that was made looked for until the informers show it. They never do where it is gone before they get to it: then nothing
// else would bring its claim back, and it is to be made anew.
func (a addressed[T, A]) awaitShown(ctx context.Context, d *desk, c T, made attempt) error {
	if rest := made.began.Add(lookForAddress).Sub(d.now()); rest > 0 {
		return later(min(rest, lookForAddress))
	}
	stored, err := a.stored(ctx, d, c, made.name)
	if err != nil {
		return err
	}
	if stored != nil {
		return later(lookForAddress)
	}
	d.made.forget(client.ObjectKeyFromObject(c))
	return nil
}

// there asks the API server whether a claim is still there, and to stay.
func (a addressed[T, A]) there(ctx context.Context, d *desk, c T) (bool, error) {
	now := a.fresh()
	err := d.live.Get(ctx, client.ObjectKeyFromObject(c), now)
	return err == nil && now.GetUID() == c.GetUID() && now.GetDeletionTimestamp() == nil, client.IgnoreNotFound(err)
}

// unlessGone keeps an address that this replica has made, unless its claim is gone or going.
func (a addressed[T, A]) unlessGone(ctx context.Context, d *desk, c T, made A) error {
	there, err := a.there(ctx, d, c)
	if err != nil {
		return err
	}
	if there {
		return later(lookForAddress)
	}
	_, finalizer := a.finalizers(c)
	return d.deleteAddress(ctx, made, finalizer)
}

// readPool reads the pool of a claim: copy before changing, as its status may list every address that it has given. The informers may show the
// claim first: then nothing of theirs would bring it back.
func (d *desk) readPool(ctx context.Context, k ledger.Key, into client.Object) error {
	err := d.client.Get(ctx, request(k).NamespacedName, into, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = d.live.Get(ctx, request(k).NamespacedName, into)
	}
	return err
}

// undecided tells whether a write that failed may be stored all the same, now or later.
func undecided(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code >= http.StatusInternalServerError
}

// unmade is a *metal3.AddressError where the API server will not have an address object made as things are: a policy, a quota or a missing right stands
// against it, or other objects have its names. Any other error comes back as it is: creates that race for a quota are told of a conflict, and a claim
// that says it has failed may be given up for good by whoever asked for it.
func unmade(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // its claims go as well
		return err
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) {
		return &metal3.AddressError{Verb: "create", Err: err}
	}
	return err
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:8]
}
