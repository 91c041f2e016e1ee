package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/webhooks/server"
)

const (
	// maxBody bounds an AdmissionReview, in bytes: a new and an old object, each far
	// larger than a valid object.
	maxBody = 3 << 20
	// defaultTimeout applies to calls without a timeout. maxTimeout is the longest
	// timeout that the API server allows.
	defaultTimeout = 10 * time.Second
	maxTimeout     = 30 * time.Second
	// answerMargin is the part of a call's timeout reserved for the way of the answer; at
	// most a quarter of the timeout.
	answerMargin = 300 * time.Millisecond
	// bodyTimeout bounds the time to read a body.
	bodyTimeout = 5 * time.Second
	// minRetryTime is the least remaining time with which the API server is asked to
	// repeat a call.
	minRetryTime = 500 * time.Millisecond
)

var (
	reviewKind = admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	operations = []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
)

// Config configures a Transport.
type Config struct {
	Ledger   *ledger.Ledger
	Peers    *http.Client    // for calls to other replicas; nil: calls are not forwarded
	Identity string          // of this replica in the journal
	Stopping <-chan struct{} // closed when this replica begins to stop; nil: never
	Metrics  *Metrics
	Log      logr.Logger
}

// Transport is the common part of the handlers of a replica.
type Transport struct {
	Config
	limiter   *limiter
	deadlines *retryDeadlines
}

// NewTransport returns a Transport with the limits of this package.
func NewTransport(c Config) *Transport {
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return &Transport{c, newLimiter(maxCalls, maxLargeBodies), newRetryDeadlines()}
}

// Entry is the place of a webhook among the entries for one kind in the webhook
// configuration. The mutating call of a claim has two entries, because the API server
// does not repeat a call whose replica dies: the second entry is the repetition. Its
// matchCondition not-answered-yet (config/webhook) matches objects that lack addresses,
// token (except in a dry run) or origin, so the API server skips the second call after a
// successful first call.
type Entry int

const (
	OnlyEntry   Entry = iota
	FirstEntry        // failurePolicy Ignore: if this entry fails, the API server calls SecondEntry
	SecondEntry       // failurePolicy Fail
)

// NewHandler returns the handler of a webhook.
func (t *Transport) NewHandler(h Hook, entry Entry) *Handler {
	handler := &Handler{Transport: *t, hook: h, entry: entry}
	handler.Log = t.Log.WithValues("webhook", h.Name)
	return handler
}

// Handler serves AdmissionReviews of one webhook over HTTP.
type Handler struct {
	Transport
	hook  Hook
	entry Entry
}

