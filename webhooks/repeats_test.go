package webhooks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestWhatIsRememberedOfCallsIsBounded(t *testing.T) {
	r := &repeats{until: map[types.UID]time.Time{}}
	soon := time.Now().Add(time.Minute)
	r.sentAway(types.UID(strings.Repeat("x", maxUID+1)), soon)
	if len(r.until) > 0 {
		t.Error("a UID longer than any of the API server's is kept")
	}
	for i := range maxRepeats + 1 {
		r.until[types.UID(fmt.Sprint(i))] = soon
	}
	r.sentAway("one more", soon)
	if _, again := r.deadline("one more", soon); again {
		t.Errorf("more than %d calls are kept", maxRepeats)
	}
	for uid := range r.until {
		r.until[uid] = time.Now().Add(-time.Second)
	}
	r.sentAway("later", soon)
	if _, again := r.deadline("later", soon); !again || len(r.until) != 1 {
		t.Errorf("%d calls are kept, want the one whose time is not over", len(r.until))
	}
}
