package sandbox

import (
	"net"
	"slices"
)

// Front distributes TCP connections in turn over endpoints, like the Service in front of
// the webhooks.
type Front struct {
	*relay
	endpoints []endpoint // endpoints and next are guarded by relay.mu
	next      int
}

type endpoint struct {
	name    string
	address string
	// serving reports whether the endpoint may get new connections.
	serving func() bool
}

// NewFront listens on a loopback port chosen by the kernel. As long as a front has no
// endpoint, it resets new connections.
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

// Address returns host:port.
func (f *Front) Address() string { return f.listener.Addr().String() }

// Add adds an endpoint, or replaces the endpoint with the same name. The endpoint gets
// new connections while serving returns true.
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

// Remove removes an endpoint. Existing connections to the endpoint stay open.
func (f *Front) Remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endpoints = slices.DeleteFunc(f.endpoints, func(e endpoint) bool { return e.name == name })
}

// Stop closes the listener and all connections, and waits until all goroutines of the
// front have ended.
func (f *Front) Stop() error { return f.stop() }

func (f *Front) serve(client net.Conn) {
	server := f.dial()
	if server == nil {
		reset(client) // like a Service without endpoints
		return
	}
	f.join("", client, server, pump)
}

// dial connects to the next endpoint. If the endpoint refuses the connection, dial tries
// another endpoint only if the refusing endpoint no longer serves.
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
