package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLink_CarriesBytesBothWays(t *testing.T) {
	link := newTestLink(t, counter(t), "")
	dialLink(t, link).Close()
	sendToCounter(t, link.Address())
}

func TestLink_CutByReset(t *testing.T) {
	link := newTestLink(t, echo(t), "")
	before := dialLink(t, link)
	before.says(t, "hello")

	link.Set("", Condition{Cut: Reset})
	if text, err := before.hears(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection over a link that is cut hears %q, %v", text, err)
	}
	if c, err := net.Dial("tcp", link.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, %v, want it refused", c, err)
	}

	link.Set("", Condition{})
	dialLink(t, link).says(t, "again")
}

func TestLink_CutSilentlyDeliversWhenMended(t *testing.T) {
	link := newTestLink(t, echo(t), "")
	before := dialLink(t, link)
	before.says(t, "hello")

	link.Set("", Condition{Cut: Silent})
	during := dialLink(t, link) // the kernel takes it
	for _, c := range []*conversation{before, during} {
		c.tell(t, "anybody there?")
		if text, err := c.hearsWithin(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over a link that is cut silently: heard %q, %v, want nothing", text, err)
		}
	}

	link.Set("", Condition{})
	for _, c := range []*conversation{before, during} {
		if text, err := c.hears(); text != "anybody there?" {
			t.Errorf("after the cut: heard %q, %v, want what was sent during it", text, err)
		}
	}
}

func TestLink_CutSilentlyHidesTheEndOfAConnection(t *testing.T) {
	listener := listen(t)
	link := newTestLink(t, listener.Addr().String(), "")
	client := dialLink(t, link)
	server := awaitEnd(t, listener)
	client.tell(t, "hello")
	link.Set("", Condition{Cut: Silent})
	client.Close()
	select {
	case <-server:
		t.Error("the end of the connection was heard of")
	case <-time.After(100 * time.Millisecond):
	}
	link.Set("", Condition{})
	<-server
}

func TestLink_LosesOpenConnections(t *testing.T) {
	link := newTestLink(t, echo(t), "a")
	for _, caller := range []string{"a", ""} {
		before := dialLink(t, link)
		before.says(t, "hello")
		link.Lose("b")
		before.says(t, "still here")
		link.Lose(caller)
		before.tell(t, "anybody there?")
		dialLink(t, link).says(t, "hello")
		link.Set("", Condition{})
		if text, err := before.hearsWithin(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("over a connection that is lost: heard %q, %v, want nothing", text, err)
		}
	}
}

func TestLink_AddsLatency(t *testing.T) {
	const latency = 50 * time.Millisecond
	link := newTestLink(t, echo(t), "")
	c := dialLink(t, link)
	c.says(t, "hello")
	link.Set("", Condition{Latency: latency})
	started := time.Now()
	c.says(t, "hello")
	if took := time.Since(started); took < 2*latency {
		t.Errorf("there and back took %s, want at least twice %s", took, latency)
	}
	link.Set("", Condition{})
	started = time.Now()
	c.says(t, "hello")
	if took := time.Since(started); took >= 2*latency {
		t.Errorf("there and back took %s afterwards", took)
	}
}

func TestLink_OneCaller(t *testing.T) {
	link := newTestLink(t, echo(t), "a")
	a := dialLink(t, link)
	a.says(t, "hello")
	link.Set("b", Condition{Cut: Reset})
	a.says(t, "still here")
	link.Set("a", Condition{Cut: Reset})
	if text, err := a.hears(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("heard %q, %v, want the connection broken", text, err)
	}
	if text, err := dialLink(t, link).hears(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("over a new connection: heard %q, %v, want it broken", text, err)
	}
	link.Set("a", Condition{})
	dialLink(t, link).says(t, "again")
}

