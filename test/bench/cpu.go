package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc/stat, on every architecture that Linux has today.
const tick = 10 * time.Millisecond

// usage is who used the CPU.
type usage struct {
	perOp  map[string]time.Duration // process ->
	others float64                  // share of the machine that programs outside the sandbox had
}

// clocks is the CPU time used so far.
type clocks struct {
	processes map[string]time.Duration
	busy, all time.Duration // of the machine
}

// readCPU is empty where there is no /proc.
func (b *bench) readCPU() clocks {
	pids := map[string]int{"bench": os.Getpid(), b.sandbox.Etcd().Name(): b.sandbox.Etcd().Pid(), b.sandbox.APIServer().Name(): b.sandbox.APIServer().Pid()}
	for _, manager := range b.sandbox.Managers() {
		pids[manager.Name()] = manager.Pid()
	}
	if b.peer != nil {
		pids[managerProcess] = b.peer.Pid() // which runs instead of a manager
	}
	if b.idle != nil {
		pids["idle webhooks"] = b.idle.server.command.Process.Pid
	}
	c := clocks{processes: map[string]time.Duration{}}
	for name, pid := range pids {
		// The fields after the name in parentheses, the first of which is the third: user
		// and system time are 14 and 15.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, fields, ok := strings.Cut(string(stat), ") "); err == nil && ok {
			times := ticks(strings.Fields(fields)[11:13])
			c.processes[name] = times[0] + times[1]
		}
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, t := range ticks(strings.Fields(line)[1:9]) { // user nice system idle iowait irq softirq steal
		c.all += t
		if i != 3 && i != 4 {
			c.busy += t
		}
	}
	return c
}

func ticks(fields []string) []time.Duration {
	var d []time.Duration
	for _, field := range fields {
		n, _ := strconv.ParseInt(field, 10, 64) // the kernel writes numbers
		d = append(d, time.Duration(n)*tick)
	}
	return d
}

// since is what was used after before, for n operations.
func (c clocks) since(before clocks, n int) usage {
	u := usage{perOp: map[string]time.Duration{}}
	others := c.busy - before.busy
	for name, now := range c.processes {
		used := max(0, now-before.processes[name]) // another process by now, where it was started again
		u.perOp[name] = used / time.Duration(n)
		others -= used
	}
	if all := c.all - before.all; all > 0 {
		u.others = max(0, others.Seconds()/all.Seconds())
	}
	return u
}
