package replicas

import (
	"testing"

	"butlerlabs.dev/ipam/test/sandbox"
)

// cutOff cuts the connections between a manager and its peers, in both directions, and
// optionally its connections to the API server. The API server still reaches the manager.
func cutOff(t *testing.T, m *sandbox.Manager, fromAPIServer bool, how sandbox.Cut) (mend func()) {
	t.Helper()
	set := func(c sandbox.Condition) {
		m.Peers.Set("", c)
		for _, peer := range cluster.Managers() {
			if peer != m {
				peer.Peers.Set(m.Name(), c)
			}
		}
		if fromAPIServer {
			m.APIServer.Set("", c)
		}
	}
	set(sandbox.Condition{Cut: how})
	mend = func() { set(sandbox.Condition{}) }
	t.Cleanup(mend)
	return mend
}

// noneSentBack checks that the number of calls that clients had to repeat has not grown.
// A replica that cannot get a response for a call asks the API server after a second to
// call another replica. Without this, the call would wait until its timeout, and the
// client would have to repeat it.
func noneSentBack(t *testing.T, before int64) {
	t.Helper()
	if n := sentBackCount.Load() - before; n > 0 {
		t.Errorf("clients had to repeat their calls %d times", n)
	}
}

func TestFailover_LeaderUnreachableForItsPeers(t *testing.T) {
	for _, how := range []sandbox.Cut{sandbox.Silent, sandbox.Reset} {
		t.Run(how.String(), func(t *testing.T) {
			before := sentBackCount.Load()
			l := startLoad(t)
			mend := cutOff(t, leader(t), false, how)
			l.Await(30 * clients)
			mend()
			l.Await(5 * clients)
			_, failures := l.Stop()
			noFailure(t, failures)
			noneSentBack(t, before)
		})
	}
}

func TestFailover_LeaderCutOff(t *testing.T) {
	for _, how := range []sandbox.Cut{sandbox.Silent, sandbox.Reset} {
		t.Run(how.String(), func(t *testing.T) {
			before := sentBackCount.Load()
			l := startLoad(t)
			was := leader(t)
			mend := cutOff(t, was, true, how)
			l.Await(30 * clients)
			if is := leader(t); is == was {
				t.Errorf("%s is cut off and still holds the journal", was.Name())
			}
			mend()
			l.Await(5 * clients)
			_, failures := l.Stop()
			noFailure(t, failures)
			noneSentBack(t, before)
		})
	}
}
