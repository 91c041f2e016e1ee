package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"butlerlabs.dev/ipam/test/suite"
)

const (
	smallScale = 200 // number of claims without PLUGIN_CLAIMS
	creators   = 16
	// cpuLimit and memoryLimit bound each command with 10,000 claims in 20 pools. The
	// time that a command takes depends on what else the machine does, and on the pause
	// between the two reads of check.
	cpuLimit    = 2 * time.Second
	timeLimit   = 2 * time.Second // of a page
	memoryLimit = 300 << 20
	// shownLines and shownMapLines bound the lines of a command's output in the session.
	shownLines    = 12
	shownMapLines = 48
	// patchFile is the file of plan --out. It is removed before each command, since plan
	// overwrites no file.
	patchFile = "patch.yaml"
)

// rows is a NetBox export with free addresses, an address that a claim of another tenant
// owns, a reserved address, and an address outside the pool.
const rows = `address,vrf,tenant,status,role,dns_name
172.20.46.100/21,,team-1/web,active,,web-1.example.com
172.20.46.101/21,,team-1/web,active,,web-2.example.com
172.20.41.0/21,,team-1/web,active,,web-3.example.com
172.20.42.1/21,,,reserved,,
172.20.47.9/21,,team-2/db,active,,db.example.com
`

// step is a command of the session.
type step struct {
	args []string
	file string // file for the output; "" for no file
}

