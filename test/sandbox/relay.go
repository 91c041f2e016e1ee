package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// relay forwards TCP connections to addresses that its owner (Front or Link) dials. It
// copies bytes only (TLS ends at either end) and never retries: if one side of a
// connection breaks, the relay breaks the other side.
type relay struct {
	ctx    context.Context // canceled by stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener        // nil while the relay does not listen
	open     map[net.Conn]string // connection -> caller, if conditions depend on the caller
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
		if err != nil { // no descriptors left, or the client has already gone: a later connection may succeed
			time.Sleep(pollInterval)
			continue
		}
		r.work.Go(func() {
			defer client.Close()
			serve(client)
		})
	}
}

// join copies both directions between two connections until both have ended, and closes
// the second connection.
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

// track registers connections, so that the relay can break them. It returns false if stop
// was called before.
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

// stop closes the listener and all connections, and waits until all goroutines of the
// relay have ended.
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

// reset ends a connection with a TCP reset. For a new connection, a reset comes closest
// to a refusal, because the kernel has already accepted it.
func reset(connection net.Conn) {
	_ = connection.(*net.TCPConn).SetLinger(0)
	connection.Close()
}

// pump copies one direction until its end and forwards the end. The other direction
// continues: a response may still be under way.
func pump(to, from net.Conn) {
	_, err := io.Copy(to, from)
	finish(to, from, err)
}

// finish forwards the end of one direction.
func finish(to, from net.Conn, err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		to.Close()
		from.Close()
		return
	}
	_ = to.(*net.TCPConn).CloseWrite() // fails if the other side has already closed
}