func TestLink_TargetDoesNotListen(t *testing.T) {
	port, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := port.release(); err != nil {
			t.Error(err)
		}
	}()
	link := newTestLink(t, port.addr.String(), "")
	for range 2 {
		if c, err := net.Dial("tcp", link.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("a new connection: %v, %v, want it refused", c, err)
		}
		listener, err := net.Listen("tcp", port.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		served := awaitEnd(t, listener)
		c := dialLink(t, link)
		c.tell(t, "hello")
		c.Close()
		<-served
		listener.Close()
		// The first to come finds out; those after him are refused.
		if c, err := net.Dial("tcp", link.Address()); err == nil {
			_, err = c.Read(make([]byte, 1))
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the first connection after the target has gone: %v, want it reset", err)
			}
		}
	}
}

func TestLink_KnowsTheCallingManager(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := start(t, Options{Replicas: 2, ManagerBinary: testBinary(t), Links: true})
	first, second := s.Managers()[0], s.Managers()[1]
	// asks says what one hears from another over the link to it.
	asks := func(asking, asked *Manager) string {
		t.Helper()
		url := "https://" + asking.WebhookAddress + "/?peer=" + asked.Peers.Address()
		var answer string
		err := poll(ctx, func(ctx context.Context) (err error) {
			answer, err = get(ctx, s.WebhookCertDir(), url)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	want := func(step string, ofSecond, ofFirst string) {
		t.Helper()
		if got := asks(first, second); !strings.Contains(got, ofSecond) {
			t.Errorf("%s: manager-1 hears %q from manager-2, want %q", step, got, ofSecond)
		}
		if got := asks(second, first); !strings.Contains(got, ofFirst) {
			t.Errorf("%s: manager-2 hears %q from manager-1, want %q", step, got, ofFirst)
		}
	}
	want("at first", "manager-2", "manager-1")
	second.Peers.Set("manager-1", Condition{Cut: Reset})
	want("when one direction is cut", "connection reset", "manager-1")
	if got, err := get(ctx, s.WebhookCertDir(), "https://"+second.Peers.Address()); got != "manager-2" {
		t.Errorf("somebody else hears %q, %v over that link, want manager-2", got, err)
	}
	second.Peers.Set("manager-1", Condition{})
	want("in the end", "manager-2", "manager-1")

	whoami := func() error {
		_, _, err := s.Kubectl(ctx, "", "--kubeconfig="+s.file("managers/manager-1.kubeconfig"), "auth", "whoami")
		return err
	}
	if err := whoami(); err != nil {
		t.Errorf("a manager's way to the API server: %v", err)
	}
	first.APIServer.Set("", Condition{Cut: Reset})
	if err := whoami(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a manager that is cut off asks the API server: %v, want it refused", err)
	}
}

func newTestLink(t *testing.T, target, caller string) *Link {
	t.Helper()
	link, err := newLink(target, func(_, _ netip.AddrPort) string { return caller })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := link.Stop(); err != nil {
			t.Error(err)
		}
	})
	return link
}

// conversation is the client's side of a connection over which lines go.
type conversation struct {
	net.Conn
	lines *bufio.Reader
}

// dialLink connects as soon as the link lets it.
func dialLink(t *testing.T, link *Link) *conversation {
	t.Helper()
	c := &conversation{}
	err := poll(t.Context(), func(ctx context.Context) (err error) {
		var dialer net.Dialer
		c.Conn, err = dialer.DialContext(ctx, "tcp", link.Address())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.lines = bufio.NewReader(c)
	return c
}

func (c *conversation) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		t.Fatal(err)
	}
}

func (c *conversation) hears() (string, error) { return c.hearsWithin(time.Minute) }

func (c *conversation) hearsWithin(limit time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	line, err := c.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// says something and wants to hear it again.
func (c *conversation) says(t *testing.T, line string) {
	t.Helper()
	c.tell(t, line)
	if heard, err := c.hears(); heard != line {
		t.Fatalf("heard %q, %v, want %q", heard, err, line)
	}
}

// echo sends back what it is sent.
func echo(t *testing.T) (address string) {
	t.Helper()
	listener := listen(t)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	return listener.Addr().String()
}

// awaitEnd tells when the next connection that comes in and says something has ended.
func awaitEnd(t *testing.T, listener net.Listener) <-chan struct{} {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for said := int64(0); said == 0; { // one without a word is a probe
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			said, _ = io.Copy(io.Discard, connection)
			connection.Close()
		}
	}()
	return ended
}
