package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// maxChunk is the maximum number of bytes that are delayed together: with 300 ms latency
// a link still transfers most of a megabyte per second.
const maxChunk = 256 << 10

// Cut is the way in which a Link loses data.
type Cut int

const (
	// Whole loses nothing.
	Whole Cut = iota
	// Reset resets existing connections and refuses new ones, like a gateway without a
	// route.
	Reset
	// Silent transfers nothing, neither bytes nor the end of a connection, like an
	// unplugged cable. Data under way arrives after the cut is repaired, because TCP
	// retransmits it, whether or not the receiver still waits for the data.
	Silent
)

func (c Cut) String() string { return [...]string{"whole", "by reset", "silently"}[c] }

// Condition is the treatment of connections by a Link. The zero value forwards everything
// unchanged.
type Condition struct {
	Cut Cut
	// Latency is added to each chunk of bytes, to the end of a connection, and to the
	// opening of a connection.
	Latency time.Duration
}

// Link is a network path to one address. Tests can cut or delay it. Without a condition a
// link is transparent: it also refuses connections while the address has no listener.
type Link struct {
	*relay
	port   *reservation
	target string
	caller func(client, link netip.AddrPort) string

	// The following fields are guarded by relay.mu.
	conditions map[string]Condition // caller -> condition; "" for all callers
	made       int                  // number of connections so far
	lost       map[string]int       // caller -> number of the last lost connection; "" for all callers
	changed    chan struct{}        // closed when conditions or lost change
}

// newLink creates a link to an address. caller returns the name of the program that
// opened a connection from client to the link; nil if no condition depends on the caller.
func newLink(target string, caller func(client, link netip.AddrPort) string) (*Link, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	l := &Link{relay: newRelay(), port: port, target: target, caller: caller, conditions: map[string]Condition{}, lost: map[string]int{}, changed: make(chan struct{})}
	l.work.Go(l.listen)
	return l, nil
}

// Address returns host:port.
func (l *Link) Address() string { return l.port.addr.String() }

// Set applies a condition to both directions of the existing and future connections of a
// caller, or of all callers if caller is "". If a connection has two conditions, the
// worse of the two applies.
func (l *Link) Set(caller string, c Condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conditions[caller] = c
	l.tell()
	if c.Cut != Reset {
		return
	}
	for connection, by := range l.open {
		if caller == "" || caller == by {
			reset(connection)
		}
	}
	if caller == "" {
		l.refuse()
	}
}

// Lose makes existing connections of a caller, or of all callers if caller is "", lose
// all data in both directions, including the end of the connection. New connections work.
// The power loss of one of several machines behind an address has the same effect.
func (l *Link) Lose(caller string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[caller] = l.made
	l.tell()
}

// tell wakes the goroutines that wait for a changed condition. The caller holds mu.
func (l *Link) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Stop closes all connections, and waits until all goroutines of the link have ended.
func (l *Link) Stop() error { return errors.Join(l.stop(), l.port.release()) }

// listen accepts connections whenever the target is reachable.
func (l *Link) listen() {
	for poll(l.ctx, l.admit) == nil {
		l.accept(l.listener, l.serve)
	}
}

// admit opens the link's listener, or returns the reason why the link must refuse
// connections: a client then gets the same immediate refusal as from the target itself.
func (l *Link) admit(ctx context.Context) error {
	var dialer net.Dialer
	probe, err := dialer.DialContext(ctx, "tcp", l.target)
	if err != nil {
		return err
	}
	probe.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case l.conditions[""].Cut == Reset:
		return fmt.Errorf("the link to %s is cut", l.target)
	}
	l.listener, err = net.Listen("tcp", l.Address())
	return err
}

// listens returns the reason why connections are refused, nil if they are accepted. The
// link observes a new listener at the target with a short delay.
func (l *Link) listens(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil {
		return fmt.Errorf("the link to %s does not listen", l.target)
	}
	return nil
}

// refuse closes the link's listener until the target is reachable again. The caller holds
// mu.
func (l *Link) refuse() {
	if l.listener != nil {
		l.listener.Close()
	}
}

func (l *Link) serve(client net.Conn) {
	caller := ""
	if l.caller != nil {
		caller = l.caller(client.RemoteAddr().(*net.TCPAddr).AddrPort(), l.port.addr)
	}
	if !l.track(caller, client) {
		return
	}
	defer l.forget(client)
	l.mu.Lock()
	l.made++
	number := l.made
	l.mu.Unlock()
	if !l.pass(caller, number) {
		reset(client)
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(l.ctx, "tcp", l.target)
	if errors.Is(err, syscall.ECONNREFUSED) {
		l.mu.Lock()
		l.refuse()
		l.mu.Unlock()
	}
	if err != nil {
		reset(client)
		return
	}
	l.join(caller, client, server, func(to, from net.Conn) { l.pump(caller, number, to, from) })
}

// pump copies one direction of a connection, subject to the condition of the caller.
func (l *Link) pump(caller string, number int, to, from net.Conn) {
	chunk := make([]byte, maxChunk)
	for {
		n, err := from.Read(chunk)
		if !l.pass(caller, number) {
			return // the connection is broken on both sides
		}
		if err == nil {
			_, err = to.Write(chunk[:n])
		}
		if err != nil {
			finish(to, from, err)
			return
		}
	}
}

// pass waits until a connection may transfer data, and reports whether it may transfer
// data at all.
func (l *Link) pass(caller string, number int) bool {
	for delayed := false; ; {
		c, changed := l.condition(caller, number)
		switch {
		case c.Cut == Reset:
			return false
		case c.Cut == Silent:
			select {
			case <-l.ctx.Done():
				return false
			case <-changed:
			}
		case c.Latency > 0 && !delayed:
			delayed = true
			select {
			case <-l.ctx.Done():
				return false
			case <-time.After(c.Latency):
			}
		default:
			return true
		}
	}
}

// condition returns the condition of a connection, and a channel that is closed when the
// condition may have changed.
func (l *Link) condition(caller string, number int) (Condition, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, all := l.conditions[caller], l.conditions[""]
	c := Condition{Cut: own.Cut, Latency: max(own.Latency, all.Latency)}
	if all.Cut == Reset || c.Cut == Whole {
		c.Cut = all.Cut
	}
	if number <= max(l.lost[caller], l.lost[""]) && c.Cut == Whole {
		c.Cut = Silent
	}
	return c, l.changed
}
