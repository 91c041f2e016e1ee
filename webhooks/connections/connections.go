// Package connections bounds what connections to the webhooks take while they carry no call that is at work. Whoever reaches the port can open connections
// and send nothing, send a request byte by byte, or read no answer. Such connections share a bounded amount of memory: when one more comes, those that have
// been in their phase for the longest are ended. A call of the API server passes through these phases in milliseconds, so the slow ones are ended, however
// many there are.
//
//	phase    from                                what ends it at the bound
//	idle     accept, or the end of an answer     a farewell, which has a call that is on its way repeated
//	reading  the headers were read               its body cannot be read any further: the call is answered with 503 and Retry-After
//	working  the body was read                   nothing: the webhooks bound the calls at work
//	writing  the call was answered               the connection is closed
//
// While the headers of a request arrive a connection is still idle: net/http reports a request when its headers were read.
package connections

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// Limit is what all connections take together, in bytes, those excepted that carry a call at work.
	Limit = 96 << 20
	// size is about what one takes without a body: the buffers of TLS and net/http, and their goroutines.
	size = 32 << 10
	// lingering is how long a connection is kept for its farewell to be read, and maxLingering how many are at a time. Others are closed at once.
	lingering    = time.Second
	maxLingering = 256
)

// farewell is sent over connections that carry no call, before they are closed. A call that is on its way over one of them takes it for its
// answer, and is repeated over another connection; else the API server gives the connection up, and tells its log of an unsolicited
// response. Of a connection closed without a word the API server cannot know what became of the call on it, and fails that.
const farewell = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

type phase int

const (
	idle phase = iota
	reading
	working
	writing
	ended // it was sent a farewell, or is being closed
)

// Set is the open connections of a server. Its methods are safe for concurrent use.
type Set struct {
	limit int64

	mu        sync.Mutex
	all       map[net.Conn]*Connection
	waiting   list.List // *Connection that are idle, reading or writing, in the order in which they became so
	taken     int64     // by these
	lingering int
}

// Connection is an open connection. The methods of nil do nothing.
type Connection struct {
	net.Conn
	set   *Set
	phase phase
	takes int64
	place *list.Element // in waiting; nil while it is working or has ended
}

// New makes a Set whose connections take so many bytes together.
func New(limit int64) *Set { return &Set{limit: limit, all: map[net.Conn]*Connection{}} }

type contextKey struct{}

// Context is the ConnContext of an http.Server.
func (s *Set) Context(ctx context.Context, c net.Conn) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	connection := &Connection{Conn: c, set: s, phase: working}
	s.all[c] = connection
	return context.WithValue(ctx, contextKey{}, connection)
}

// Of is the connection of a request; nil where its server has no Set.
func Of(r *http.Request) *Connection {
	c, _ := r.Context().Value(contextKey{}).(*Connection)
	return c
}

// Note is the ConnState of an http.Server.
func (s *Set) Note(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	connection := s.all[c]
	s.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		connection.enter(idle, 0)
	case http.StateActive:
		connection.enter(reading, 0)
	default:
		connection.enter(ended, 0)
		s.mu.Lock()
		delete(s.all, c)
		s.mu.Unlock()
	}
}

// Reading notes that a body of so many bytes is read.
func (c *Connection) Reading(body int64) { c.enter(reading, body) }

// Working notes that the body was read, and reports false where that was ended.
func (c *Connection) Working() bool { return c.enter(working, 0) }

// Writing notes that the call is answered.
func (c *Connection) Writing() { c.enter(writing, 0) }

// enter begins a phase, and ends the oldest connections while all take too much. It reports false where this one has ended.
func (c *Connection) enter(next phase, body int64) bool {
	if c == nil {
		return true
	}
	s := c.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.phase == ended {
		return false
	}
	s.leave(c, next)
	if next == working || next == ended {
		return true
	}
	c.takes = size + body
	s.taken += c.takes
	c.place = s.waiting.PushBack(c)
	for s.taken > s.limit && s.waiting.Front() != c.place {
		s.end(s.waiting.Front().Value.(*Connection))
	}
	return true
}

// leave takes a connection out of those that wait. The caller holds mu.
func (s *Set) leave(c *Connection, next phase) {
	if c.place != nil {
		s.waiting.Remove(c.place)
		s.taken -= c.takes
		c.place = nil
	}
	c.phase = next
}

// end ends a connection that waits. The caller holds mu.
func (s *Set) end(c *Connection) {
	was := c.phase
	s.leave(c, ended)
	switch {
	case was == reading:
		now := time.Now()
		_ = c.SetReadDeadline(now)
		_ = c.SetWriteDeadline(now.Add(lingering))
	case was == idle && s.lingering < maxLingering:
		s.lingering++
		go c.sayFarewell(time.Now().Add(lingering))
		time.AfterFunc(lingering, func() {
			s.mu.Lock()
			s.lingering--
			s.mu.Unlock()
			c.close()
		})
	default:
		c.close()
	}
}

func (c *Connection) sayFarewell(limit time.Time) {
	_ = c.SetWriteDeadline(limit)
	_, _ = io.WriteString(c.Conn, farewell) // who does not read it is gone
}

// close does not wait, as the end of TLS would.
func (c *Connection) close() {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		_ = secure.NetConn().Close()
		return
	}
	_ = c.Close()
}

// Dismiss has all of them given up by those who keep them, each once it carries no call, and waits for that until ctx ends. One whose call was
// answered this moment is not idle yet: who has the answer may send the next call over it.
func (s *Set) Dismiss(ctx context.Context) {
	for s.dismiss(ctx) > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func (s *Set) dismiss(ctx context.Context) (left int) {
	limit, _ := ctx.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		if c.phase == idle {
			s.leave(c, ended)
			go c.sayFarewell(limit)
		}
	}
	return len(s.all)
}
