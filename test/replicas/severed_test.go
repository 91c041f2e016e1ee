package replicas

import (
	"testing"
	"time"

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

// mostSlow is how long a create may take at most while a replica is cut off. A call that comes to one which cannot have it answered is sent
// back after a second and repeated elsewhere; without that it would stay there for its whole time, and its client repeat it.
const mostSlow = 10 * time.Second

func TestAHolderThatItsPeersDoNotReachIsAskedByTheAPIServer(t *testing.T) {
	for _, how := range []sandbox.Cut{sandbox.Silent, sandbox.Reset} {
		t.Run(how.String(), func(t *testing.T) {
			l := startLoad(t, clients)
			mend := cutOff(t, holder(t), false, how)
			l.await(30 * clients)
			mend()
			l.await(5 * clients)
			_, failures := l.stop()
			noFailure(t, failures)
			if l.slowest > mostSlow {
				t.Errorf("a create took %s, want at most %s", l.slowest, mostSlow)
			}
		})
	}
}

func TestAHolderThatIsCutOffIsReplacedAndAnswersNothingStale(t *testing.T) {
	for _, how := range []sandbox.Cut{sandbox.Silent, sandbox.Reset} {
		t.Run(how.String(), func(t *testing.T) {
			l := startLoad(t, clients)
			was := holder(t)
			mend := cutOff(t, was, true, how)
			l.await(30 * clients)
			if is := holder(t); is == was {
				t.Errorf("%s is cut off and still holds the journal", was.Name())
			}
			mend()
			l.await(5 * clients)
			_, failures := l.stop()
			noFailure(t, failures)
			if l.slowest > mostSlow {
				t.Errorf("a create took %s, want at most %s", l.slowest, mostSlow)
			}
		})
	}
}
