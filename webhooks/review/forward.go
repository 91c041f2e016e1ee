package review

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
)

const (
	// forwardedHeader carries the identity of the replica that forwarded the call. A
	// forwarded call is not forwarded again.
	forwardedHeader = "Butler-Ipam-Forwarded-By"
	// overloadedHeader marks HTTP 503 of a replica that has no room for a call.
	overloadedHeader = "Butler-Ipam-Overloaded"
	// forwardMargin is the part of a forwarded call's timeout that is reserved for the
	// way back.
	forwardMargin = 50 * time.Millisecond
	// journalPoll is the interval at which a waiting call has the journal polled.
	journalPoll = 25 * time.Millisecond
	// leaderTimeout bounds how long a live leader may leave a call unanswered before the
	// API server is sent to another replica. A live leader commits to the journal at
	// least once in that time, and each commit answers calls.
	leaderTimeout = time.Second
	// leaseDoubtTimeout bounds how long a call waits for this replica to learn whether it
	// still leads. A leader that was only paused learns it with its next commit.
	leaseDoubtTimeout = 250 * time.Millisecond
	// maxForwardedAnswer bounds the answer of another replica, in bytes.
	maxForwardedAnswer = 1 << 20
)

var (
	// errNotLeader means that the replica called answered 503: it no longer leads, does
	// not lead yet, or stops.
	errNotLeader = errors.New("the replica asked does not lead")
	// errLeaderUnreachable means that the leader does not answer this replica, although
	// other replicas may reach the leader.
	errLeaderUnreachable = errors.New("the leader is unreachable")
	// errLeaderOverloaded means that the leader has no room for the call. The API server
	// repeats the call after a second: a call forwarded again every journalPoll would add
	// to the load.
	errLeaderOverloaded = &ledger.NotServingError{RetryAfter: time.Second, Reason: "the leader has more calls than it can work on"}
)

// forwardToLeader forwards a call that this replica cannot serve, and waits while no
// replica leads.
//
//	answer, nil                     the leader's answer
//	nil, errLeaderUnreachable       another replica should be called
//	nil, errLeaderOverloaded        the call should be repeated later
//	nil, nil                        this replica leads now, stops, or ctx has ended
func (e *Handler) forwardToLeader(ctx context.Context, r *http.Request, body []byte) (answer []byte, err error) {
	var (
		known string    // identity of the leader
		since time.Time // when the leader was first called, or has last answered
		tried bool      // the leader was called since the last poll, and could not answer
	)
	for ctx.Err() == nil && !e.isStopping() && !e.Ledger.HasCurrentProof() { // a replica that leads answers the call itself
		leader, changed := e.Ledger.Leader()
		if leader != known || since.IsZero() {
			known, since, tried = leader, time.Now(), false
		}
		if journal.AddressOf(leader) != "" && leader != e.Identity && !tried {
			answer, err := e.callLeader(ctx, leader, since, changed, r.URL.Path, body)
			if err == nil {
				return answer, nil
			}
			e.Log.V(1).Info("The leader does not answer", "leader", leader, "reason", err.Error())
			switch {
			case errors.Is(err, errLeaderOverloaded):
				return nil, err
			case errors.Is(err, errNotLeader):
				since = time.Now()
			case errors.Is(err, syscall.ECONNREFUSED):
				e.Ledger.ReportUnreachable(leader)
			}
			tried = true
		}
		inDoubt := e.Ledger.MayGrant() // without a current proof, as the loop requires: this replica led, and does not know whether it still leads
		if e.isLeaderUnreachable(since) || inDoubt && time.Since(since) > leaseDoubtTimeout {
			return nil, errLeaderUnreachable
		}
		e.Ledger.PollNow()
		poll := time.NewTimer(journalPoll)
		select {
		case <-ctx.Done():
		case <-e.Stopping:
		case <-changed:
		case <-poll.C:
			tried = false // a leader that was starting or stopping may serve by now
		}
		poll.Stop()
	}
	return nil, nil
}

// isLeaderUnreachable reports whether this replica cannot reach a leader that has not
// answered since a time, while another replica may reach it. Either the leader is alive,
// as it renewed the journal well after that time; or this replica is cut off, as it
// cannot read the journal.
func (e *Handler) isLeaderUnreachable(since time.Time) bool {
	readAt, versionReadAt := e.Ledger.LastObserved()
	alive, cutOff := versionReadAt.Sub(since) > leaderTimeout/2, time.Since(readAt) > e.Ledger.Expiry()
	return time.Since(since) > leaderTimeout && (alive || cutOff)
}

// callLeader sends a call to the leader, until the leader is unreachable or another
// replica leads.
func (e *Handler) callLeader(ctx context.Context, leader string, since time.Time, changed <-chan struct{}, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		check := time.NewTimer(leaderTimeout)
		defer check.Stop()
		for !e.isLeaderUnreachable(since) {
			select {
			case <-changed:
				cancel(errNotLeader)
				return
			case <-ctx.Done():
				return
			case <-check.C:
				check.Reset(leaderTimeout / 10)
			}
		}
		cancel(errLeaderUnreachable)
	}()
	deadline, _ := ctx.Deadline()
	url := fmt.Sprintf("https://%s%s?timeout=%s", journal.AddressOf(leader), path, time.Until(deadline).Round(time.Millisecond))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(forwardedHeader, e.Identity)
	response, err := e.Peers.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxForwardedAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusServiceUnavailable && response.Header.Get(overloadedHeader) != "":
		return nil, errLeaderOverloaded
	case response.StatusCode == http.StatusServiceUnavailable:
		return nil, errNotLeader
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("HTTP %s: %s", response.Status, answer[:min(len(answer), 200)])
	case len(answer) > maxForwardedAnswer:
		return nil, fmt.Errorf("an answer of more than %d bytes", maxForwardedAnswer)
	}
	return answer, nil
}
