package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// story is a small history. Revisions and seconds count up as it is told.
type story struct {
	*history
	t        *testing.T
	revision int64
	now      time.Time
}

func tell(t *testing.T, what func(*story)) *story {
	t.Helper()
	s := &story{history: newHistory(), t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	what(s)
	return s
}

func span(text string) addresses {
	r, err := allocator.ParseRange(text)
	if err != nil {
		panic(err)
	}
	return addresses{r}
}

// asked is a call of client 1 for one address of 10.0.0.0/28, with the id for its name, a
// second after the last one.
func (s *story) asked(id string, more ...func(*call)) *call {
	s.now = s.now.Add(time.Second)
	c := &call{id: id, client: 1, name: id, pool: []string{"10.0.0.0/28"}, sizes: [2]int64{1}, began: s.now, ended: s.now.Add(time.Second)}
	for _, m := range more {
		m(c)
	}
	s.called(c)
	return c
}

// given is an answer: an object of the id's UID, with a range.
func given(owned string) func(*call) {
	return func(c *call) { c.uid, c.owned = c.id, span(owned) }
}

func failing(err error) func(*call) { return func(c *call) { c.err, c.open = err, failed(err) } }

func dryRun(c *call) { c.dryRun = true }

func takes(d time.Duration) func(*call) { return func(c *call) { c.ended = c.began.Add(d) } }

// hurt has faults hit managers, from now on for an hour.
func (s *story) hurt(targets ...string) {
	for _, target := range targets {
		s.blows = append(s.blows, &blow{fault: "freeze", target: target, began: s.now, over: s.now.Add(time.Hour)})
	}
}

// stored is a version of the object that the call of this id made, Ready or flagged as
// more says.
func (s *story) stored(id, owned string, more ...func(*version)) {
	s.t.Helper()
	s.revision++
	v := version{revision: s.revision, name: id, uid: id, call: id, whole: true}
	if owned != "" {
		v.owned = span(owned)
	}
	for _, m := range more {
		m(&v)
	}
	if err := s.history.stored.put(v, s.before(v.name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) gone(name string) {
	s.t.Helper()
	s.revision++
	if err := s.history.stored.remove(name, s.revision, s.before(name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) before(name string) int64 {
	if o := s.history.stored.live[name]; o != nil {
		return o.last
	}
	return 0
}

// lists has the IPPool list an address as gone to another cluster with a claim.
func (s *story) lists(claim, at string) {
	s.revision++
	s.history.stored.listed([]ledger.RecordedRange{{Range: span(at)[0], Claim: ledger.Key{Name: claim}}}, s.revision, s.now)
}

// absent has a pool be absent from now on, until over is called.
func (s *story) absent(pool string) (over func()) {
	a := &absence{pool: pool, began: s.now}
	s.absences = append(s.absences, a)
	return func() { a.over, a.lost = s.now, true }
}

func inWide(c *call) { c.poolName = "NetworkPool wide" }

// unallocated is an answer without a range to a create in the pool wide.
func unallocated(c *call) {
	inWide(c)
	c.uid = c.id
}

// waiting is a version without a range.
func waiting(v *version) { v.owned, v.whole, v.waits = addresses{}, false, true }

// ofService makes a version that of the ProxyVIP of a Service, which a manager created.
func ofService(name string) func(*version) {
	return func(v *version) { v.name, v.call = vipOfService(name), "" }
}

func ready(v *version)   { v.ready = true }
func flagged(v *version) { v.flagged = true }

var (
	exhausted   = status(http.StatusForbidden, "the pool is exhausted")
	errNoAnswer = errors.New("read tcp: connection reset by peer")
	late        = status(http.StatusGatewayTimeout, "request did not complete within requested timeout")
	taken       = apierrors.NewAlreadyExists(v1alpha1.GroupVersion.WithResource("ipallocations").GroupResource(), "x")
	validating  = onWire("validate-butler-butlerlabs-dev-v1alpha1-ipallocation")
	mutating    = onWire("mutate-butler-butlerlabs-dev-v1alpha1-ipallocation")
)

func status(code int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
}

// onWire is what the API server says of a call of a webhook that broke.
func onWire(path string) error {
	return status(http.StatusInternalServerError, fmt.Sprintf(`Internal error occurred: failed calling webhook "ipallocation.butler.butlerlabs.dev": `+
		`failed to call webhook: Post "https://butler-ipam-webhook.butler-ipam-system.svc:443/%s?timeout=10s": EOF`, path))
}

func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		leeway leeway
		story  func(*story)
		want   []string // in each violation; none where the history is right
	}{
		"a create, its status, its end, and another with its range": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1")
			s.stored("a", "10.0.0.1", ready)
			s.gone("a")
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1", ready)
		}},
		"a name that is created anew": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1", ready)
			s.gone("a")
			s.asked("again", given("10.0.0.2"), func(c *call) { c.name = "a" })
			s.stored("again", "10.0.0.2", func(v *version) { v.name = "a" })
		}},
		"both of an overlap were answered": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1")
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1", flagged)
			s.gone("b")
		}, want: []string{"a (10.0.0.1, created at revision 1) and b (10.0.0.1, created at revision 2) overlap from revision 2 on, and both creates were answered"}},
		"two Ready at a time": {leeway: anythingFails, story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1", ready)
			s.asked("b", failing(late))
			s.stored("b", "10.0.0.1", flagged)
			s.stored("b", "10.0.0.1", ready)
			s.stored("b", "10.0.0.1", flagged)
		}, want: []string{"b (10.0.0.1, created at revision 2) became Ready at revision 3 while a"}},
		"a late one is flagged": {leeway: anythingFails, story: func(s *story) {
			s.asked("a", failing(late))
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1", ready)
			s.stored("a", "10.0.0.1")
			s.stored("a", "10.0.0.1", flagged)
		}},
		"a late one is gone": {leeway: anythingFails, story: func(s *story) {
			s.asked("a", failing(late))
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1", ready)
			s.stored("a", "10.0.0.1")
			s.gone("a")
		}},
		"a late one is not flagged": {leeway: anythingFails, story: func(s *story) {
			s.asked("a", failing(late))
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1", ready)
			s.stored("a", "10.0.0.1")
		}, want: []string{"neither is flagged"}},
		"a claim goes to another cluster and comes back": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1", ready)
			s.gone("a")
			s.lists("a", "10.0.0.1")
			s.asked("again", given("10.0.0.1"), func(c *call) { c.name = "a" })
			s.stored("again", "10.0.0.1", func(v *version) { v.name = "a" })
			s.lists("a", "10.0.0.1") // by a manager that has not seen that
			s.gone("a")
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1")
		}},
		"an address that is in another cluster, once a list without it has come": {story: func(s *story) {
			s.lists("a", "10.0.0.1")
			s.history.stored.listed(nil, s.revision, s.now)
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1")
		}, want: []string{"b (10.0.0.1, created at revision 2) has 10.0.0.1, which a has in another cluster, as the pool listed at revision 1"}},
		"an address that a person has taken out of the list": {story: func(s *story) {
			s.lists("a", "10.0.0.1")
			s.freed(netip.MustParseAddr("10.0.0.1"))
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1")
		}},
		"an answer that was never stored": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
		}, want: []string{"was answered with 10.0.0.1 and never stored"}},
		"an answer that says another range": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.2")
		}, want: []string{"was answered with 10.0.0.1, stored is a (10.0.0.2"}},
		"an answer of the wrong size": {story: func(s *story) {
			s.asked("a", given("10.0.0.1-10.0.0.2"))
			s.stored("a", "10.0.0.1-10.0.0.2")
		}, want: []string{"asked for were 1 addresses"}},
		"an answer outside of the pool": {story: func(s *story) {
			s.asked("a", given("10.0.0.16"))
			s.stored("a", "10.0.0.16")
		}, want: []string{"outside of the pool"}},
		"an answer that is not the range asked for": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"), func(c *call) { c.exact = span("10.0.0.2") })
			s.stored("a", "10.0.0.1")
		}, want: []string{"asked for was 10.0.0.2"}},
		"an answer without a range": {story: func(s *story) {
			s.asked("a", func(c *call) { c.uid = "a" })
			s.stored("a", "10.0.0.1", func(v *version) { v.owned, v.whole = addresses{}, false })
		}, want: []string{"created at revision 1 without its range", "the answer has no range"}},
		"an address of one family where two were asked for": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"), func(c *call) { c.sizes = [2]int64{1, 1} })
			s.stored("a", "10.0.0.1")
		}, want: []string{"the answer says 10.0.0.1, asked for were 1 addresses"}},
		"a second address that another has": {story: func(s *story) {
			six := func(v *version) { v.owned[1] = span("2001:db8::1")[0] }
			for i, id := range []string{"a", "b"} {
				s.asked(id, given(fmt.Sprintf("10.0.0.%d", i)), func(c *call) {
					c.owned[1], c.sizes, c.pool = span("2001:db8::1")[0], [2]int64{1, 1}, append(c.pool, "2001:db8::/64")
				})
				s.stored(id, fmt.Sprintf("10.0.0.%d", i), six)
			}
		}, want: []string{"overlap from revision 2 on, and both creates were answered"}},
		"a range that changes": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1")
			s.stored("a", "10.0.0.2")
			s.stored("a", "10.0.0.1")
		}, want: []string{"was moved to 10.0.0.2 at revision 2", "was moved to 10.0.0.1 at revision 3"}},
		"refusals that leave nothing": {story: func(s *story) {
			s.asked("a", failing(exhausted))
			s.asked("b", given("10.0.0.1"))
			s.stored("b", "10.0.0.1")
			s.asked("once more", failing(taken), func(c *call) { c.name = "b" })
		}},
		"a refusal that leaves an object": {story: func(s *story) {
			s.asked("a", failing(exhausted))
			s.stored("a", "10.0.0.1")
		}, want: []string{"was refused and left a"}},
		"a refusal after an attempt that may have stored": {story: func(s *story) {
			s.asked("a", failing(taken), func(c *call) { c.open = true })
			s.stored("a", "10.0.0.1")
		}},
		"a name that is said to be taken and never was": {story: func(s *story) {
			s.asked("a", failing(taken))
		}, want: []string{"nothing of that name was ever stored"}},
		"failures that leave nothing, or all": {leeway: anythingFails, story: func(s *story) {
			s.asked("a", failing(errNoAnswer))
			s.asked("b", failing(late))
			s.stored("b", "10.0.0.1")
		}},
		"a failure that leaves half an object": {leeway: anythingFails, story: func(s *story) {
			s.asked("a", failing(late))
			s.stored("a", "10.0.0.1", func(v *version) { v.whole = false })
		}, want: []string{"without its range, its token or its finalizer"}},
		"an object of nobody's": {story: func(s *story) {
			s.stored("a", "10.0.0.1")
		}, want: []string{"is of no call that was made"}},
		"a ProxyVIP that a manager created for a Service": {story: func(s *story) {
			s.services["web"] = true
			s.stored("svc", "10.0.0.1", ofService("web"))
			s.stored("svc", "10.0.0.1", ofService("web"), ready)
		}},
		"a ProxyVIP of a Service that was never created": {story: func(s *story) {
			s.stored("svc", "10.0.0.1", ofService("web"))
		}, want: []string{"is of no call that was made"}},
		"a ProxyVIP of a Service with an address of an answered create": {story: func(s *story) {
			s.services["web"] = true
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1")
			s.stored("svc", "10.0.0.1", ofService("web"))
			s.stored("svc", "10.0.0.1", ofService("web"), ready)
		}, want: []string{"both creates were answered"}},
		"a late ProxyVIP of a Service is flagged": {story: func(s *story) {
			s.services["web"] = true
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1", ready)
			s.stored("svc", "10.0.0.1", ofService("web"))
			s.stored("svc", "10.0.0.1", ofService("web"), flagged)
		}},
		"a claim without a range while its pool is absent, which gets one later": {story: func(s *story) {
			over := s.absent("NetworkPool wide")
			s.asked("a", unallocated)
			s.stored("a", "", waiting)
			over()
			s.stored("a", "10.0.0.1", ready)
		}},
		"a claim without a range while another pool is absent": {story: func(s *story) {
			s.absent("NetworkPool narrow")
			s.asked("a", unallocated)
			s.stored("a", "", waiting)
		}, want: []string{"without its range, its token or its finalizer", "the answer has no range"}},
		"a claim without a range after the absence of its pool": {story: func(s *story) {
			s.absent("NetworkPool wide")()
			s.now = s.now.Add(time.Minute)
			s.asked("a", unallocated)
			s.stored("a", "", waiting)
		}, want: []string{"without its range, its token or its finalizer", "the answer has no range"}},
		"a flag on a claim that waits for its absent pool": {story: func(s *story) {
			s.absent("NetworkPool wide")
			s.asked("a", given("10.0.0.1"), inWide)
			s.stored("a", "10.0.0.1", waiting)
			s.stored("a", "10.0.0.1", waiting, flagged)
		}},
		"an answer outside of an absent pool": {story: func(s *story) {
			s.absent("NetworkPool wide")
			s.asked("a", given("10.0.1.1"), inWide)
			s.stored("a", "10.0.1.1")
		}, want: []string{"outside of the pool"}},
		"a range is given twice while the pool is absent": {story: func(s *story) {
			s.absent("NetworkPool wide")
			s.asked("a", given("10.0.0.1"), inWide)
			s.stored("a", "10.0.0.1", ready)
			s.asked("b", given("10.0.0.1"), inWide)
			s.stored("b", "10.0.0.1")
		}, want: []string{"both creates were answered"}},
		"an owned range changes while the pool is absent": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"), inWide)
			s.stored("a", "10.0.0.1", ready)
			s.absent("NetworkPool wide")
			s.stored("a", "10.0.0.2", ready)
		}, want: []string{"a (10.0.0.1, created at revision 1) was moved to 10.0.0.2", "call a"}},
		"a dry run that leaves nothing": {story: func(s *story) {
			s.asked("a", dryRun, given("10.0.0.1"))
		}},
		"a dry run that leaves an object": {story: func(s *story) {
			s.asked("a", dryRun, given("10.0.0.1"))
			s.stored("a", "10.0.0.1")
		}, want: []string{"was a dry run and left a"}},
		"a dry run outside of the pool": {story: func(s *story) {
			s.asked("a", dryRun, given("10.0.1.1"))
		}, want: []string{"outside of the pool"}},
		"pairs that end alike": {story: func(s *story) {
			s.compare(s.asked("a", dryRun, given("10.0.0.1")), s.asked("b", given("10.0.0.1")))
			s.stored("b", "10.0.0.1")
			s.compare(s.asked("c", dryRun, failing(exhausted)), s.asked("d", failing(exhausted)))
		}},
		"a dry run succeeds and the call in earnest does not": {story: func(s *story) {
			s.compare(s.asked("a", dryRun, given("10.0.0.1")), s.asked("b", failing(exhausted)))
		}, want: []string{"was given 10.0.0.1; call b"}},
		"a dry run is refused and the call in earnest is not": {story: func(s *story) {
			s.compare(s.asked("a", dryRun, failing(exhausted)), s.asked("b", given("10.0.0.1")))
			s.stored("b", "10.0.0.1")
		}, want: []string{"was refused with 403; call b"}},
		"a dry run is refused for another reason": {story: func(s *story) {
			s.compare(s.asked("a", dryRun, failing(status(422, ""))), s.asked("b", failing(exhausted)))
		}, want: []string{"was refused with 422; call b"}},
		"somebody else refuses one of two": {story: func(s *story) {
			other := status(403, `admission webhook "other.chaos.example.com" denied the request: every second create is refused here`)
			s.compare(s.asked("a", dryRun, failing(other)), s.asked("b", given("10.0.0.1")))
			s.stored("b", "10.0.0.1")
			s.compare(s.asked("c", dryRun, given("10.0.0.2")), s.asked("d", failing(other)))
		}},
		"a create fails while managers end in good order": {leeway: nothingFails, story: func(s *story) {
			s.blows = append(s.blows, &blow{fault: "terminate", began: s.now, over: s.now.Add(time.Hour)})
			s.asked("a", failing(validating))
		}, want: []string{"while managers only ended in good order"}},
		"one validating call for each client and fault": {leeway: onTheWire, story: func(s *story) {
			s.blows = append(s.blows, &blow{fault: "freeze", began: s.now, over: s.now.Add(time.Hour)}, &blow{fault: "kill", began: s.now, over: s.now.Add(2500 * time.Millisecond)})
			s.asked("a", failing(validating))
			s.asked("b", failing(validating), func(c *call) { c.client = 2 })
			s.asked("c", failing(validating))
		}},
		"two validating calls of a client for one fault": {leeway: onTheWire, story: func(s *story) {
			s.blows = append(s.blows, &blow{fault: "kill", began: s.now, over: s.now.Add(time.Hour)})
			s.asked("a", failing(validating))
			s.asked("b", failing(validating))
		}, want: []string{"its client had 0 left"}},
		"a validating call fails after the fault": {leeway: onTheWire, story: func(s *story) {
			s.blows = append(s.blows, &blow{fault: "kill", began: s.now, over: s.now.Add(time.Second / 2)})
			s.asked("a", failing(validating))
		}, want: []string{"its client had 0 left"}},
		"a mutating call fails twice in one create, each time with another manager": {leeway: onTheWire, story: func(s *story) {
			s.hurt("manager-1", "the network of manager-2")
			s.asked("a", failing(mutating))
		}},
		"a mutating call fails for one manager": {leeway: onTheWire, story: func(s *story) {
			s.hurt("manager-1", "the network of manager-1")
			s.asked("a", failing(mutating))
		}, want: []string{"takes 2 faults at least, and its client had 1 left"}},
		"nobody answers": {leeway: onTheWire, story: func(s *story) {
			s.hurt("manager-1", "manager-2")
			s.asked("a", failing(status(503, "denied the request: come again")))
		}, want: []string{"no fault of a manager explains"}},
		"the API server does not answer": {leeway: onTheWire, story: func(s *story) {
			s.hurt("manager-1", "manager-2")
			s.asked("a", failing(errNoAnswer))
		}, want: []string{"no fault of a manager explains"}},
		"a flag for nothing": {story: func(s *story) {
			s.asked("a", given("10.0.0.1"))
			s.stored("a", "10.0.0.1", ready)
			s.stored("a", "10.0.0.1", flagged)
			s.stored("a", "10.0.0.1", ready)
		}, want: []string{"nobody else had an address"}},
		"what was found out on the way": {story: func(s *story) {
			s.blame("the answer to an update of a says another range")
		}, want: []string{"an update of a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := tell(t, tc.story).judge(tc.leeway).broken
			missing := slices.DeleteFunc(slices.Clone(tc.want), func(want string) bool {
				return slices.ContainsFunc(got, func(b string) bool { return strings.Contains(b, want) })
			})
			if len(got) != len(tc.want) || len(missing) > 0 {
				t.Errorf("found:\n%s\nnot found: %q", strings.Join(got, "\n"), missing)
			}
		})
	}
}

