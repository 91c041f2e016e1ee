package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"butlerlabs.dev/ipam/test/sandbox"
)

// recovery is how long a manager may take, once a fault is over, to be among those that
// are called again: its readiness is probed every few seconds.
const recovery = 5 * time.Second

// adversary does its deeds to what a run stands on.
type adversary struct {
	*run
	managers []*sandbox.Manager

	mu     sync.Mutex
	busy   map[string]*sync.Mutex // victim -> owned while it suffers
	fallen map[string]int         // manager -> faults that it suffers, or recovers from
	errs   []error
}

// adversary does its deeds until ctx ends. What it returns waits until all is undone.
func (r *run) adversary(ctx context.Context) (wait func() error) {
	a := &adversary{run: r, managers: r.sandbox.Managers(), busy: map[string]*sync.Mutex{}, fallen: map[string]int{}}
	began := time.Now()
	var deeds sync.WaitGroup
	deeds.Go(func() {
		for _, d := range r.deeds() {
			if sleep(ctx, d.after); ctx.Err() != nil {
				return
			}
			h := a.harm(d)
			suffers := a.suffers(h.victim)
			if !suffers.TryLock() {
				continue
			}
			if !a.fell(h.fells) {
				suffers.Unlock()
				continue
			}
			fmt.Fprintf(os.Stderr, "%6.1fs %s %s%s, %s\n", time.Since(began).Seconds(), d.fault, h.victim, h.how, d.length.Round(time.Millisecond))
			deeds.Go(func() {
				defer suffers.Unlock()
				defer a.raise(h.fells)
				if !slices.Contains(harmless, d.fault) {
					defer r.history.strike(d.fault, h.victim)()
				}
				err := h.do(ctx)
				sleep(ctx, d.length)
				if err = errors.Join(err, h.undo(ctx)); err != nil {
					a.mu.Lock()
					defer a.mu.Unlock()
					a.errs = append(a.errs, fmt.Errorf("%s %s: %w", d.fault, h.victim, err))
				}
			})
		}
	})
	return func() error {
		deeds.Wait()
		return errors.Join(a.errs...)
	}
}

// fell takes down that a manager, by name, answers no more. It refuses where that would
// be the last and creates are not to fail.
func (a *adversary) fell(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name == "" {
		return true
	}
	if len(a.fallen) == len(a.managers)-1 && a.fallen[name] == 0 && a.leeway() != anythingFails {
		return false
	}
	a.fallen[name]++
	return true
}

// raise takes down that nothing keeps a manager from answering any more, once it had time
// to.
func (a *adversary) raise(name string) {
	if name == "" {
		return
	}
	time.AfterFunc(recovery, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.fallen[name]--; a.fallen[name] == 0 {
			delete(a.fallen, name)
		}
	})
}

// suffers is owned while a victim suffers: nothing else is done to it meanwhile.
func (a *adversary) suffers(victim string) *sync.Mutex {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy[victim] == nil {
		a.busy[victim] = &sync.Mutex{}
	}
	return a.busy[victim]
}

// harm is how a deed is done.
type harm struct {
	victim   string
	fells    string // the manager that cannot answer meanwhile, "" for none
	how      string // more of it, for people
	do, undo func(context.Context) error
}

func (a *adversary) harm(d deed) harm {
	m := a.managers[d.target]
	switch d.fault {
	case "kill", "freeze", "terminate":
		h := toProcess(m.Process, d.fault)
		h.fells = m.Name()
		return h
	case "kill-apiserver":
		return toProcess(a.sandbox.APIServer(), "kill")
	case "freeze-apiserver":
		return toProcess(a.sandbox.APIServer(), "freeze")
	case "kill-etcd":
		return toProcess(a.sandbox.Etcd(), "kill")
	case "freeze-etcd":
		return toProcess(a.sandbox.Etcd(), "freeze")
	case "cut-apiserver":
		return a.toLinks(m, true, false, " "+d.cut.String(), sandbox.Condition{Cut: d.cut})
	case "cut-peers":
		return a.toLinks(m, false, true, " "+d.cut.String(), sandbox.Condition{Cut: d.cut})
	case "isolate":
		return a.toLinks(m, true, true, " "+d.cut.String(), sandbox.Condition{Cut: d.cut})
	case "lose-apiserver":
		lose := func(context.Context) error { m.APIServer.Lose(""); return nil }
		return harm{victim: "the network of " + m.Name(), fells: m.Name(), do: lose, undo: nothing}
	case "latency":
		way := " to the API server, "
		if d.toPeers {
			way = " to and from its peers, "
		}
		return a.toLinks(m, !d.toPeers, d.toPeers, way+d.latency.Round(time.Millisecond).String(), sandbox.Condition{Latency: d.latency})
	case "clock":
		return toClock(m, d.clock)
	case "rolling-restart":
		return harm{victim: "the managers", do: a.restartAll, undo: nothing}
	case "power-cut":
		return harm{victim: "everything", do: a.cutPower, undo: a.restorePower}
	case losePool:
		return a.toPool(d)
	case flood:
		return a.toJournal()
	case intrude:
		return a.toDomain(d)
	default:
		return a.toOther(d)
	}
}

