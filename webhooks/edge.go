package webhooks

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

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/webhooks/connections"
)

const (
	// maxBody bounds an AdmissionReview, in bytes: a new and an old object, each far larger than any that is valid.
	maxBody = 3 << 20
	// defaultTimeout is what a caller without a timeout of its own gets, maxTimeout the most that the API server allows.
	defaultTimeout = 10 * time.Second
	maxTimeout     = 30 * time.Second
	// margin is left of a call's time for the answer to travel; of short calls a quarter.
	margin = 300 * time.Millisecond
	// bodyTimeout is how long the body of a call may take to come.
	bodyTimeout = 5 * time.Second
	// anotherTry is the least time left of a call for which it is repeated.
	anotherTry = 500 * time.Millisecond
)

var (
	reviewKind = admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	operations = []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
)

// edge is the HTTP side of one webhook: what has to do with the call rather than with its object.
type edge struct {
	hook
	ledger   *ledger.Ledger
	peers    *http.Client // reaches the other replicas; nil where there are none
	identity string       // of this one
	first    bool         // the API server asks once more, of another entry, where this one has no answer
	second   bool         // that other entry
	places   *places      // of all webhooks together
	repeats  *repeats     // of them all
	stopping <-chan struct{}
	metrics  *Metrics
	log      logr.Logger
}

// ServeHTTP takes an AdmissionReview and answers it. What is none gets an HTTP error with a text, an answer that must wait HTTP 503
// with Retry-After. A call takes a place when its body has been read, and gives it back before its answer is written: whoever is slow keeps no place.
func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{started: time.Now(), result: resultBroken}
	defer func() { e.metrics.answered(e.name, c.operation, c.result, time.Since(c.started)) }()
	if e.isStopping() || e.second {
		// The next call should find a replica that stays. And a second one goes out the moment that a replica has died: it must not meet
		// a connection kept from an earlier time, whose end the API server has not taken in yet.
		w.Header().Set("Connection", "close")
	}
	body, answer := readBody(w, r)
	if answer == nil {
		answer = e.work(r, body, c)
	}
	connections.Of(r).Writing()
	if answer.retryAfter >= 0 {
		w.Header().Set("Retry-After", strconv.Itoa(answer.retryAfter))
	}
	if answer.elsewhere {
		w.Header().Set("Connection", "close") // so that the repetition, by whomever, may reach another replica
	}
	if answer.err != nil {
		http.Error(w, answer.err.Error(), answer.code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer.review) // who does not read the answer is gone
}

// call is what the metrics say of a call.
type call struct {
	started   time.Time
	operation admissionv1.Operation
	result    string
}

// reply is what a call is answered with: an AdmissionReview, or an HTTP error.
type reply struct {
	review     []byte
	code       int
	err        error
	retryAfter int // seconds; less than 0 for none
	elsewhere  bool
}

func httpError(code int, err error) *reply { return &reply{code: code, err: err, retryAfter: -1} }

// crowded has the API server repeat a call a second later.
func crowded(err error) *reply {
	return &reply{code: http.StatusServiceUnavailable, err: err, retryAfter: 1}
}

// work answers a call whose body was read.
func (e *edge) work(r *http.Request, body []byte, c *call) *reply {
	leave, err := e.places.enter(int64(len(body)))
	if err != nil {
		c.result = resultUnavailable
		return crowded(err)
	}
	defer leave()
	forget, err := e.places.decode(body)
	if err != nil {
		c.result = resultUnavailable
		return crowded(err)
	}
	defer forget()
	review, err := readReview(body)
	if err != nil {
		return httpError(http.StatusBadRequest, err)
	}
	c.operation = review.Request.Operation
	deadline, again := e.repeats.deadline(review.Request.UID, c.started.Add(timeLeft(r)))
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()
	var (
		answer admission.Response
		down   *ledger.NotServingError
	)
	req := &admission.Request{AdmissionRequest: *review.Request}
	for {
		answer, c.result, down = e.handle(ctx, req)
		// A holder with troubles of its own nobody else can help.
		if down == nil || down.Here || ctx.Err() != nil || e.ledger.Answers() || !e.mayPassOn(r) {
			break
		}
		passed, err := e.passOn(ctx, r, body)
		if passed != nil {
			c.result = resultForwarded
			return &reply{review: passed, retryAfter: -1}
		}
		if err != nil {
			break
		}
	}

	elsewhere := down != nil && !down.Here
	if elsewhere {
		unavailable := httpError(http.StatusServiceUnavailable, errors.New(answer.Result.Message))
		unavailable.elsewhere = true
		after := e.retryAfter(down, again)
		if time.Until(deadline) > after+anotherTry {
			if r.Header.Get(forwardedHeader) == "" { // who has passed it on knows how much time it has
				e.repeats.sentAway(review.Request.UID, deadline)
			}
			unavailable.retryAfter = int(after / time.Second)
			return unavailable
		}
		if e.first {
			return unavailable
		}
	}
	review.Request, review.Response = nil, &answer.AdmissionResponse
	text, err := json.Marshal(review)
	if err != nil {
		return httpError(http.StatusInternalServerError, err)
	}
	return &reply{review: text, retryAfter: -1, elsewhere: elsewhere}
}

