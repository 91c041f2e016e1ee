package webhooks

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
)

const (
	// forwardedHeader marks a call that comes from another replica, and names that: it is not passed on again.
	forwardedHeader = "Butler-Ipam-Forwarded-By"
	// hopMargin is left of a forwarded call's time for its answer to come back.
	hopMargin = 50 * time.Millisecond
	// hurryEvery is how often a call that waits for a holder has the journal looked at.
	hurryEvery = 25 * time.Millisecond
	// maxAnswer bounds the answer of another replica, in bytes.
	maxAnswer = 1 << 20
)

// errElsewhere says that the replica that was asked holds the journal no more.
var errElsewhere = errors.New("the replica asked does not hold the journal")

// passOn gives a call that this replica cannot answer to the journal's holder, and while nobody holds it waits. It reports whether the
// call is answered: if not, this replica may serve by now, or the time is over.
func (e *edge) passOn(ctx context.Context, w http.ResponseWriter, r *http.Request, body []byte) bool {
	asked := "" // holder that could not answer
	for ctx.Err() == nil && !e.isStopping() && !e.ledger.Serving() {
		holder, moved := e.ledger.HeldBy()
		if journal.AddressOf(holder) != "" && holder != asked && holder != e.identity {
			answer, err := e.ask(ctx, holder, moved, r.URL.Path, body)
			if err == nil {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(answer) // who does not read the answer is gone
				return true
			}
			e.log.V(1).Info("The journal's holder does not answer", "holder", holder, "reason", err.Error())
			if errors.Is(err, syscall.ECONNREFUSED) {
				e.ledger.Refused(holder)
			}
			asked = holder
		}
		e.ledger.Hurry()
		tick := time.NewTimer(hurryEvery)
		select {
		case <-ctx.Done():
		case <-e.stopping:
		case <-moved:
		case <-tick.C:
			// One that was starting or stopping may serve by now.
			asked = ""
		}
		tick.Stop()
	}
	return false
}

// ask gives a call to a holder, until another takes its place.
func (e *edge) ask(ctx context.Context, holder string, moved <-chan struct{}, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-moved:
			cancel(errElsewhere)
		case <-ctx.Done():
		}
	}()
	deadline, _ := ctx.Deadline()
	url := fmt.Sprintf("https://%s%s?timeout=%s", journal.AddressOf(holder), path, time.Until(deadline).Round(time.Millisecond))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(forwardedHeader, e.identity)
	response, err := e.peers.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusServiceUnavailable:
		return nil, errElsewhere
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("HTTP %s: %s", response.Status, answer[:min(len(answer), 200)])
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	return answer, nil
}
