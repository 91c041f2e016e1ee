package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
)

// What the adversary may do.
var (
	managerFaults  = []string{"kill", "freeze", "terminate", "cut-apiserver", "cut-peers", "isolate", "lose-apiserver", "latency", "clock"}
	gracefulFaults = []string{"terminate", "rolling-restart"}
	allFaults      = slices.Concat(managerFaults, []string{"rolling-restart",
		"freeze-apiserver", "kill-apiserver", "freeze-etcd", "kill-etcd", "power-cut", "webhook-refuse", "webhook-stall", losePool, flood, intrude})
)

// harmless are the faults that explain no failure of a create.
var harmless = []string{losePool, flood, intrude}

// faultGroups have a name of their own.
var faultGroups = map[string][]string{"managers": managerFaults, "graceful": gracefulFaults, "all": allFaults}

var faultsUsage = fmt.Sprintf("comma-separated: %s; or groups of them: managers (%s), graceful (%s), all",
	strings.Join(allFaults, ", "), strings.Join(managerFaults, ", "), strings.Join(gracefulFaults, ", "))

type faults []string

func (f faults) String() string { return strings.Join(f, ",") }

// any says whether one of the names is among the faults.
func (f faults) any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(f, name) })
}

func parseFaults(names string) (faults, error) {
	var f faults
	for name := range strings.SplitSeq(names, ",") {
		group, is := faultGroups[name]
		if !is && name != "" {
			group = []string{name}
		}
		for _, fault := range group {
			if !slices.Contains(allFaults, fault) {
				return nil, fmt.Errorf("-faults %q: use %s", name, faultsUsage)
			}
			if !slices.Contains(f, fault) {
				f = append(f, fault)
			}
		}
	}
	return f, nil
}

// deed is one thing that the adversary does.
type deed struct {
	after  time.Duration // since the one before
	fault  string
	target int           // manager
	pool   int           // among those that are lost
	length time.Duration // until it is undone

	// Each fault takes of these what it needs.
	cut     sandbox.Cut
	latency time.Duration
	toPeers bool          // rather than to the API server
	clock   time.Duration // by how much it is set
	stall   time.Duration // of a call
}

// deeds follow from the seed alone.
func (o *options) deeds() []deed {
	random := rand.New(rand.NewPCG(o.seed, 1))
	upTo := func(limit time.Duration) time.Duration { return time.Duration(random.Int64N(int64(limit))) }
	var all []deed
	for at := time.Duration(0); len(o.faults) > 0 && at < o.duration; {
		d := deed{
			after:   500*time.Millisecond + upTo(4*time.Second),
			fault:   o.faults[random.IntN(len(o.faults))],
			target:  random.IntN(o.replicas),
			length:  100*time.Millisecond + upTo(3*time.Second),
			cut:     []sandbox.Cut{sandbox.Reset, sandbox.Silent}[random.IntN(2)],
			latency: 5*time.Millisecond + upTo(295*time.Millisecond),
			toPeers: random.IntN(2) == 0,
			clock:   upTo(4*time.Hour) - 2*time.Hour,
			stall:   upTo(5 * time.Second),
			pool:    random.IntN(len(lostPools())),
		}
		if slices.Contains(gracefulFaults, d.fault) {
			d.length = 0 // who ends in good order is started again at once
		}
		// Of what leaves a manager alive some must outlast the journal's patience, and a
		// few every grant.
		if slices.Contains([]string{"freeze", "cut-apiserver", "cut-peers", "isolate"}, d.fault) {
			switch p := random.IntN(20); {
			case p == 0:
				d.length = upTo(3 * grantExpiry)
			case p < 7:
				d.length = upTo(12 * time.Second)
			}
		}
		if d.fault == losePool && random.IntN(3) == 0 {
			d.length = upTo(12 * time.Second)
		}
		at += d.after
		all = append(all, d)
	}
	return all
}
