package informers

import (
	"context"
	"errors"
	"io"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	refused   = &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api", Err: errors.New("connection refused")}
	forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pools"}, "", errors.New("RBAC"))
)

func TestOnlyWhatTheAPIServerAnswersIsTheInformers(t *testing.T) {
	pools := schema.GroupResource{Resource: "pools"}
	for name, test := range map[string]struct {
		err        error
		unanswered bool
	}{
		"nothing":        {nil, false},
		"refused":        {refused, true},
		"cut short":      {io.ErrUnexpectedEOF, true},
		"starting":       {apierrors.NewServiceUnavailable("starting"), true},
		"flooded":        {apierrors.NewTooManyRequests("later", 1), true},
		"broken":         {apierrors.NewInternalError(errors.New("conversion webhook")), true},
		"etcd hangs":     {apierrors.NewTimeoutError("etcd", 1), true},
		"try elsewhere":  {apierrors.NewServerTimeout(pools, "list", 1), true},
		"expired":        {apierrors.NewResourceExpired("too old"), false},
		"gone":           {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 410, Reason: metav1.StatusReasonGone}}, false},
		"not served":     {apierrors.NewNotFound(pools, ""), false},
		"not understood": {apierrors.NewBadRequest("selector"), false},
		"no right":       {forbidden, false},
		"unknown":        {apierrors.NewUnauthorized("token"), false},
	} {
		if is := isConnectionError(test.err); is != test.unanswered {
			t.Errorf("%s: %v: unanswered is %v", name, test.err, is)
		}
	}
}

// told counts the lines of a log.
func told(lines *int) logr.Logger {
	return funcr.New(func(string, string) { *lines++ }, funcr.Options{})
}

func TestAnAPIServerIsAskedAgainWithinSecondsHoweverLongItWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, start := 0, time.Now()
		var asked time.Time // last before its answer
		answer, err := callWithRetry(t.Context(), told(&lines), func() (string, error) {
			if time.Since(start) < 10*time.Minute {
				if !asked.IsZero() && time.Since(asked) > 2*time.Second {
					t.Errorf("asked after %s", time.Since(asked))
				}
				asked = time.Now()
				return "", refused
			}
			return "list", nil
		})
		if answer != "list" || err != nil {
			t.Fatal(answer, err)
		}
		if late := time.Since(start) - 10*time.Minute; late > 2*time.Second {
			t.Errorf("answered %s late", late)
		}
		if lines < 5 || lines > 10 {
			t.Errorf("%d lines in ten minutes", lines)
		}
	})
}

func TestRightsThatAreNotKnownYetAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, calls := 0, 0
		_, err := callWithRetry(t.Context(), told(&lines), func() (string, error) {
			if calls++; calls < 2 {
				return "", refused
			}
			if calls < 4 {
				return "", forbidden
			}
			return "list", nil
		})
		if err != nil {
			t.Error(err)
		}
		start := time.Now()
		calls = 0
		_, err = callWithRetry(t.Context(), told(&lines), func() (string, error) {
			if calls++; calls < 2 {
				return "", refused
			}
			return "", forbidden
		})
		if !errors.Is(err, forbidden) {
			t.Errorf("no right at all: %v", err)
		}
		if after := time.Since(start); after < settling || after > 2*settling {
			t.Errorf("no right at all: told after %s", after)
		}
		if _, err := callWithRetry(t.Context(), told(&lines), func() (string, error) { return "", forbidden }); !errors.Is(err, forbidden) {
			t.Errorf("no right, and never silent: %v", err)
		}
	})
}

func TestWhoIsToldToStopStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start, lines := time.Now(), 0
		if _, err := callWithRetry(ctx, told(&lines), func() (string, error) { return "", refused }); !errors.Is(err, refused) {
			t.Error(err)
		}
		if after := time.Since(start); after != time.Minute {
			t.Errorf("stopped after %s", after)
		}
	})
}
