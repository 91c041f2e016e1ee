package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/allocator/kinds/object"
)

// Bounds of the traffic with one tenant.
const (
	clientQPS   = 20
	clientBurst = 40
	// CallTimeout bounds a call until the end of its answer. For a watch it bounds the
	// time until the answer begins.
	CallTimeout     = 5 * time.Second
	maxAnswerBytes  = 4 << 20  // of an answer, or of one event of a watch; an object in etcd has at most 1.5 MiB
	maxDecodedBytes = 16 << 20 // memory for the decoded answer or event
)

// limitClient sets the bounds that client-go enforces itself.
func limitClient(c *rest.Config) {
	c.QPS, c.Burst = clientQPS, clientBurst
	c.UserAgent = "butler-ipam"
	c.Dial = (&net.Dialer{Timeout: CallTimeout, KeepAlive: 15 * time.Second}).DialContext
	// In JSON each event of a watch is a line, and the objects of a list can be counted
	// before decoding. In protobuf an object can be two bytes.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
}

// newHTTPClient returns a client for one tenant that follows no redirects: a redirect
// would leave the host of the kubeconfig. onOversized is called when an event of a watch
// exceeds the bounds.
func newHTTPClient(c *rest.Config, onOversized func(error)) (*http.Client, error) {
	shared, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	client := *shared
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("the tenant's API server answers with a redirect, which is refused")
	}
	client.Transport = shortRetryAfter{boundedTransport{client.Transport, onOversized}}
	return &client, nil
}

// shortRetryAfter replaces every Retry-After by one second. An API server that has just
// started answers with five seconds and is ready earlier. The load is small: one call at
// a time for each kind.
type shortRetryAfter struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t shortRetryAfter) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(req)
	if err == nil && answer.Header.Get("Retry-After") != "" {
		answer.Header.Set("Retry-After", "1")
	}
	return answer, err
}

// boundedTransport bounds time and size of each answer. The answer to a watch has no end:
// each event is bounded, and onOversized is called with the error of an oversized event.
type boundedTransport struct {
	http.RoundTripper
	onOversized func(error)
}

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timeout := time.AfterFunc(CallTimeout, func() { cancel(fmt.Errorf("no answer within %s", CallTimeout)) })
	response, err := t.RoundTripper.RoundTrip(r.WithContext(ctx))
	isWatch := r.URL.Query().Get("watch") != ""
	if isWatch {
		timeout.Stop()
	}
	if err != nil {
		timeout.Stop()
		if cause := context.Cause(ctx); ctx.Err() != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	body := &boundedBody{ReadCloser: response.Body, onClose: func() { timeout.Stop(); cancel(nil) }}
	if isWatch {
		body.perLine, body.onOversized = true, t.onOversized
	}
	response.Body = body
	return response, nil
}

// errOversized reports an answer or an event beyond the bounds.
var errOversized = fmt.Errorf("the tenant's answer has more than %d bytes, or more than %d when decoded", maxAnswerBytes, maxDecodedBytes)

// boundedBody is the body of an answer. Reads fail when the body, or with perLine a line
// of the body, is oversized.
type boundedBody struct {
	io.ReadCloser
	onClose     func()
	perLine     bool
	onOversized func(error) // may be nil
	size        jsonSize    // of the body, or of the current line
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	text := p[:n]
	if end := bytes.LastIndexByte(text, '\n'); b.perLine && end >= 0 {
		b.size, text = jsonSize{}, text[end+1:]
	}
	b.size.addText(text)
	if b.size.fitsBounds() {
		return n, err
	}
	if b.onOversized != nil {
		b.onOversized(errOversized)
	}
	return 0, errOversized
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	defer b.onClose()
	return b.ReadCloser.Close()
}

// jsonSize counts bytes and values of JSON text that is read in parts.
type jsonSize struct {
	bytes, commas    int64 // commas outside of strings: one for each value, roughly
	inString, escape bool
}

func (s *jsonSize) addText(text []byte) {
	s.bytes += int64(len(text))
	for _, c := range text {
		switch {
		case s.escape:
			s.escape = false
		case s.inString && c == '\\':
			s.escape = true
		case c == '"':
			s.inString = !s.inString
		case c == ',' && !s.inString:
			s.commas++
		}
	}
}

func (s *jsonSize) fitsBounds() bool {
	return s.bytes <= maxAnswerBytes && object.DecodedBytes(s.bytes, s.commas) <= maxDecodedBytes
}