func TestVerdict_LastLineCountsOutcomes(t *testing.T) {
	v := tell(t, func(s *story) {
		s.asked("a", given("10.0.0.1"))
		s.stored("a", "10.0.0.1", ready)
		s.asked("dry", dryRun, given("10.0.0.2"))
		s.asked("b", failing(exhausted))
		s.asked("c", failing(late))
		s.stored("c", "10.0.0.1", flagged)
		s.asked("d", given("10.0.0.2"))
		s.stored("d", "10.0.0.2")
		s.asked("e", given("10.0.0.2"))
		s.stored("e", "10.0.0.2")
		s.now = s.now.Add(time.Hour) // nobody asks
		s.asked("f", failing(late), takes(time.Minute))
		s.asked("g", failing(late), takes(time.Minute))
	}).judge(anythingFails)
	lines := strings.Split(v.summary(3, 7), "\n")
	if want := "creates=7 ok=3 failed=3 refused=1 overlaps=1 leaks=3 late_flagged=1 max_gap_s=61.0 takeovers=7 pools_lost=0 services=0 services_lost=0"; lines[len(lines)-1] != want {
		t.Errorf("got  %s\nwant %s", lines[len(lines)-1], want)
	}
}

func TestChronicle_MissedVersionIsDetected(t *testing.T) {
	for name, change := range map[string]func(*chronicle) error{
		"a change":           func(c *chronicle) error { return c.put(version{name: "a", revision: 3}, 2) },
		"a create":           func(c *chronicle) error { return c.put(version{name: "b", revision: 3}, 2) },
		"an end":             func(c *chronicle) error { return c.remove("a", 3, 2) },
		"an end and a start": func(c *chronicle) error { return c.put(version{name: "a", revision: 3}, 0) },
	} {
		c := newChronicle()
		if err := c.put(version{name: "a", uid: "a", revision: 1}, 0); err != nil {
			t.Fatal(err)
		}
		if change(c) == nil {
			t.Errorf("%s is missing, and nobody notices", name)
		}
	}
}

