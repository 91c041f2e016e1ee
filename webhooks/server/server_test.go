package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"butlerlabs.dev/ipam/webhooks/certificates"
)

// serve starts a webhook server that answers "here"; a call of /slow is answered when
// its context ends. What it returns ends it.
func serve(t *testing.T, c Config) (stop func()) {
	t.Helper()
	server, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	server.Register("/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	server.Register("/slow", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		_, _ = io.WriteString(w, "answered")
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	for !server.serving.Load() {
		time.Sleep(time.Millisecond)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// testConfig configures a server on a free port with the certificate of a directory.
func testConfig(t *testing.T, dir string) Config {
	t.Helper()
	return Config{Address: freeAddress(t), Certificates: files(t, dir), Now: time.Now, Log: logr.Discard()}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	return free.Addr().String()
}

// dial opens a connection to a server until the end of the test.
func dial(t *testing.T, c Config) *tls.Conn {
	t.Helper()
	connection, err := tls.Dial("tcp", c.Address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

func TestServer_AnswersCallsThatCrossTheEndOfTheirConnection(t *testing.T) {
	for name, callsBefore := range map[string]int{"a connection that was used": 1, "one that never was": 0} {
		t.Run(name, func(t *testing.T) {
			c := testConfig(t, writePair(t))
			stop := serve(t, c)
			connection := dial(t, c)
			answers := bufio.NewReader(connection)
			call := func() *http.Response {
				t.Helper()
				if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
					t.Fatal(err)
				}
				response, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil {
					t.Fatal(err)
				}
				return response
			}
			for range callsBefore {
				if got := call(); got.StatusCode != http.StatusOK {
					t.Fatalf("got %s", got.Status)
				}
			}
			stop() // what the server has sent is not read yet, as with a call on its way
			if got := call(); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "0" || !got.Close {
				t.Errorf("got %s %v, want 503 with Retry-After 0, and the end of the connection", got.Status, got.Header)
			}
		})
	}
}

// The API server keeps a connection that it has opened and not used for 90 s, and may
// then send a call over it.
func TestServer_KeepsUnusedConnections(t *testing.T) {
	t.Parallel()
	c := testConfig(t, writePair(t))
	defer serve(t, c)()
	connection := dial(t, c)
	_ = connection.SetReadDeadline(time.Now().Add(16 * time.Second))
	if n, err := connection.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the server sent %d bytes, or has closed the connection: %v", n, err)
	}
	_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s", response.Status)
	}
}

// A handler that leaves the body, such as that of an unknown path, does not bound the
// time to read the body.
func TestServer_EndsIncompleteBodies(t *testing.T) {
	t.Parallel()
	c := testConfig(t, writePair(t))
	defer serve(t, c)()
	connection := dial(t, c)
	if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	_ = connection.SetReadDeadline(time.Now().Add(2 * bodyTimeout))
	if _, err := io.Copy(io.Discard, connection); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open %s after the headers", 2*bodyTimeout)
	}
}

func TestServer_StopsAtOnceWhenClientsCloseTheirConnections(t *testing.T) {
	c := testConfig(t, writePair(t))
	stop := serve(t, c)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Get("https://" + c.Address)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	began := time.Now()
	stop()
	if took := time.Since(began); took > drainLimit/2 {
		t.Errorf("it took %s: a client that keeps a connection gives it up when told to", took)
	}
}

// A call may wait for the API server when the process ends, for longer than the shutdown
// delay: it is answered nevertheless.
func TestServer_EndsTheContextsOfCallsAtWork(t *testing.T) {
	c := testConfig(t, writePair(t))
	stop := serve(t, c)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Get("https://" + c.Address + "/slow") // returns with the headers
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	stop()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "answered" {
		t.Errorf("got %q, %v", text, err)
	}
}

// noCertificate is a source that has none yet.
type noCertificate struct{ certificates.Source }

func (noCertificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return nil, errors.New("there is none")
}

func TestProbes_HealthyAndNotReadyWithoutCertificate(t *testing.T) {
	server, err := New(Config{Certificates: noCertificate{}, Now: time.Now, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	p := NewProbes(server, nil, nil, logr.Discard())
	p.SetStartup(nil)
	if p.healthy.Checks["webhooks"](nil) == nil {
		t.Error("a manager that serves no webhooks is said to be alive")
	}
	server.serving.Store(true)
	if err := p.healthy.Checks["webhooks"](nil); err != nil {
		t.Errorf("a start would not help, and is asked for: %v", err)
	}
	if p.ready.Checks["webhooks"](nil) == nil {
		t.Error("a manager without a certificate is said to be ready")
	}
}

func TestCheckValidity_FailsOutsideTheLifeOfACertificate(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	c := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(time.Hour)}
	for at, ok := range map[time.Duration]bool{-time.Second: false, 0: true, time.Hour: true, time.Hour + time.Second: false} {
		if err := checkValidity(c, begin.Add(at)); (err == nil) != ok {
			t.Errorf("%s after its begin: %v", at, err)
		}
	}
}
