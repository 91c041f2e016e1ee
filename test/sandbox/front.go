package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Front spreads TCP connections over endpoints, turn by turn, as the Service in front of the webhooks does. It sees bytes only (TLS ends
// at the endpoint) and repeats nothing: a connection that breaks is broken for the client too.
type Front struct {
	listener net.Listener
	pumps    sync.WaitGroup
	ctx      context.Context // ends with Stop
	cancel   context.CancelFunc

	mu        sync.Mutex
	endpoints []endpoint
	next      int
	open      map[net.Conn]struct{}
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
	f := &Front{listener: listener, open: map[net.Conn]struct{}{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.pumps.Go(f.accept)
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
func (f *Front) Stop() error {
	f.mu.Lock()
	f.cancel()
	err := f.listener.Close()
	for connection := range f.open {
		connection.Close()
	}
	f.mu.Unlock()
	f.pumps.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (f *Front) accept() {
	for {
		client, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or a client that left at once: a later one may be served
			time.Sleep(pollInterval)
			continue
		}
		f.pumps.Go(func() { f.serve(client) })
	}
}

func (f *Front) serve(client net.Conn) {
	defer client.Close()
	server := f.dial()
	if server == nil {
		// A Service without an endpoint refuses; a reset comes closest for a connection that the kernel has already taken.
		_ = client.(*net.TCPConn).SetLinger(0)
		return
	}
	defer server.Close()
	if !f.track(client, server) {
		return
	}
	defer f.forget(client, server)

	var directions sync.WaitGroup
	directions.Go(func() { pump(server, client) })
	directions.Go(func() { pump(client, server) })
	directions.Wait()
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

// track notes the connections so that Stop can close them; it is false when Stop has come before.
func (f *Front) track(connections ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return false
	}
	for _, connection := range connections {
		f.open[connection] = struct{}{}
	}
	return true
}

func (f *Front) forget(connections ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, connection := range connections {
		delete(f.open, connection)
	}
}

// pump copies one direction until its end and passes the end on. The other direction goes on: a reply may still be under way.
func pump(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	_ = to.(*net.TCPConn).CloseWrite() // fails where the other side has gone already
}
