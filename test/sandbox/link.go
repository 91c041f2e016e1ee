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

// maxChunk is how many bytes wait for their latency together: with 300 ms a link still carries most of a megabyte in a second.
const maxChunk = 256 << 10

// Cut is how a Link loses what is sent over it.
type Cut int

const (
	// Whole is a link that loses nothing.
	Whole Cut = iota
	// Reset breaks the connections there are and refuses new ones, as a gateway does that knows of no way.
	Reset
	// Silent lets nothing through, no bytes and no end of a connection, as a pulled cable does. What was under way arrives when the cut
	// is mended, since TCP sends it again, whether or not anybody still waits for it.
	Silent
)

func (c Cut) String() string { return [...]string{"whole", "by reset", "silently"}[c] }

// Condition is what a Link does to connections. The zero value lets them be.
type Condition struct {
	Cut Cut
	// Latency is added to each chunk of bytes, to their end, and to the making of a connection.
	Latency time.Duration
}

// Link is the way to one address, where something may happen to what takes it. Without that it is as if it were not there: while nobody
// listens at the address, it refuses connections too.
type Link struct {
	*relay
	port   *reservation
	target string
	caller func(client, link netip.AddrPort) string

	// What follows is guarded by relay.mu.
	conditions map[string]Condition // caller -> ; "" for all of them
	made       int                  // connections
	lost       map[string]int       // caller -> up to which of them; "" for all of them
	changed    chan struct{}        // closed when they change
}

// newLink makes a link to an address. caller tells who makes a connection from client to the link; nil where nobody cares.
func newLink(target string, caller func(client, link netip.AddrPort) string) (*Link, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	l := &Link{relay: newRelay(), port: port, target: target, caller: caller, conditions: map[string]Condition{}, lost: map[string]int{}, changed: make(chan struct{})}
	l.work.Go(l.listen)
	return l, nil
}

// Address is host:port.
func (l *Link) Address() string { return l.port.addr.String() }

// Set has what a caller sends over the link, and what is sent to it, meet a condition from now on; with "" that of all callers. Where both
// are set, a connection meets the worse of the two.
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

// Lose has the connections that a caller has made, with "" all of them, carry nothing any more, nor tell that they have ended. Those that are
// made from now on are let be: so it is where one of several machines behind an address loses its power.
func (l *Link) Lose(caller string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[caller] = l.made
	l.tell()
}

// tell has those look again who wait for a condition to change. The caller holds mu.
func (l *Link) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Stop closes every connection, and waits until nothing of the link is left.
func (l *Link) Stop() error { return errors.Join(l.stop(), l.port.release()) }

// listen takes connections whenever there is a way to the target.
func (l *Link) listen() {
	for poll(l.ctx, l.admit) == nil {
		l.accept(l.listener, l.serve)
	}
}

// admit has the link listen, or says why it must refuse: who dials learns at once, as he would of the target itself.
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

// listens says why connections are refused, nil where they are not. Whatever listens at the target, the link hears of it a moment later.
func (l *Link) listens(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil {
		return fmt.Errorf("the link to %s does not listen", l.target)
	}
	return nil
}

// refuse has the link listen no more, until there is a way again. The caller holds mu.
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

// pump copies one direction of a connection as the condition of its caller lets it.
func (l *Link) pump(caller string, number int, to, from net.Conn) {
	chunk := make([]byte, maxChunk)
	for {
		n, err := from.Read(chunk)
		if !l.pass(caller, number) {
			return // it is broken on both sides
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

// pass waits until something may go on over a connection, and says whether it may at all.
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

// condition that a connection meets, and a channel that is closed when it may be another.
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
