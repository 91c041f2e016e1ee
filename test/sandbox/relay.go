package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// relay carries TCP connections on to where its owner dials: what Front and Link have in common. It sees bytes only (TLS ends at either
// end) and repeats nothing: a connection that breaks on one side is broken on the other too.
type relay struct {
	ctx    context.Context // ends with stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener        // nil while nobody listens
	open     map[net.Conn]string // -> who made the connection, where that matters
}

func newRelay() *relay {
	r := &relay{open: map[net.Conn]string{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// accept serves connections until the listener is closed.
func (r *relay) accept(listener net.Listener, serve func(net.Conn)) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or a client that left at once: a later one may be served
			time.Sleep(pollInterval)
			continue
		}
		r.work.Go(func() {
			defer client.Close()
			serve(client)
		})
	}
}

// join pumps both ways between two connections until both have ended, and closes the second.
func (r *relay) join(caller string, client, server net.Conn, pump func(to, from net.Conn)) {
	defer server.Close()
	if !r.track(caller, client, server) {
		return
	}
	defer r.forget(client, server)
	var directions sync.WaitGroup
	directions.Go(func() { pump(server, client) })
	directions.Go(func() { pump(client, server) })
	directions.Wait()
}

// track notes connections so that they can be broken; it is false when stop has come before.
func (r *relay) track(caller string, connections ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	for _, connection := range connections {
		r.open[connection] = caller
	}
	return true
}

func (r *relay) forget(connections ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, connection := range connections {
		delete(r.open, connection)
	}
}

// stop closes the listener and every connection, and waits until nothing is left.
func (r *relay) stop() error {
	r.mu.Lock()
	r.cancel()
	var err error
	if r.listener != nil {
		err = r.listener.Close()
	}
	for connection := range r.open {
		connection.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// reset has a connection end without the courtesy of a last word. As an answer to a new one it comes closest to a refusal, where the kernel has
// already taken it.
func reset(connection net.Conn) {
	_ = connection.(*net.TCPConn).SetLinger(0)
	connection.Close()
}

// pump copies one direction until its end and passes the end on. The other direction goes on: a reply may still be under way.
func pump(to, from net.Conn) {
	_, err := io.Copy(to, from)
	finish(to, from, err)
}

// finish passes on how one direction has ended.
func finish(to, from net.Conn, err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		to.Close()
		from.Close()
		return
	}
	_ = to.(*net.TCPConn).CloseWrite() // fails where the other side has gone already
}
