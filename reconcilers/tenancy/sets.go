package tenancy

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// names is a set of objects, for any number of goroutines.
type names struct {
	mu  sync.Mutex
	set map[types.NamespacedName]bool
}

func newNames() *names { return &names{set: map[types.NamespacedName]bool{}} }

func (n *names) put(name types.NamespacedName, in bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if in {
		n.set[name] = true
	} else {
		delete(n.set, name)
	}
}

func (n *names) all() (list []types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.set {
		list = append(list, name)
	}
	return list
}

// reasons is what was last said of objects, for any number of goroutines. The zero value is empty.
type reasons struct {
	mu  sync.Mutex
	set map[types.NamespacedName]string
}

// news tells whether a reason is another one than before, and notes it; "" is none.
func (r *reasons) news(name types.NamespacedName, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set[name] == why {
		return false
	}
	if r.set == nil {
		r.set = map[types.NamespacedName]string{}
	}
	if r.set[name] = why; why == "" {
		delete(r.set, name)
	}
	return true
}

// bell tells any number of goroutines that something has changed.
type bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

func newBell() *bell { return &bell{rung: make(chan struct{})} }

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rung)
	b.rung = make(chan struct{})
}

// next is closed when it rings the next time.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}
