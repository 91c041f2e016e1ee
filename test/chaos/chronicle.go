package main

import (
	"fmt"
	"iter"
	"net/netip"
)

// chronicle is what etcd stored: it takes in every version of every claim in the order of
// revisions, and keeps of each object what the verdict needs.
type chronicle struct {
	objects    map[string]*object   // UID -> object, also one that is gone
	live       map[string]*object   // name, which no two kinds share -> object
	of         map[string][]*object // call -> objects that it made
	overlaps   []overlap
	moved      map[netip.Addr]departure // what the IPPool has listed as in another cluster, and nobody brought back
	trespasses []trespass
	partial    []*object // stored at first without their range, their token or their finalizer
	broken     []string
}

// version is one of an object.
type version struct {
	revision  int64
	name, uid string
	call      string // that the object says it is from
	owned     addresses
	whole     bool // all of the answer is there
	waits     bool // it names addresses, or none, and was granted none: no token, and never Ready
	ready     bool
	flagged   bool // AddressConflict
}

// object is one claim from its create to its end.
type object struct {
	name, uid        string
	call             string    // that made it
	created, deleted int64     // revisions; deleted is 0 while it is stored
	last             int64     // revision of its last version
	owned            addresses // none while the claim waits
	ready, flagged   bool      // in its last version
	everFlagged      bool
	readyFirst       bool // Ready before it was ever flagged
}

// overlap is two objects that had an address at the same time, from a revision on.
type overlap struct {
	a, b *object
	from int64
}

func newChronicle() *chronicle {
	return &chronicle{objects: map[string]*object{}, live: map[string]*object{}, of: map[string][]*object{}, moved: map[netip.Addr]departure{}}
}

func (o *object) String() string {
	return fmt.Sprintf("%s (%s, created at revision %d)", o.name, o.owned, o.created)
}

// put takes in a version. before is the revision of the one that it replaces, 0 for a
// create.
func (c *chronicle) put(v version, before int64) error {
	if err := c.follows(v.name, v.revision, before); err != nil {
		return err
	}
	o := c.live[v.name]
	if o == nil {
		o = &object{name: v.name, uid: v.uid, call: v.call, created: v.revision}
		c.objects[o.uid], c.live[o.name], c.of[o.call] = o, o, append(c.of[o.call], o)
		if !v.whole {
			c.partial = append(c.partial, o)
		}
	}
	if v.waits && !o.owned.some() {
		v.owned = addresses{}
	}
	if v.owned != o.owned {
		if o.owned.some() {
			c.blame("%s was moved to %s at revision %d", o, v.owned, v.revision)
		}
		o.owned = v.owned
		c.arrived(o)
		for other := range c.beside(o) {
			c.overlaps = append(c.overlaps, overlap{other, o, v.revision})
		}
	}
	if v.ready && !o.ready {
		for other := range c.beside(o) {
			if other.ready {
				c.blame("%s became Ready at revision %d while %s was", o, v.revision, other)
			}
		}
	}
	o.readyFirst = o.readyFirst || v.ready && !v.flagged && !o.everFlagged
	o.last, o.ready, o.flagged, o.everFlagged = v.revision, v.ready, v.flagged, o.everFlagged || v.flagged
	return nil
}

// remove takes in that an object is gone.
func (c *chronicle) remove(name string, revision, before int64) error {
	if err := c.follows(name, revision, before); err != nil {
		return err
	}
	c.live[name].deleted = revision
	delete(c.live, name)
	return nil
}

// follows sees to it that nothing is missing: etcd says with each change what it
// replaces.
func (c *chronicle) follows(name string, revision, before int64) error {
	last := int64(0)
	if o := c.live[name]; o != nil {
		last = o.last
	}
	if last != before {
		return fmt.Errorf("the watch of etcd has missed a version: %s changes at revision %d from that of revision %d, the last one seen is of %d", name, revision, before, last)
	}
	return nil
}

// beside yields the live objects that have an address of o's.
func (c *chronicle) beside(o *object) iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for _, other := range c.live {
			if other != o && other.owned.overlap(o.owned) && !yield(other) {
				return
			}
		}
	}
}

func (c *chronicle) blame(format string, args ...any) {
	c.broken = append(c.broken, fmt.Sprintf(format, args...))
}
