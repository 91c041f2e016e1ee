package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

type options struct {
	n       int   // creates of a variant with many clients
	rounds  int   // of every variant
	clients []int // numbers of clients to measure with
	only    *regexp.Regexp
	all     bool // measure every part, not only creates and the core
	peers   bool // measure the allocators of other projects too
	json    string
	tenants tenantGroup
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) == 4 && os.Args[1] == idleCommand {
		return serveIdle(os.Args[2], os.Args[3])
	}
	o, err := parse()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	figures, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if len(figures) == 0 {
		return fmt.Errorf("-only %q matches no name", o.only)
	}
	printTable(os.Stdout, figures)
	printLimits(os.Stdout, figures)
	return writeJSON(o.json, figures)
}

func parse() (options, error) {
	var o options
	flag.IntVar(&o.n, "n", 1000, "creates of every variant in a round; with few clients fewer, see the table")
	flag.IntVar(&o.rounds, "rounds", 5, "times that every variant is measured")
	clients := flag.String("clients", "1,16,64", "numbers of clients at the same time")
	only := flag.String("only", "", "regular expression: measure what has a matching name, and what that is compared with (default: creates and the core)")
	flag.BoolVar(&o.all, "all", false, "measure everything: also deletes, bounds of the machine, replicas, outages, take-overs, large pools, tenants")
	flag.BoolVar(&o.peers, "peers", false, "measure also the allocators of other projects in bin/peers")
	flag.StringVar(&o.json, "json", filepath.Join("bin", "bench.json"), "file that takes the figures")
	flag.IntVar(&o.tenants.all, "tenants", 200, "TenantClusters of one manager")
	flag.IntVar(&o.tenants.real, "answering", 4, "of them with control planes of their own")
	flag.Parse()
	for text := range strings.SplitSeq(*clients, ",") {
		c, err := strconv.Atoi(text)
		if err != nil || c < 1 || c > maxClients {
			return o, fmt.Errorf("-clients %q: %q is no number from 1 to %d", *clients, text, maxClients)
		}
		o.clients = append(o.clients, c)
	}
	if o.n < 1 || o.n > maxCreates {
		return o, fmt.Errorf("-n %d: use 1 to %d, for which a pool has room", o.n, maxCreates)
	}
	if o.tenants.real < 1 || o.tenants.all < o.tenants.real {
		return o, fmt.Errorf("-answering %d of -tenants %d: use 1 or more, and no more than there are", o.tenants.real, o.tenants.all)
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("-rounds %d: use 1 or more", o.rounds)
	}
	var err error
	if *only == "" && !o.all {
		*only = mainRows
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// mainRows matches the creates of each kind, the bound for IPAllocations, and the core.
const mainRows = ` create(, 30 ms apart)?$|^CR, two webhooks create and status$|^core `

// measure is everything that has a matching name, part by part: each has a sandbox of its
// own.
func measure(ctx context.Context, o options) ([]figure, error) {
	var figures []figure
	for _, part := range []func(context.Context, options) ([]figure, error){measureAnswers, measureLag, measureClaims, measurePeers, measureReplicas, measureOutages, measureScale, measureLargePools, measureTenants, measureCore} {
		measured, err := part(ctx, o)
		if err != nil {
			return nil, err
		}
		figures = append(figures, measured...)
	}
	return figures, nil
}

// measureAnswers measures what an answer costs.
func measureAnswers(ctx context.Context, o options) ([]figure, error) {
	variants := variantsFor(o.only)
	if len(variants) == 0 {
		return nil, nil
	}
	return onSandbox(ctx, 1, func(b *bench) ([]figure, error) {
		if err := b.addBaseline(ctx); err != nil {
			return nil, err
		}
		return b.compare(ctx, o, variants)
	})
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
