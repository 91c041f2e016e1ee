package sandbox

import (
	"net"
	"slices"
)

// Front spreads TCP connections over endpoints, turn by turn, as the Service in front of the webhooks does.
type Front struct {
	*relay
	endpoints []endpoint // guarded by relay.mu, as is next
	next      int
}

type endpoint struct {
	name    string
	address string
	// serving says whether new connections may go there.
	serving func() bool
}

// NewFront listens on a loopback port chosen by the kernel. It has no endpoint yet: connections are refused by a reset.
func NewFront() (*Front, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &Front{relay: newRelay()}
	f.listener = listener
	f.work.Go(func() { f.accept(listener, f.serve) })
	return f, nil
}

// Address is host:port.
func (f *Front) Address() string { return f.listener.Addr().String() }

// Add adds an endpoint, which gets connections while serving says so, or replaces the one of that name.
func (f *Front) Add(name, address string, serving func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := endpoint{name: name, address: address, serving: serving}
	for i := range f.endpoints {
		if f.endpoints[i].name == name {
			f.endpoints[i] = added
			return
		}
	}
	f.endpoints = append(f.endpoints, added)
}

// Remove takes an endpoint away; connections it has stay.
func (f *Front) Remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endpoints = slices.DeleteFunc(f.endpoints, func(e endpoint) bool { return e.name == name })
}

// Stop closes the listener and every connection, and waits until nothing of the front is left.
func (f *Front) Stop() error { return f.stop() }

func (f *Front) serve(client net.Conn) {
	server := f.dial()
	if server == nil {
		reset(client) // as a Service without an endpoint refuses
		return
	}
	f.join("", client, server, pump)
}

// dial connects to the endpoint whose turn it is. One that refuses is passed over only if it has meanwhile ceased to serve.
func (f *Front) dial() net.Conn {
	var dialer net.Dialer
	tried := map[string]bool{}
	for {
		chosen, ok := f.turn(tried)
		if !ok {
			return nil
		}
		tried[chosen.name] = true
		connection, err := dialer.DialContext(f.ctx, "tcp", chosen.address)
		if err == nil {
			return connection
		}
		if chosen.serving() {
			return nil
		}
	}
}

func (f *Front) turn(tried map[string]bool) (endpoint, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.endpoints {
		chosen := f.endpoints[(f.next+i)%len(f.endpoints)]
		if !tried[chosen.name] && chosen.serving() {
			f.next = (f.next + i + 1) % len(f.endpoints)
			return chosen, true
		}
	}
	return endpoint{}, false
}
