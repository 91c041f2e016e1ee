package server

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// ConnectionMemory bounds the memory of all connections together, in bytes, without
	// connections in phase working.
	ConnectionMemory = 96 << 20
	// connectionSize estimates the memory of a connection without a request body: buffers
	// of TLS and net/http, and goroutines.
	connectionSize = 32 << 10
)

// phase is the state of a connection.
//
//	phase    entered                              what happens to the oldest connection above the bound
//	idle     at accept, and after each answer     drainResponse is sent, and the API server repeats a call already sent over the connection
//	reading  when the headers have been read      reading of the body fails: the call is answered with 503 and Retry-After
//	working  when the body has been read          nothing: the limiter of package review bounds the calls at work
//	writing  when the call has been answered      the connection is closed
//	ended    at the bound, at a drain, at close   final
//
// A connection is idle while the headers arrive: net/http reports a request after it has
// read the headers.
type phase int

const (
	idle phase = iota
	reading
	working
	writing
	ended
)

// Connections bounds the memory of the open connections of a server. A client that
// reaches the port can open connections and send nothing, send a request byte by byte, or
// never read an answer. Connections that carry no call at work share ConnectionMemory.
// Above the bound, the connections that have been in their phase for the longest time are
// ended. Calls of the API server pass through these phases in milliseconds, so slow
// clients are ended first, whatever their number.
//
// The methods are safe for concurrent use.
type Connections struct {
	limit int64 // in bytes

	mu       sync.Mutex
	open     map[net.Conn]*Connection
	waiting  list.List // *Connection in phase idle, reading or writing, by the time they entered it
	used     int64     // bytes of the waiting connections
	draining int       // connections that were sent drainResponse and are not closed yet
}

// Connection is an open connection. The methods of a nil Connection do nothing.
type Connection struct {
	net.Conn
	set     *Connections
	phase   phase
	bytes   int64
	element *list.Element // in Connections.waiting; nil while working or ended
}

// NewConnections returns Connections that share limit bytes.
func NewConnections(limit int64) *Connections {
	return &Connections{limit: limit, open: map[net.Conn]*Connection{}}
}

type connectionKey struct{}

// AddContext is the ConnContext of an http.Server.
func (s *Connections) AddContext(ctx context.Context, c net.Conn) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	connection := &Connection{Conn: c, set: s, phase: working}
	s.open[c] = connection
	return context.WithValue(ctx, connectionKey{}, connection)
}

// ConnectionOf returns the connection of a request; nil for a server without Connections.
func ConnectionOf(r *http.Request) *Connection {
	c, _ := r.Context().Value(connectionKey{}).(*Connection)
	return c
}

// ObserveState is the ConnState of an http.Server.
func (s *Connections) ObserveState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	connection := s.open[c]
	s.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		connection.enterPhase(idle, 0)
	case http.StateActive:
		connection.enterPhase(reading, 0)
	default:
		connection.enterPhase(ended, 0)
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
	}
}

// StartReading enters phase reading for a body of the given size in bytes.
func (c *Connection) StartReading(body int64) { c.enterPhase(reading, body) }

// StartWorking enters phase working after the body was read. It returns false if the
// connection has ended.
func (c *Connection) StartWorking() bool { return c.enterPhase(working, 0) }

// StartWriting enters phase writing before the answer is written.
func (c *Connection) StartWriting() { c.enterPhase(writing, 0) }

// enterPhase enters a phase and ends the oldest waiting connections above the bound. It
// returns false if the connection has ended.
func (c *Connection) enterPhase(next phase, body int64) bool {
	if c == nil {
		return true
	}
	s := c.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.phase == ended {
		return false
	}
	s.leavePhase(c, next)
	if next == working || next == ended {
		return true
	}
	c.bytes = connectionSize + body
	s.used += c.bytes
	c.element = s.waiting.PushBack(c)
	for s.used > s.limit && s.waiting.Front() != c.element {
		s.endConnection(s.waiting.Front().Value.(*Connection))
	}
	return true
}

// leavePhase removes a connection from the waiting connections and sets its next phase.
// The caller holds mu.
func (s *Connections) leavePhase(c *Connection, next phase) {
	if c.element != nil {
		s.waiting.Remove(c.element)
		s.used -= c.bytes
		c.element = nil
	}
	c.phase = next
}

// endConnection ends a waiting connection. The caller holds mu.
func (s *Connections) endConnection(c *Connection) {
	before := c.phase
	s.leavePhase(c, ended)
	switch {
	case before == reading:
		now := time.Now()
		_ = c.SetReadDeadline(now)
		_ = c.SetWriteDeadline(now.Add(drainTime))
	case before == idle && s.draining < maxDraining:
		s.draining++
		go c.sendDrainResponse(time.Now().Add(drainTime))
		time.AfterFunc(drainTime, func() {
			s.mu.Lock()
			s.draining--
			s.mu.Unlock()
			c.closeNow()
		})
	default:
		c.closeNow()
	}
}

// closeNow closes the TCP connection without the closing message of TLS, which could
// block.
func (c *Connection) closeNow() {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		_ = secure.NetConn().Close()
		return
	}
	_ = c.Close()
}
