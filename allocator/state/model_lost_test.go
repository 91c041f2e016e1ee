package state

// Lost objects: some of a claim and its address objects are deleted and recreated from a
// backup, in any order, with the tokens in the backup. Forced deletion: a user removes
// the finalizer of a claim, and the claim is deleted while the create of its address
// object is in flight.

// loseObjects backs up a claim and its address objects, and deletes some or all of them.
func (w *world) loseObjects(o *object) {
	if o.Pool != modelPool {
		return
	}
	w.lostObjects = append(w.addressObjectsOf(o.Key), o)
	for _, lost := range w.lostObjects {
		if w.rng.IntN(3) > 0 {
			w.remove(lost)
		}
	}
}

// recreateLost recreates the lost objects whose names are not stored, in random order.
func (w *world) recreateLost() {
	w.rng.Shuffle(len(w.lostObjects), func(i, j int) { w.lostObjects[i], w.lostObjects[j] = w.lostObjects[j], w.lostObjects[i] })
	for _, saved := range w.lostObjects {
		if w.objects[saved.Key.Name] == nil {
			w.sendCreate(&createRequest{name: saved.Key.Name, pool: modelPool, exact: saved.Ranges[0], ownerClaim: saved.OwnerClaim, broughtToken: saved.Token, fromBackup: true})
		}
	}
	w.lostObjects = nil
}

// removeFinalizer deletes a claim while the create of its address object is in flight,
// and reports whether there was such a claim. The address object may be stored later.
func (w *world) removeFinalizer() bool {
	for _, c := range w.creates {
		if o := w.objects[c.ownerClaim.Name]; c.byLeader && !c.over && o != nil {
			c.outlivesClaim = true
			w.remove(o)
			w.tally.finalizersRemoved++
			return true
		}
	}
	return false
}
