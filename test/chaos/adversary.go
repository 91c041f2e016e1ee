package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
)

// What the adversary may do.
var (
	managerFaults = []string{"kill", "freeze", "terminate"}
	allFaults     = append(slices.Clone(managerFaults), "freeze-apiserver", "kill-apiserver", "freeze-etcd", "kill-etcd")
)

type faults []string

func (f faults) String() string { return strings.Join(f, ",") }

func parseFaults(names string) (faults, error) {
	var f faults
	for name := range strings.SplitSeq(names, ",") {
		switch {
		case name == "all":
			f = append(f, allFaults...)
		case name == "managers":
			f = append(f, managerFaults...)
		case slices.Contains(allFaults, name):
			f = append(f, name)
		case name != "":
			return nil, fmt.Errorf("-faults %q: use %s, managers or all", name, strings.Join(allFaults, ", "))
		}
	}
	return f, nil
}

// deed is one thing that the adversary does.
type deed struct {
	after  time.Duration // since the one before
	fault  string
	target int           // manager
	length time.Duration // until it is undone
}

// deeds follow from the seed alone.
func (o *options) deeds() []deed {
	random := rand.New(rand.NewPCG(o.seed, 1))
	var all []deed
	for at := time.Duration(0); len(o.faults) > 0 && at < o.duration; {
		d := deed{
			after:  500*time.Millisecond + time.Duration(random.Int64N(int64(4*time.Second))),
			fault:  o.faults[random.IntN(len(o.faults))],
			target: random.IntN(o.replicas),
			length: 100*time.Millisecond + time.Duration(random.Int64N(int64(3*time.Second))),
		}
		if d.fault == "freeze" && random.IntN(3) == 0 {
			d.length = time.Duration(random.Int64N(int64(12 * time.Second)))
		}
		if d.fault == "freeze" && random.IntN(20) == 0 {
			d.length = time.Duration(random.Int64N(int64(3 * grantExpiry)))
		}
		at += d.after
		all = append(all, d)
	}
	return all
}

// adversary does its deeds until ctx ends. What it returns waits until all is undone, and everything runs again.
func (r *run) adversary(ctx context.Context) (wait func() error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  []error
	)
	managers := r.sandbox.Managers()
	busy := map[*sandbox.Process]*sync.Mutex{r.sandbox.APIServer(): {}, r.sandbox.Etcd(): {}}
	for _, m := range managers {
		busy[m.Process] = &sync.Mutex{}
	}
	group.Go(func() {
		for _, d := range r.deeds() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(d.after):
			}
			p, how := managers[d.target].Process, d.fault
			if name, on, found := strings.Cut(d.fault, "-"); found {
				how = name
				p = map[string]*sandbox.Process{"apiserver": r.sandbox.APIServer(), "etcd": r.sandbox.Etcd()}[on]
			}
			if !busy[p].TryLock() {
				continue // it still suffers
			}
			fmt.Fprintf(os.Stderr, "%s %s for %s\n", how, p.Name(), d.length.Round(time.Millisecond))
			group.Go(func() {
				defer busy[p].Unlock()
				defer r.history.strike(d.fault, p.Name())()
				if err := hurt(ctx, p, how, d.length); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, fmt.Errorf("%s %s: %w", how, p.Name(), err))
				}
			})
		}
	})
	return func() error {
		group.Wait()
		return errors.Join(errs...)
	}
}

// hurt does one thing to a process and undoes it.
func hurt(ctx context.Context, p *sandbox.Process, how string, length time.Duration) error {
	rest := func() {
		select {
		case <-ctx.Done(): // the end undoes everything
		case <-time.After(length):
		}
	}
	if hasEnded(p) {
		return start(ctx, p) // a manager that found no API server when it started
	}
	switch how {
	case "freeze":
		if err := p.Freeze(); err != nil {
			return err
		}
		rest()
		return p.Thaw()
	case "terminate":
		if err := p.Terminate(); err != nil {
			return err
		}
	default:
		if err := p.Kill(); err != nil {
			return err
		}
	}
	select {
	case <-p.Exited():
	case <-time.After(time.Minute):
		return errors.New("it does not end")
	}
	if how == "kill" {
		rest()
	}
	return start(ctx, p)
}

func hasEnded(p *sandbox.Process) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// start starts a process that has ended, and waits until it serves, or has ended again: a manager may need what suffers too.
func start(ctx context.Context, p *sandbox.Process) error {
	if err := p.Start(); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := p.Ready(limit); err != nil && !hasEnded(p) {
		return err
	}
	return nil
}

// mend starts what has ended, until everything serves.
func (r *run) mend(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	processes := []*sandbox.Process{r.sandbox.Etcd(), r.sandbox.APIServer()}
	for _, m := range r.sandbox.Managers() {
		processes = append(processes, m.Process)
	}
	for _, p := range processes {
		for p.Ready(limit) != nil {
			if limit.Err() != nil {
				return fmt.Errorf("%s does not serve any more", p.Name())
			}
			if hasEnded(p) {
				if err := p.Start(); err != nil {
					return err
				}
			}
			pause(limit)
		}
	}
	return nil
}
