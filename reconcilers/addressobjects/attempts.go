package addressobjects

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createAttempt is the last attempt to create the address object of a claim, from its
// beginning.
type createAttempt struct {
	claim  types.UID
	name   string // of the address object
	began  time.Time
	stored bool // false if the outcome of the create is unknown
}

// createAttempts records attempts whose address objects the informers do not show yet.
// The zero value is ready.
type createAttempts struct {
	of sync.Map // claim's name -> attempt
	// Facts that the present term has shown, so that a repeated attempt needs no live
	// read:
	//
	//	claimStored   the API server has shown the claim stored and not being deleted. Its deletion is a later event, which this replica's informers deliver
	//	readyToEnd    the claim is being deleted, no address object of the claim is stored or can still be stored, and the cooldown of the claim is recorded,
	//	              or its record is overdue. During a term only creates of this replica could end the fact, and none follows for a claim that is being
	//	              deleted
	claimStored, readyToEnd sync.Map // claim's name -> proof
}

type proof struct {
	claim types.UID
	term  time.Time
}

// isProven reports whether this term has shown a fact about a claim.
func isProven(proofs *sync.Map, c client.Object, term time.Time) bool {
	last, known := proofs.Load(client.ObjectKeyFromObject(c))
	return known && last == proof{c.GetUID(), term}
}

// recordProof records that this term has shown a fact about a claim.
func recordProof(proofs *sync.Map, c client.Object, term time.Time) {
	proofs.Store(client.ObjectKeyFromObject(c), proof{c.GetUID(), term})
}

func (a *createAttempts) lastAttempt(c client.Object) createAttempt {
	if last, ok := a.of.Load(client.ObjectKeyFromObject(c)); ok && last.(createAttempt).claim == c.GetUID() {
		return last.(createAttempt)
	}
	return createAttempt{}
}

func (a *createAttempts) forget(claim types.NamespacedName) {
	for _, m := range []*sync.Map{&a.of, &a.claimStored, &a.readyToEnd} {
		m.Delete(claim)
	}
}