// ServeHTTP answers an AdmissionReview. A malformed body is answered with an HTTP error
// and its reason, a call that cannot be served now with HTTP 503 and Retry-After. A call
// occupies a slot of the limiter from the end of its body until its answer is ready, so
// slow clients occupy no slot.
func (e *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &callRecord{started: time.Now(), result: resultBroken}
	defer func() { e.Metrics.observeCall(e.hook.Name, c.operation, c.result, time.Since(c.started)) }()
	if e.isStopping() || e.entry == SecondEntry {
		// The API server keeps no connection to a replica that stops, nor any connection
		// of the second entry, so that each call of the second entry dials. Such a call
		// is often sent the moment after a replica died, and a kept connection to that
		// replica would look alive.
		w.Header().Set("Connection", "close")
	}
	body, answer := readBody(w, r)
	if answer == nil {
		answer = e.answerBody(r, body, c)
	}
	server.ConnectionOf(r).StartWriting()
	if answer.retryAfter >= 0 {
		w.Header().Set("Retry-After", strconv.Itoa(answer.retryAfter))
	}
	if answer.overloaded {
		w.Header().Set(overloadedHeader, "true")
	}
	if answer.tryElsewhere {
		w.Header().Set("Connection", "close") // a repetition over a new connection may reach another replica
	}
	if answer.err != nil {
		http.Error(w, answer.err.Error(), answer.code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer.review) // an error means that the client has closed the connection
}

// callRecord is the metric labels of a call.
type callRecord struct {
	started   time.Time
	operation admissionv1.Operation
	result    string
}

// httpResponse is the answer to a call: an AdmissionReview, or an HTTP error.
type httpResponse struct {
	review       []byte
	code         int
	err          error
	retryAfter   int // seconds; negative: no Retry-After
	tryElsewhere bool
	overloaded   bool // this replica has no room for the call
}

func httpError(code int, err error) *httpResponse {
	return &httpResponse{code: code, err: err, retryAfter: -1}
}

// overloaded makes the API server repeat a call after a second.
func overloaded(err error) *httpResponse {
	return &httpResponse{code: http.StatusServiceUnavailable, err: err, retryAfter: 1, overloaded: true}
}

// answerBody answers a call whose body was read.
func (e *Handler) answerBody(r *http.Request, body []byte, c *callRecord) *httpResponse {
	release, err := e.limiter.admitCall(int64(len(body)))
	if err != nil {
		c.result = resultUnavailable
		return overloaded(err)
	}
	defer release()
	releaseObjects, err := e.limiter.admitDecoding(body)
	if err != nil {
		c.result = resultUnavailable
		return overloaded(err)
	}
	defer releaseObjects()
	review, err := decodeReview(body)
	if err != nil {
		return httpError(http.StatusBadRequest, err)
	}
	c.operation = review.Request.Operation
	deadline, repeated := e.deadlines.findDeadline(review.Request.UID, c.started.Add(remainingTime(r)))
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()
	answer, forwarded, unavailable := e.answerOrForward(ctx, r, body, &admission.Request{AdmissionRequest: *review.Request}, c)
	if forwarded != nil {
		return &httpResponse{review: forwarded, retryAfter: -1}
	}
	tryElsewhere := unavailable != nil && !unavailable.NoOtherReplica
	if tryElsewhere {
		refusal := httpError(http.StatusServiceUnavailable, errors.New(answer.Result.Message))
		refusal.tryElsewhere = true
		after := e.retryAfter(unavailable, repeated)
		if time.Until(deadline) > after+minRetryTime {
			if r.Header.Get(forwardedHeader) == "" { // the forwarding replica records the deadline of a forwarded call
				e.deadlines.recordDeadline(review.Request.UID, deadline)
			}
			refusal.retryAfter = int(after / time.Second)
			return refusal
		}
		if e.entry == FirstEntry {
			return refusal
		}
	}
	review.Request, review.Response = nil, &answer.AdmissionResponse
	text, err := json.Marshal(review)
	if err != nil {
		return httpError(http.StatusInternalServerError, err)
	}
	return &httpResponse{review: text, retryAfter: -1, tryElsewhere: tryElsewhere}
}

// answerOrForward answers a request, or forwards it to the leader if this replica cannot
// serve. forwarded is the leader's answer. unavailable is the reason why neither was
// possible.
func (e *Handler) answerOrForward(ctx context.Context, r *http.Request, body []byte, req *admission.Request, c *callRecord) (answer admission.Response, forwarded []byte, unavailable *ledger.NotServingError) {
	for {
		answer, c.result, unavailable = e.answerRequest(ctx, req)
		// No other replica can serve a call that the leader cannot serve.
		if unavailable == nil || unavailable.NoOtherReplica || ctx.Err() != nil || e.Ledger.HasCurrentProof() || !e.mayForward(r) {
			return answer, nil, unavailable
		}
		forwarded, err := e.forwardToLeader(ctx, r, body)
		if forwarded != nil {
			c.result = resultForwarded
			return answer, forwarded, nil
		}
		if err != nil {
			_ = errors.As(err, &unavailable) // otherwise this replica's own reason
			return answer, nil, unavailable
		}
	}
}

// mayForward reports whether a call may be forwarded. A forwarded call is not forwarded
// again.
func (e *Handler) mayForward(r *http.Request) bool {
	return e.Peers != nil && r.Header.Get(forwardedHeader) == "" && !e.isStopping()
}

// readBody reads the body of a call, or returns the answer to a body that cannot be read.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *httpResponse) {
	connection, controller := server.ConnectionOf(r), http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Now().Add(min(bodyTimeout, remainingTime(r)))) // connections of http.Server support deadlines
	size := r.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody // MaxBytesReader reads no more
	}
	connection.StartReading(size)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	alive := connection.StartWorking()
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, httpError(http.StatusRequestEntityTooLarge, fmt.Errorf("the admission review has more than %d bytes: make the object smaller", large.Limit))
	}
	if !alive {
		return nil, overloaded(errors.New("slow calls use all memory reserved for them: try again"))
	}
	if err != nil {
		return nil, httpError(http.StatusBadRequest, fmt.Errorf("the admission review cannot be read: %w", err))
	}
	_ = controller.SetReadDeadline(time.Time{}) // otherwise the read deadline would cancel the request's context
	return body, nil
}

