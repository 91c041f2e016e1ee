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
	// patience is how long a holder that lives may leave a call unanswered before another replica is asked: it writes the journal at least
	// once in that time, and answers with every write.
	patience = time.Second
	// clarity is how long a call waits for this replica to learn whether it still holds the journal: one that was only paused knows with its
	// next write.
	clarity = 250 * time.Millisecond
	// maxAnswer bounds the answer of another replica, in bytes.
	maxAnswer = 1 << 20
)

var (
	// errElsewhere says that the replica that was asked holds the journal no more, or not yet.
	errElsewhere = errors.New("the replica asked does not hold the journal")
	// errOutOfReach says that the journal's holder does not answer this replica, while others may well reach it.
	errOutOfReach = errors.New("the journal's holder is out of reach")
)

// passOn gives a call that this replica cannot answer to the journal's holder, and while nobody holds it waits. It returns the answer. Without an
// answer or an error this replica may serve by now, or the time is over; with errOutOfReach another replica is to be asked.
func (e *edge) passOn(ctx context.Context, r *http.Request, body []byte) (answer []byte, err error) {
	var (
		known string    // the holder
		since time.Time // when it was first asked, or has last been heard of
		asked bool      // and could not answer
	)
	for ctx.Err() == nil && !e.isStopping() && !e.ledger.Answers() {
		holder, moved := e.ledger.HeldBy()
		if holder != known || since.IsZero() {
			known, since, asked = holder, time.Now(), false
		}
		if journal.AddressOf(holder) != "" && holder != e.identity && !asked {
			answer, err := e.ask(ctx, holder, since, moved, r.URL.Path, body)
			if err == nil {
				return answer, nil
			}
			e.log.V(1).Info("The journal's holder does not answer", "holder", holder, "reason", err.Error())
			switch {
			case errors.Is(err, errElsewhere):
				since = time.Now()
			case errors.Is(err, syscall.ECONNREFUSED):
				e.ledger.Refused(holder)
			}
			asked = true
		}
		if e.outOfReach(since) || e.ledger.Serving() && time.Since(since) > clarity {
			return nil, errOutOfReach
		}
		e.ledger.Hurry()
		tick := time.NewTimer(hurryEvery)
		select {
		case <-ctx.Done():
		case <-e.stopping:
		case <-moved:
		case <-tick.C:
			asked = false // one that was starting or stopping may serve by now
		}
		tick.Stop()
	}
	return nil, nil
}

// outOfReach says whether a holder that was not heard of since a certain time lives all the same: it has written the journal well after
// that. Of one that cannot be seen to write either, it is more likely this replica that is cut off.
func (e *edge) outOfReach(since time.Time) bool {
	read, written := e.ledger.Sighted()
	return time.Since(since) > patience && (written.Sub(since) > patience/2 || time.Since(read) > e.ledger.Expiry())
}

// ask gives a call to a holder, until that is out of reach or another takes its place.
func (e *edge) ask(ctx context.Context, holder string, since time.Time, moved <-chan struct{}, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		look := time.NewTimer(patience)
		defer look.Stop()
		for !e.outOfReach(since) {
			select {
			case <-moved:
				cancel(errElsewhere)
				return
			case <-ctx.Done():
				return
			case <-look.C:
				look.Reset(patience / 10)
			}
		}
		cancel(errOutOfReach)
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