// TestScale runs the commands of an operator with many claims, and measures time and peak
// memory of each command. PLUGIN_CLAIMS is the number of claims. PLUGIN_SESSION is a file
// for the commands and the first lines of their output (make bench-plugin: 10,000 claims,
// bin/session.md).
func TestScale(t *testing.T) {
	claims, runs := smallScale, 2
	if text := os.Getenv("PLUGIN_CLAIMS"); text != "" {
		var err error
		if claims, err = strconv.Atoi(text); err != nil {
			t.Fatalf("PLUGIN_CLAIMS: %v", err)
		}
		runs = 4
	}
	s := session{dir: t.TempDir(), runs: runs}
	out := tabwriter.NewWriter(&s.table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "first\tbest\tCPU\tpeak\toutput\t command\n")
	done := fill(t, claims)
	at := done.owned
	fmt.Fprintf(&s.text, "# Session\n\nkubectl ipam with %d claims in %d pools, and %d claims that are deleted.\n", done.stored, len(sitePools), done.deleted)
	suite.Eventually(t, 2*suite.Soon, func(context.Context) error { // wait until the manager has written the history and the states of the claims no longer change
		if r := run(t, cluster.Kubeconfig(), "who", done.released, "--at", at); !strings.Contains(r.stdout, "vlan12-") {
			return fmt.Errorf("who --at: %s%s", r.stdout, r.stderr)
		}
		if n := strings.Count(ipam(t, "claims", "--not-ready", "--domain", site, "-o", "name").stdout, "\n"); n > claimsWithoutPool {
			return fmt.Errorf("%d claims are not ready", n)
		}
		return nil
	})
	for name, text := range map[string][]byte{"addresses.csv": []byte(rows), "manager.log": nil} {
		if name == "manager.log" {
			var err error
			if text, err = os.ReadFile(cluster.Managers()[0].LogPath()); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, of := range []step{
		{args: []string{"version"}},
		{args: []string{"pools"}}, {args: []string{"pools", "-o", "wide"}}, {args: []string{"pools", "-o", "json"}},
		{args: []string{"map", "vlan12"}}, {args: []string{"map", "vlan12", "--in", "172.20.42.0/25"}}, {args: []string{"map", "vlan12", "--ranges", "-o", "wide"}},
		{args: []string{"map", "vlan12", "--tenant", "team-1/vlan12-c1"}},
		{args: []string{"map", "corp"}}, {args: []string{"map", "corp", "--grid"}}, {args: []string{"map", "corp", "--in", "10.0.0.0/21"}}, {args: []string{"map", "v6"}},
		{args: []string{"free", "vlan12"}}, {args: []string{"free", "vlan12", "--min", "8"}}, {args: []string{"free", "v6"}},
		{args: []string{"who", "172.20.41.0"}}, {args: []string{"who", "2001:db8:40::"}}, {args: []string{"who", "172.20.42.0/27"}}, {args: []string{"who", "172.20.42.0/27", "-o", "wide"}},
		{args: []string{"who", "team-1/vlan12-c1"}}, {args: []string{"who", "ProxyVIP/edge-1-0"}}, {args: []string{"who", "IPClaim/site/metal-1-0", "-o", "json"}},
		{args: []string{"who", done.released}}, {args: []string{"who", done.released, "--at", at}}, {args: []string{"who", done.released, "--log", "manager.log"}},
		{args: []string{"claims"}}, {args: []string{"claims", "-o", "json"}}, {args: []string{"claims", "--pool", "edge-1"}}, {args: []string{"claims", "--pool", "vlan12", "-o", "wide"}},
		{args: []string{"claims", "--tenant", "team-1/vlan12-c1"}}, {args: []string{"claims", "--not-ready"}}, {args: []string{"claims", "--pending"}}, {args: []string{"claims", "--conflict"}},
		{args: []string{"fit", "vlan12", "--tenant", "nodes=5,loadbalancer=8"}}, {args: []string{"fit", "vlan12", "--count", "900"}}, {args: []string{"fit", "v6", "--count", "4"}},
		{args: []string{"fit", "corp", "--tenant", "nodes=5,loadbalancer=8"}},
		{args: []string{"plan", "vlan12", "--reserve", "172.20.42.0/24"}}, {args: []string{"plan", "vlan12", "--unreserve", "172.20.42.0/28"}},
		{args: []string{"plan", "vlan12", "--cidr", "172.20.32.0/20", "--out", patchFile}}, {args: []string{"plan", "vlan12", "--ranges", "172.20.41.0-172.20.47.255"}},
		{args: []string{"plan", "vlan12", "--delete"}},
		{args: []string{"check"}}, {args: []string{"check", "--only", "capacity"}}, {args: []string{"check", "--grace", "0s", "--only", "addresses"}},
		{args: []string{"export", "vlan12"}, file: "vlan12.csv"}, {args: []string{"export", "corp", "-o", "yaml"}, file: "corp.yaml"},
		{args: []string{"import", "vlan12.csv", "--to", "vlan12"}}, {args: []string{"import", "corp.yaml", "--to", "corp"}}, {args: []string{"import", "addresses.csv", "--to", "vlan12"}}, {args: []string{"import", "addresses.csv", "--to", "vlan12", "--vrf-map", "=site"}},
		{args: []string{"__complete", "map", ""}},
	} {
		c := s.measure(t, of)
		fmt.Fprintf(out, "%d ms\t%d ms\t%d ms\t%d MB\t%d KB\t %s\n", c.first.Milliseconds(), c.best.Milliseconds(), c.cpu.Milliseconds(), c.peak>>20, c.output>>10, strings.Join(of.args, " "))
		if c.cpu > cpuLimit {
			t.Errorf("%v takes %s of CPU, the limit is %s", of.args, c.cpu, cpuLimit)
		}
		if c.peak > memoryLimit {
			t.Errorf("%v takes %d MB of memory, the limit is %d MB", of.args, c.peak>>20, memoryLimit>>20)
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	s.pages(t)
	t.Logf("%d claims in %d pools:\n%s", done.stored, len(sitePools), &s.table)
	if path := os.Getenv("PLUGIN_SESSION"); path != "" {
		if err := os.WriteFile(path, fmt.Appendf(nil, "%s\n## Costs\n\n```text\n%s```\n", &s.text, &s.table), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// session measures commands, and records the commands with their output.
type session struct {
	dir         string // working directory of the commands
	runs        int    // number of runs of each command
	text, table bytes.Buffer
}

// cost contains the costs of the runs of a command.
type cost struct {
	first, best time.Duration // time of the first run, and the shortest time of the further runs
	cpu         time.Duration // least CPU time of a run
	peak        int64         // most resident memory of a run, in bytes
	output      int64         // size of the output in bytes
}

// measure runs a command s.runs times, and records the command with its output.
func (s *session) measure(t *testing.T, of step) cost {
	t.Helper()
	c := cost{best: time.Hour, cpu: time.Hour}
	var out, problems bytes.Buffer
	code := 0
	for i := range s.runs {
		out.Reset()
		problems.Reset()
		if err := os.Remove(filepath.Join(s.dir, patchFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), binary, of.args...)
		command.Env, command.Dir = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig()), s.dir
		command.Stdout, command.Stderr = &out, &problems
		began := time.Now()
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		peak := watchMemory(command.Process.Pid)
		err := command.Wait()
		took := time.Since(began)
		c.peak = max(c.peak, peak())
		if code = command.ProcessState.ExitCode(); err != nil && code != 1 || strings.Contains(problems.String(), "error:") {
			t.Fatalf("%v: %v: %s", of.args, err, problems.String())
		}
		if i == 0 {
			c.first = took
		} else {
			c.best = min(c.best, took)
		}
		ended := command.ProcessState
		c.cpu, c.output = min(c.cpu, ended.UserTime()+ended.SystemTime()), int64(out.Len())
	}
	line := "kubectl ipam " + strings.Join(of.args, " ")
	if of.file != "" {
		if err := os.WriteFile(filepath.Join(s.dir, of.file), out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		line += " > " + of.file
	}
	limit := shownLines
	if of.args[0] == "map" || of.args[0] == "pools" && len(of.args) == 1 {
		limit = shownMapLines
	}
	if of.args[0] != "__complete" {
		fmt.Fprintf(&s.text, "\n```console\n$ %s\n%s%s```\n%.2f s, %d MB, exit code %d\n", line, problems.String(), shortened(out.String(), limit), c.best.Seconds(), c.peak>>20, code)
	}
	return c
}

// shortened returns the first lines of a text, and the number of further lines.
func shortened(text string, limit int) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines)-1 <= limit {
		return text
	}
	return fmt.Sprintf("%s… %d lines\n", strings.Join(lines[:limit], ""), len(lines)-1-limit)
}

// pages measures kubectl ipam ui: the time until the first page, the time of each page,
// and the peak memory of the command.
func (s *session) pages(t *testing.T) {
	peak := int64(0)
	t.Run("ui", func(t *testing.T) {
		began := time.Now()
		u := startUI(t, cluster.Kubeconfig())
		defer func() { peak = maxResident(u.command.Process.Pid) }()
		fmt.Fprintf(&s.table, "\nfirst page of ui after %d ms\n", time.Since(began).Milliseconds())
		for _, page := range []string{
			"/pools", "/pool?pool=vlan12", "/pool?pool=corp", "/pool?pool=v6", "/claims", "/claims.json", "/address?address=172.20.41.0", "/tenant?tenant=team-1/vlan12-c1",
			"/search?q=vlan12-3", "/plan?reserve=172.20.42.0/24&pool=vlan12", "/fit?count=8&pool=vlan12",
		} {
			target, name, found := strings.Cut(page, "pool=")
			if found {
				page = target + "pool=" + url.QueryEscape("NetworkPool/"+site+"/"+name)
			}
			slowest, size := time.Duration(0), 0
			for range s.runs {
				began := time.Now()
				size = len(u.mustGet(t, page))
				slowest = max(slowest, time.Since(began))
			}
			fmt.Fprintf(&s.table, "%6d ms  %5d KB   %s\n", slowest.Milliseconds(), size>>10, page)
			if slowest > timeLimit {
				t.Errorf("%s takes %s, the limit is %s", page, slowest, timeLimit)
			}
		}
	})
	fmt.Fprintf(&s.table, "%6d MB  peak memory of ui\n", peak>>20)
	if peak > memoryLimit {
		t.Errorf("kubectl ipam ui takes %d MB of memory, the limit is %d MB", peak>>20, memoryLimit>>20)
	}
}

// watchMemory watches the resident memory of a process. The returned function ends the
// watch and returns the peak in bytes. The resource usage of the ended process is not
// usable, because it includes the memory of the parent process. The peak of a running
// process is in /proc, on Linux only.
func watchMemory(pid int) (most func() int64) {
	peak, ended, result := int64(0), make(chan struct{}), make(chan int64)
	go func() {
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for {
			peak = max(peak, maxResident(pid))
			select {
			case <-ended:
				result <- peak
				return
			case <-look.C:
			}
		}
	}()
	return func() int64 {
		close(ended)
		return <-result
	}
}

// maxResident returns the peak of the resident memory of a running process, in bytes; 0
// if unknown.
func maxResident(pid int) (bytes int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, text, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(text, "%d kB", &bytes); err != nil {
		return 0 // an ended process has no memory
	}
	return bytes << 10
}