// decodeReview decodes an AdmissionReview with a request.
func decodeReview(body []byte) (*admissionv1.AdmissionReview, error) {
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, fmt.Errorf("the body is no admission review: %w", err)
	}
	if got := review.GroupVersionKind(); got != reviewKind || review.Request == nil {
		return nil, fmt.Errorf("the body is %q, or has no request: this webhook takes requests of %q", got, reviewKind)
	}
	return review, nil
}

// remainingTime returns the timeout of a call less the margin for the way of the answer.
func remainingTime(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		timeout = defaultTimeout
	}
	timeout = min(timeout, maxTimeout)
	if r.Header.Get(forwardedHeader) != "" {
		return timeout - forwardMargin
	}
	return timeout - min(answerMargin, timeout/4)
}

// retryAfter returns when the API server should repeat a call: at once if this replica
// stops, because another replica may answer. A repeated call has not found such a
// replica, and the API server repeats a call at most ten times, so it waits a second.
func (e *Handler) retryAfter(unavailable *ledger.NotServingError, repeated bool) time.Duration {
	switch {
	case !e.isStopping():
		return roundUpToSeconds(unavailable.RetryAfter)
	case repeated:
		return time.Second
	default:
		return 0
	}
}

// roundUpToSeconds rounds a duration up, because Retry-After has whole seconds.
func roundUpToSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

func (e *Handler) isStopping() bool {
	select {
	case <-e.Stopping:
		return true
	default:
		return false
	}
}

// answerRequest answers a request on this replica. unavailable is the reason why this
// replica cannot serve; nil if it can.
func (e *Handler) answerRequest(ctx context.Context, req *admission.Request) (answer admission.Response, result string, unavailable *ledger.NotServingError) {
	answer, err := e.checkAndAnswer(ctx, req)
	if err == nil {
		err = answer.Complete(*req)
	}
	if err == nil {
		return answer, resultAllowed, nil
	}
	status := statusOf(err, e.hook.Subject, req)
	answer = admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{UID: req.UID, Result: status}}
	log := e.Log.WithValues("operation", req.Operation, "namespace", req.Namespace, "name", req.Name)
	switch {
	case errors.As(err, &unavailable):
		log.V(1).Info("Cannot serve now", "reason", unavailable.Reason)
		return answer, resultUnavailable, unavailable
	case status.Code == http.StatusInternalServerError:
		log.Error(err, "Cannot answer")
		return answer, resultBroken, nil
	}
	log.V(1).Info("Denied", "reason", fieldtext.Shorten(err.Error()))
	return answer, resultDenied, nil
}

// checkAndAnswer denies requests that the webhook configuration should not send, allows
// subresources, and has the hook answer other requests. A panic of the hook becomes an
// error: otherwise net/http would close the connection without an answer.
func (e *Handler) checkAndAnswer(ctx context.Context, req *admission.Request) (answer admission.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.Log.Error(fmt.Errorf("%v", p), "Panicked", "stack", string(debug.Stack()))
			err = errors.New("the webhook has a bug: see its log")
		}
	}()
	want := e.hook.Subject.Kind
	switch got := req.Kind; {
	case got.Group != want.Group || got.Version != want.Version || got.Kind != want.Kind:
		return admission.Response{}, BadRequestError(fmt.Sprintf("request.kind is %q, this webhook takes %q: correct the rules of the webhook configuration", got.String(), want.String()))
	case !slices.Contains(operations, req.Operation):
		return admission.Response{}, BadRequestError(fmt.Sprintf("request.operation %q is none of %q", req.Operation, operations))
	case req.SubResource != "":
		return admission.Allowed(""), nil // status and other subresources contain no addresses of the spec
	case req.Namespace == "" && !e.hook.Subject.ClusterScoped:
		return admission.Response{}, BadRequestError("request.namespace is empty, but the object is namespaced")
	}
	return e.hook.Func(ctx, req)
}
