package plugin

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	poolsPerKind = 4
	smallScale   = 200 // claims, unless PLUGIN_CLAIMS says otherwise
	creators     = 16
	// The limits of a command hold for 10,000 claims in 20 pools.
	timeLimit   = 2 * time.Second
	memoryLimit = 300 << 20
)

// TestScale runs each command with many claims, and prints its time and its peak memory. PLUGIN_CLAIMS is the number of claims (make bench-plugin: 10,000).
func TestScale(t *testing.T) {
	claims := smallScale
	if text := os.Getenv("PLUGIN_CLAIMS"); text != "" {
		var err error
		if claims, err = strconv.Atoi(text); err != nil {
			t.Fatalf("PLUGIN_CLAIMS: %v", err)
		}
	}
	pool, address, domain := fill(t, claims)
	var table bytes.Buffer
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "first\tbest\tCPU\tpeak\t output\t command\n")
	for _, args := range [][]string{
		{"pools"}, {"pools", "-o", "json"}, {"map", pool}, {"map", pool, "--ranges"}, {"free", pool}, {"who", address}, {"who", "team/web", "--domain", domain},
		{"claims"}, {"claims", "-o", "json"}, {"claims", "--pool", pool}, {"claims", "--not-ready"}, {"fit", pool, "--count", "4"}, {"plan", pool, "--delete"}, {"__complete", "map", ""},
	} {
		c := measure(t, args)
		fmt.Fprintf(out, "%d ms\t%d ms\t%d ms\t%d MB\t %d KB\t %v\n", c.first.Milliseconds(), c.best.Milliseconds(), c.cpu.Milliseconds(), c.peak>>20, c.output>>10, args)
		if c.best > timeLimit {
			t.Errorf("%v takes %s, the limit is %s", args, c.best, timeLimit)
		}
		if c.peak > memoryLimit {
			t.Errorf("%v takes %d MB of memory, the limit is %d MB", args, c.peak>>20, memoryLimit>>20)
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d claims in %d pools:\n%s", claims, poolsPerKind*len(suite.Kinds), &table)
}

// fill creates the pools and the claims, and returns a NetworkPool, an owned address and its routing domain.
func fill(t *testing.T, claims int) (pool, address, domain string) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, seed))
	var all []client.Object
	each := claims / (poolsPerKind * len(suite.Kinds))
	for n, kind := range suite.Kinds {
		for p := range poolsPerKind {
			ns := suite.CreateNamespace(t, admin)
			last := fmt.Sprintf("10.%d.%d.255", 100+n, 16*p+15)
			if kind.Name == "ProxyVIP" { // its addresses are listed one by one
				last = fmt.Sprintf("10.%d.%d.255", 100+n, 16*p+2)
			}
			o := kind.Pool(ns, fmt.Sprintf("10.%d.%d.0", 100+n, 16*p), last)
			suite.CreateForTest(t, admin, o)
			if n == 0 {
				pool, domain, address = ns+"/pool", ns, fmt.Sprintf("10.%d.%d.0", 100+n, 16*p)
			}
			for i := range each {
				claim := kind.Claim(ns, fmt.Sprintf("claim-%d", i), "")
				if a, ok := claim.(*butlerv1.IPAllocation); ok {
					a.Spec.Count = new(int32(1 + random.IntN(8)))
				}
				all = append(all, claim)
			}
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(creators)
	for _, claim := range all {
		group.Go(func() error { return admin.Create(t.Context(), claim) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d claims created in %s", len(all), time.Since(began).Round(time.Millisecond))
	return pool, address, domain
}

// cost is what some runs of a command cost.
type cost struct {
	first, best time.Duration // time of the first run, and the least of the others
	cpu         time.Duration // CPU time of the run with the least
	peak        int64         // most memory of a run, in bytes
	output      int64         // bytes
}

// measure runs a command some times.
func measure(t *testing.T, args []string) cost {
	t.Helper()
	c := cost{best: time.Hour, cpu: time.Hour}
	for i := range 4 {
		var out, problems bytes.Buffer
		command := exec.CommandContext(t.Context(), binary, args...)
		command.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig())
		command.Stdout, command.Stderr = &out, &problems
		began := time.Now()
		if err := command.Run(); err != nil && command.ProcessState.ExitCode() != 1 || strings.Contains(problems.String(), "error:") {
			t.Fatalf("%v: %v: %s", args, err, problems.String())
		}
		if took := time.Since(began); i == 0 {
			c.first = took
		} else {
			c.best = min(c.best, took)
		}
		ended := command.ProcessState
		c.cpu, c.peak, c.output = min(c.cpu, ended.UserTime()+ended.SystemTime()), max(c.peak, maxResident(ended)), int64(out.Len())
	}
	return c
}

// maxResident returns the maximum resident memory of a process that has ended, in bytes.
func maxResident(p *os.ProcessState) int64 {
	usage := p.SysUsage().(*syscall.Rusage)
	if runtime.GOOS == "linux" { // other systems count bytes
		return int64(usage.Maxrss) << 10
	}
	return int64(usage.Maxrss)
}
