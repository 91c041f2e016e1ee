package apiserver

import (
	"net"
	"net/http"
	"os"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// The address of the API server may belong to several API servers. If the machine of an
// API server loses power, data sent over its connections is lost without an error. Each
// kind of connection detects the loss within seconds:
//
//	HTTP/2, of informers      a ping is sent after pingAfter seconds of silence
//	HTTP/1.1, of short calls  a call ends after CallTimeout, and idle connections are closed after a failed call
//	new connections           dialing ends after dialTimeout, and the next attempt may reach another API server
const (
	pingAfter   = "3" // seconds; the default of client-go is 30
	pingTimeout = "5" // seconds; the default of client-go is 15
	dialTimeout = 5 * time.Second
	keepAlive   = 15 * time.Second
)

// CallTimeout bounds a short call.
const CallTimeout = 10 * time.Second

// ConfigurePings sets the HTTP/2 pings of client-go, which reads the settings from the
// environment. Variables that are set already are kept.
func ConfigurePings() {
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": pingAfter, "HTTP2_PING_TIMEOUT_SECONDS": pingTimeout} {
		if _, set := os.LookupEnv(name); !set {
			_ = os.Setenv(name, seconds) // fails only for an invalid name
		}
	}
}

// BoundDialing bounds the time to connect.
func BoundDialing(kube *rest.Config) {
	kube.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
}

// ConfigForCalls returns the configuration of clients for short calls, over HTTP/1.1:
// each create causes at least one call, and HTTP/2 costs both sides more. These clients
// share their connections, so a failure found by one client serves all.
func ConfigForCalls(kube *rest.Config) *rest.Config {
	kube = rest.CopyConfig(kube)
	kube.NextProtos = []string{"http/1.1"}
	kube.Dial = nil // the timeout of a call bounds dialing, and client-go shares no connections between configurations with a Dial function
	kube.Wrap(func(rt http.RoundTripper) http.RoundTripper { return idleCloser{rt} })
	return kube
}

// idleCloser closes idle connections after a failed call, because these connections may
// be dead as well, and each would cost the timeout of a call.
type idleCloser struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c idleCloser) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil {
		utilnet.CloseIdleConnectionsFor(c.RoundTripper)
	}
	return answer, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (c idleCloser) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }
