package main

import (
	"net"
	"net/http"
	"os"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// The address of the API server may stand for several, and the machine of one may lose its power: what is sent over the connections to it is lost then,
// and nothing says so. Each kind of connection finds out within seconds:
//
//	HTTP/2, of informers      is asked whether it is alive when it has been silent for a while
//	HTTP/1.1, of short calls  ends with a call that takes too long, and those that are idle with it
//	new ones                  are given up when they are not made soon, and made anew, to another API server
const (
	pingAfter = "3" // seconds; client-go takes 30
	pingLimit = "5" // seconds; client-go takes 15
	callLimit = 10 * time.Second
	dialLimit = 5 * time.Second
	keepAlive = 15 * time.Second
)

// setPings tells client-go, which takes it from the environment; what stands there already stays.
func setPings() {
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": pingAfter, "HTTP2_PING_TIMEOUT_SECONDS": pingLimit} {
		if _, set := os.LookupEnv(name); !set {
			_ = os.Setenv(name, seconds) // which a name that is empty would make fail
		}
	}
}

// reach bounds how long a configuration's connections take to be made.
func reach(kube *rest.Config) {
	kube.Dial = (&net.Dialer{Timeout: dialLimit, KeepAlive: keepAlive}).DialContext
}

// forCalls is the configuration of clients that make short calls, over HTTP/1.1: one for each create or more, which with HTTP/2 costs both sides more.
// They share their connections, and so what one of them finds out about them.
func forCalls(kube *rest.Config) *rest.Config {
	kube = rest.CopyConfig(kube)
	kube.NextProtos = []string{"http/1.1"}
	kube.Dial = nil // their limits bound it, and a function of one's own ends the sharing
	kube.Wrap(func(rt http.RoundTripper) http.RoundTripper { return wary{rt} })
	return kube
}

// wary leaves the idle connections when one has failed, as they may be dead too: each would cost the whole time of a call.
type wary struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w wary) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		utilnet.CloseIdleConnectionsFor(w.RoundTripper)
	}
	return answer, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (w wary) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }
