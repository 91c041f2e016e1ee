// Package review is the transport of the webhooks: it reads AdmissionReviews, bounds the
// calls at work, calls the function of a Hook, forwards the call to the leader if this
// replica cannot serve, and turns errors into API statuses.
//
//	API server ──▶ Handler: body size, deadline, limiter ──▶ Hook.Func ──▶ ledger
//	           ◀── allowed, denied, or HTTP 503 ──────────── forward to the leader (once, over TLS)
//
// # A replica that cannot serve
//
//	condition                                            outcome
//	another replica leads                                the call is forwarded, and the leader's answer is returned unchanged
//	no replica leads                                     the call waits; the journal is polled every 25 ms; the new leader answers
//	the leader refuses connections                       this replica takes over the journal at once
//	the leader renews the journal but does not answer    after 1 s: HTTP 503, so the API server calls another replica
//	this replica can reach neither leader nor journal    HTTP 503, likewise
//	this replica stops                                   HTTP 503 with Retry-After 0 and Connection: close
//	the leader is overloaded                             HTTP 503 with Retry-After 1
//	the deadline is near                                 webhook with failurePolicy Ignore (FirstEntry, see Entry): HTTP error, and the API server calls
//	                                                     SecondEntry. Other webhooks: denial with code 503 and retryAfterSeconds, so the client repeats its create
//
// The API server repeats a call answered with 503 and Retry-After over a new connection,
// at most ten times. If an answer is lost on its way, the repeated call gets a grant of
// its own, and the first grant stays unused until it expires.
//
// A Handler is safe for concurrent use. Handlers of one Transport share the limiter and
// the retry deadlines.
package review