func TestLeeway(t *testing.T) {
	for names, want := range map[string]leeway{
		"": nothingFails, "terminate": nothingFails, "kill": onTheWire, "terminate,freeze": onTheWire, "managers": onTheWire,
		"terminate,kill-etcd": anythingFails, "freeze-apiserver": anythingFails, "all": anythingFails,
	} {
		f, err := parseFaults(names)
		o := options{faults: f, replicas: 2}
		if err != nil || o.leeway() != want {
			t.Errorf("%q: %v, %v, want %v", names, o.leeway(), err, want)
		}
	}
	if alone := (&options{replicas: 1}).leeway(); alone != anythingFails {
		t.Errorf("nobody stands in for one manager alone, and yet the leeway is %v", alone)
	}
}

func TestAdversary_SparesTheLastManager(t *testing.T) {
	for names, spared := range map[string]bool{"managers": true, "graceful": true, "all": false} {
		f, err := parseFaults(names)
		if err != nil {
			t.Fatal(err)
		}
		a := &adversary{run: &run{options: options{faults: f, replicas: 3}}, managers: make([]*sandbox.Manager, 3), fallen: map[string]int{}}
		for _, name := range []string{"manager-1", "manager-2", "manager-1", ""} {
			if !a.fell(name) {
				t.Errorf("%s: %q was not the last and was spared", names, name)
			}
		}
		if a.fell("manager-3") == spared {
			t.Errorf("%s: the last was spared: %t, want %t", names, !spared, spared)
		}
	}
}

func TestKindsOfFailures(t *testing.T) {
	for text, tc := range map[string]struct {
		code int32
		want string
	}{
		validating.Error(): {500, validatingCall},
		mutating.Error():   {500, mutatingCall},
		`Internal error occurred: failed calling webhook "ipallocation.butler.butlerlabs.dev": failed to call webhook: the server is currently unable to handle the request`: {500, webhookAnswer},
		`admission webhook "ipallocation.butler.butlerlabs.dev" denied the request: cannot allocate now: the journal could not be written in time: try again`:                {503, refusedForNow},
		"etcdserver: request timed out":                              {500, storage},
		"Timeout: request did not complete within requested timeout": {504, timeout},
		"dial tcp 127.0.0.1:6443: connect: connection refused":       {0, noAnswer},
		"the server has received too many requests":                  {429, otherFailure},
	} {
		err := errors.New(text)
		if tc.code > 0 {
			err = &apierrors.StatusError{ErrStatus: metav1.Status{Code: tc.code, Message: text}}
		}
		if got := kind(err); got != tc.want {
			t.Errorf("%s:\nis %q, want %q", text, got, tc.want)
		}
		if !failed(err) {
			t.Errorf("%s: is no failure", text)
		}
	}
}