func toProcess(p *sandbox.Process, how string) harm {
	return harm{
		victim: p.Name(),
		do: func(context.Context) error {
			switch {
			case hasEnded(p): // an API server that found no etcd when it started
				return nil
			case how == "freeze":
				return p.Freeze()
			case how == "kill":
				return errors.Join(p.Kill(), end(p))
			default:
				return errors.Join(p.Terminate(), end(p))
			}
		},
		undo: func(ctx context.Context) error {
			if hasEnded(p) {
				return start(ctx, p)
			}
			return p.Thaw()
		},
	}
}

func hasEnded(p *sandbox.Process) bool {
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// end waits for the end of a process.
func end(p *sandbox.Process) error {
	select {
	case <-p.Exited():
		return nil
	case <-time.After(time.Minute):
		return errors.New("it does not end")
	}
}

// start starts a process that has ended, and waits until it serves or has ended again: a
// manager may need what suffers too. Whether it serves in the end is seen then.
func start(ctx context.Context, p *sandbox.Process) error {
	if err := p.Start(); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_ = p.Ready(limit)
	return nil
}

// toLinks has a manager's links meet a condition: the one to the API server, those
// between it and its peers in both directions, or all. What the API server sends to it
// arrives in any case: a manager that is asked and can ask nobody is the harder one.
func (a *adversary) toLinks(m *sandbox.Manager, apiServer, peers bool, how string, c sandbox.Condition) harm {
	set := func(c sandbox.Condition) func(context.Context) error {
		return func(context.Context) error {
			if apiServer {
				m.APIServer.Set("", c)
			}
			if !peers {
				return nil
			}
			m.Peers.Set("", c)
			for _, peer := range a.managers {
				if peer != m {
					peer.Peers.Set(m.Name(), c)
				}
			}
			return nil
		}
	}
	h := harm{victim: "the network of " + m.Name(), how: how, do: set(c), undo: set(sandbox.Condition{})}
	if c.Cut != 0 {
		h.fells = m.Name()
	}
	return h
}

func toClock(m *sandbox.Manager, by time.Duration) harm {
	set := func(by time.Duration) func(context.Context) error {
		return func(context.Context) error { return m.SetClock(by) }
	}
	return harm{victim: "the clock of " + m.Name(), how: ", set by " + by.Round(time.Second).String(), do: set(by), undo: set(0)}
}

// toOther is done to the other webhook.
func (a *adversary) toOther(d deed) harm {
	h := harm{victim: "the other webhook", do: a.other.be(mood{refuses: true}), undo: a.other.be(mood{})}
	if d.fault == "webhook-stall" {
		h.how, h.do = ", each call by "+d.stall.Round(time.Millisecond).String(), a.other.be(mood{stall: d.stall})
	}
	return h
}

// restartAll ends one manager after the other in good order, and goes on when it serves
// again, as a Deployment does.
func (a *adversary) restartAll(ctx context.Context) error {
	for _, m := range a.managers {
		suffers := a.suffers(m.Name())
		suffers.Lock()
		err := a.restart(ctx, m)
		suffers.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// restart waits until a manager may be missed.
func (a *adversary) restart(ctx context.Context, m *sandbox.Manager) error {
	for !a.fell(m.Name()) {
		if pause(ctx); ctx.Err() != nil {
			return nil
		}
	}
	defer a.raise(m.Name())
	h := toProcess(m.Process, "terminate")
	return errors.Join(h.do(ctx), h.undo(ctx))
}

// everything is all that runs on the machines of the cluster.
func (a *adversary) everything() []*sandbox.Process {
	all := []*sandbox.Process{a.sandbox.Etcd(), a.sandbox.APIServer()}
	for _, m := range a.managers {
		all = append(all, m.Process)
	}
	return all
}

// cutPower ends everything at once, as soon as nothing else is done to any of it.
func (a *adversary) cutPower(context.Context) (err error) {
	for _, p := range a.everything() {
		a.suffers(p.Name()).Lock()
	}
	for _, p := range a.everything() {
		if !hasEnded(p) {
			err = errors.Join(err, p.Kill())
		}
	}
	for _, p := range a.everything() {
		err = errors.Join(err, end(p))
	}
	return err
}

// restorePower starts everything at once: what needs another that is not there yet waits
// for it.
func (a *adversary) restorePower(ctx context.Context) error {
	var started errgroup.Group
	for _, p := range a.everything() {
		started.Go(func() error {
			defer a.suffers(p.Name()).Unlock()
			return start(ctx, p)
		})
	}
	return started.Wait()
}

func nothing(context.Context) error { return nil }

// sleep waits; the end cuts it short, as that undoes everything.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
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
		for err := p.Probe(limit); err != nil; err = p.Probe(limit) {
			if limit.Err() != nil {
				return fmt.Errorf("%s does not serve any more: %w", p.Name(), err)
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
