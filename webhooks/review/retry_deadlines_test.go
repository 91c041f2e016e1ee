package review

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestRetryDeadlines_AreBounded(t *testing.T) {
	r := newRetryDeadlines()
	soon := time.Now().Add(time.Minute)
	r.recordDeadline(types.UID(strings.Repeat("x", maxUIDLength+1)), soon)
	if len(r.until) > 0 {
		t.Error("a UID longer than any of the API server's is kept")
	}
	for i := range maxRetryDeadlines + 1 {
		r.until[types.UID(fmt.Sprint(i))] = soon
	}
	r.recordDeadline("one more", soon)
	if _, again := r.findDeadline("one more", soon); again {
		t.Errorf("more than %d calls are kept", maxRetryDeadlines)
	}
	for uid := range r.until {
		r.until[uid] = time.Now().Add(-time.Second)
	}
	r.recordDeadline("later", soon)
	if _, again := r.findDeadline("later", soon); !again || len(r.until) != 1 {
		t.Errorf("%d calls are kept, want the one whose time is not over", len(r.until))
	}
}
