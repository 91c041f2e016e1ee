package ledger

// This part of the model loses claims and what stands in for them, and restores them from a backup: in any order, some of them, with the tokens that they
// had. And claims go without waiting for what is under way for them: a person removed their finalizer.

// lose saves a claim and what stands in for it, and removes all or some of them.
func (w *world) lose(o *object) {
	if o.Pool != modelPool {
		return
	}
	w.saved = append(w.standInsOf(o.Key), o)
	for _, lost := range w.saved {
		if w.rng.IntN(3) > 0 {
			w.remove(lost)
		}
	}
}

// restoreClaim creates what was saved and is not there.
func (w *world) restoreClaim() {
	w.rng.Shuffle(len(w.saved), func(i, j int) { w.saved[i], w.saved[j] = w.saved[j], w.saved[i] })
	for _, saved := range w.saved {
		if w.objects[saved.Key.Name] == nil {
			w.create(&create{name: saved.Key.Name, pool: modelPool, exact: saved.Ranges[0], standsFor: saved.For, brought: saved.Token, saved: true})
		}
	}
	w.saved = nil
}

// removeFinalizer has a claim go while its stand-in is on its way, which may be stored later; false where none is.
func (w *world) removeFinalizer() bool {
	for _, c := range w.creates {
		if o := w.objects[c.standsFor.Name]; c.ours && !c.over && o != nil {
			c.late = true
			w.remove(o)
			w.tally.forced++
			return true
		}
	}
	return false
}