// mayPassOn says whether another replica may answer a call: not where one has passed it on to this one.
func (e *edge) mayPassOn(r *http.Request) bool {
	return e.peers != nil && r.Header.Get(forwardedHeader) == "" && !e.isStopping()
}

// readBody reads the body of a call, or says why it is none.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *reply) {
	caller, connection := connections.Of(r), http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(min(bodyTimeout, timeLeft(r)))) // on every connection of a server
	size := r.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody // no more of it is read
	}
	caller.Reading(size)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	kept := caller.Working()
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, httpError(http.StatusRequestEntityTooLarge, fmt.Errorf("the admission review has more than %d bytes: make the object smaller", large.Limit))
	}
	if !kept {
		return nil, crowded(errors.New("calls that come slowly take all memory that there is for them: try again"))
	}
	if err != nil {
		return nil, httpError(http.StatusBadRequest, fmt.Errorf("the admission review cannot be read: %w", err))
	}
	_ = connection.SetReadDeadline(time.Time{}) // else it would end the call itself
	return body, nil
}

// readReview reads an AdmissionReview that has a request.
func readReview(body []byte) (*admissionv1.AdmissionReview, error) {
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, fmt.Errorf("the body is no admission review: %w", err)
	}
	if got := review.GroupVersionKind(); got != reviewKind || review.Request == nil {
		return nil, fmt.Errorf("the body is %q, or has no request: this webhook takes requests of %q", got, reviewKind)
	}
	return review, nil
}

// timeLeft is how long a call may take here: what its caller waits, less a margin for the way back.
func timeLeft(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		timeout = defaultTimeout
	}
	timeout = min(timeout, maxTimeout)
	if r.Header.Get(forwardedHeader) != "" {
		return timeout - hopMargin
	}
	return timeout - min(margin, timeout/4)
}

// retryAfter is in how long the API server should repeat a call: at once where another replica may answer it. One that comes again has found no
// such replica, and the API server repeats it ten times only.
func (e *edge) retryAfter(down *ledger.NotServingError, again bool) time.Duration {
	switch {
	case !e.isStopping():
		return wholeSeconds(down.RetryAfter)
	case again:
		return time.Second
	default:
		return 0
	}
}

// wholeSeconds rounds up: the API server reads nothing finer.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

func (e *edge) isStopping() bool {
	select {
	case <-e.stopping:
		return true
	default:
		return false
	}
}

// handle answers a request. down is why this replica cannot serve, nil where it can.
func (e *edge) handle(ctx context.Context, req *admission.Request) (answer admission.Response, result string, down *ledger.NotServingError) {
	answer, err := e.checked(ctx, req)
	if err == nil {
		err = answer.Complete(*req)
	}
	if err == nil {
		return answer, resultAllowed, nil
	}
	status := statusOf(err, e.subject, req)
	answer = admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{UID: req.UID, Result: status}}
	log := e.log.WithValues("operation", req.Operation, "namespace", req.Namespace, "name", req.Name)
	switch {
	case errors.As(err, &down):
		log.V(1).Info("Cannot serve now", "reason", down.Reason)
		return answer, resultUnavailable, down
	case status.Code == http.StatusInternalServerError:
		log.Error(err, "Cannot answer")
		return answer, resultBroken, nil
	}
	log.V(1).Info("Refused", "reason", fields.Short(err.Error()))
	return answer, resultDenied, nil
}

// checked answers requests that are the webhook's business. Others pass, or are refused where they make no sense.
func (e *edge) checked(ctx context.Context, req *admission.Request) (answer admission.Response, err error) {
	defer func() {
		if p := recover(); p != nil { // else the connection would break
			e.log.Error(fmt.Errorf("%v", p), "Panicked", "stack", string(debug.Stack()))
			err = errors.New("the webhook has a bug: its log says more")
		}
	}()
	want := e.subject.kind
	switch got := req.Kind; {
	case got.Group != want.Group || got.Version != want.Version || got.Kind != want.Kind:
		return admission.Response{}, badRequest(fmt.Sprintf("request.kind is %q, this webhook takes %q: correct the rules of the webhook configuration", got.String(), want.String()))
	case !slices.Contains(operations, req.Operation):
		return admission.Response{}, badRequest(fmt.Sprintf("request.operation %q is none of %q", req.Operation, operations))
	case req.SubResource != "":
		return admission.Allowed(""), nil // status and the like hold no addresses
	case req.Namespace == "" && !e.subject.clusterScoped:
		return admission.Response{}, badRequest("request.namespace is empty, the object has one")
	}
	return e.answer(ctx, req)
}
