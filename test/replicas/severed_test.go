package replicas

import (
	"testing"

	"butlerlabs.dev/ipam/test/sandbox"
)

// cutOff cuts a manager off from its peers, in both directions, and from the API server if it is told to. The API server still reaches it.
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

// noneSentBack checks that the API server found an answer for every call since there were so many. One that comes to a replica which
// cannot have it answered is sent on to another after a second; without that it would stay there for its whole time, and its client had to repeat it.
func noneSentBack(t *testing.T, before int64) {
	t.Helper()
	if n := sentBackCount.Load() - before; n > 0 {
		t.Errorf("clients had to repeat their calls %d times", n)
	}
}

func TestAHolderThatItsPeersDoNotReachIsAskedByTheAPIServer(t *testing.T) {
	for _, how := range []sandbox.Cut{sandbox.Silent, sandbox.Reset} {
		t.Run(how.String(), func(t *testing.T) {
			before := sentBackCount.Load()
			l := startLoad(t)
			mend := cutOff(t, holder(t), false, how)
			l.Await(30 * clients)
			mend()
			l.Await(5 * clients)
			_, failures := l.Stop()
			noFailure(t, failures)
			noneSentBack(t, before)
		})
	}
}

func TestAHolderThatIsCutOffIsReplacedAndAnswersNothingStale(t *testing.T) {
	for _, how := range []sandbox.Cut{sandbox.Silent, sandbox.Reset} {
		t.Run(how.String(), func(t *testing.T) {
			before := sentBackCount.Load()
			l := startLoad(t)
			was := holder(t)
			mend := cutOff(t, was, true, how)
			l.Await(30 * clients)
			if is := holder(t); is == was {
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
