package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"

	"butlerlabs.dev/ipam/test/sandbox"
)

const (
	// peerRounds bounds the rounds: peers as shipped allocate a few addresses per second,
	// and a round takes minutes.
	peerRounds = 3
	// peerStock is how many claims the full pool has. Only the first round has the full
	// pool: a peer needs minutes to read it.
	peerStock = 5000

	inClusterGroup = "ipam.cluster.x-k8s.io"
)

// What is measured of a claim of any allocator, from the beginning of its create.
const (
	toKnown  = "until its address is known"
	toObject = "until its IPAddress exists"
)

// contender is an allocator and the kind of claims that it serves.
type contender struct {
	of subject
	// crds are installed beside the CRDs of the sandbox.
	crds string
	// modes are ways to run a peer, one after the other in one sandbox; none for the
	// manager of this project.
	modes []peerMode
}

// peerMode is a way to run a peer.
type peerMode struct {
	name string // in the figures
	slow bool   // few addresses per second: runs have fewer claims
	path string
	args func(certDir string, probe, webhooks netip.AddrPort) []string
}

var (
	metal3Claim = subject{name: ipClaim.name, apiVersion: ipClaim.apiVersion, kind: ipClaim.kind, resource: ipClaim.resource, spec: ipClaim.spec, hasPool: true}
	// inClusterClaim differs from addressClaim in its pool.
	inClusterClaim = subject{name: addressClaim.name, apiVersion: addressClaim.apiVersion, kind: addressClaim.kind, resource: addressClaim.resource,
		spec: `{"poolRef":{"apiGroup":"` + inClusterGroup + `","kind":"InClusterIPPool","name":"` + poolName + `"}}`, hasPool: true}
)

// Each peer runs with its limits lifted first: it reads the full pool faster. Lifted is
// the rate limit of its client: by flags or, where there are none, in a binary that make
// builds with another main.go.
var (
	metal3Lifted     = peerMode{name: "ip-address-manager, limits lifted", path: "bin/peers/metal3", args: metal3Args("--kube-api-qps=100000", "--kube-api-burst=100000")}
	metal3Shipped    = peerMode{name: "ip-address-manager as shipped", slow: true, path: "bin/peers/metal3", args: metal3Args()}
	inClusterLifted  = peerMode{name: "in-cluster provider, limits lifted", path: "bin/peers/in-cluster-lifted", args: inClusterArgs}
	inClusterShipped = peerMode{name: "in-cluster provider as shipped", slow: true, path: "bin/peers/in-cluster", args: inClusterArgs}
)

// duels are the peers, each with the manager of this project that serves the same kind.
var duels = []struct{ ours, peer contender }{
	{contender{of: ipClaim}, contender{of: metal3Claim, crds: "bin/peers/metal3-crds", modes: []peerMode{metal3Lifted, metal3Shipped}}},
	{contender{of: addressClaim}, contender{of: inClusterClaim, crds: "bin/peers/in-cluster-crds", modes: []peerMode{inClusterLifted, inClusterShipped}}},
}

func metal3Args(more ...string) func(string, netip.AddrPort, netip.AddrPort) []string {
	return func(certDir string, probe, webhooks netip.AddrPort) []string {
		return append([]string{"--health-addr=" + probe.String(), fmt.Sprintf("--webhook-port=%d", webhooks.Port()), "--webhook-cert-dir=" + certDir, "--diagnostics-address=0"}, more...)
	}
}

func inClusterArgs(certDir string, probe, webhooks netip.AddrPort) []string {
	return []string{"--health-probe-bind-address=" + probe.String(), fmt.Sprintf("--webhook-port=%d", webhooks.Port()), "--webhook-cert-dir=" + certDir, "--metrics-bind-address=0"}
}

// inClusterPool is a pool of the in-cluster provider.
func inClusterPool(namespace, cidr string) *unstructured.Unstructured {
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"addresses": []any{cidr}, "prefix": int64(16)}}}
	pool.SetAPIVersion(inClusterGroup + "/v1alpha2")
	pool.SetKind("InClusterIPPool")
	pool.SetNamespace(namespace)
	pool.SetName(poolName)
	return pool
}

// peerCell is a place in the table of the peers.
type peerCell struct {
	mode    string // "" for the manager of this project
	kind    string
	part    string
	clients int
	stored  int // claims in the pool before
}

// name returns the name of what is measured.
func (c peerCell) name() string {
	name := c.kind + " " + c.part
	if c.stored > 0 {
		name += fmt.Sprintf(", %d in the pool", c.stored)
	}
	if c.mode != "" {
		name = c.mode + ": " + name
	}
	return name
}

// against returns the name of the figure of ours that is compared with a mode of a peer.
func (c peerCell) against(mode peerMode) string { return c.name() + ", against " + mode.name }

// peerSamples has one sample of each cell from each round.
type peerSamples map[peerCell][]sample

// measurePeers measures the allocators of other projects, and this one in the same
// rounds, each in a sandbox of its own.
func measurePeers(ctx context.Context, o options) ([]figure, error) {
	if !o.peers {
		return nil, nil
	}
	var contenders []contender
	for _, d := range duels {
		contenders = append(contenders, d.ours, d.peer)
	}
	samples, rounds := peerSamples{}, min(o.rounds, peerRounds)
	for round := range rounds {
		for turn := range contenders {
			c := contenders[(turn+round)%len(contenders)]
			report := func(text string) { progress("round %d/%d, %s", round+1, rounds, text) }
			sizes := peerSizes(o.clients)
			if round > 0 {
				sizes = sizes[:len(o.clients)] // without the full pool
			}
			if err := c.measure(ctx, sizes, samples, report); err != nil {
				return nil, err
			}
		}
	}
	return samples.figures(o.clients), nil
}

// figures returns the figures of each peer in each mode. The figure of a peer precedes
// ours, which has the ratio of ours to the peer's.
func (s peerSamples) figures(clients []int) []figure {
	var figures []figure
	for _, d := range duels {
		for _, mode := range slices.Backward(d.peer.modes) {
			for _, part := range []string{toKnown, toObject} {
				for _, size := range peerSizes(clients) {
					theirs := peerCell{mode.name, d.peer.of.name, part, size.clients, size.stored}
					ours := theirs
					ours.mode = ""
					peer, own := figureOf(size.clients, s[theirs], nil), figureOf(size.clients, s[ours], s[theirs])
					own.Name = ours.against(mode)
					figures = append(figures, peer, own)
				}
			}
		}
	}
	return figures
}

// peerSize is a number of clients, and of claims that the pool has before.
type peerSize struct{ clients, stored int }

// peerSizes returns what each allocator is measured with, the full pool last.
func peerSizes(clients []int) []peerSize {
	var sizes []peerSize
	for _, n := range clients {
		sizes = append(sizes, peerSize{n, 0})
	}
	return append(sizes, peerSize{crowd, peerStock})
}

// peerRun is the measurement of one contender in one round.
type peerRun struct {
	*bench
	of      subject
	full    *collection // nil until the first mode has filled the pool
	exist   int         // claims in the full pool
	samples peerSamples
	report  func(string)
}

// measure adds one sample of each cell of the contender.
func (c contender) measure(ctx context.Context, sizes []peerSize, samples peerSamples, report func(string)) error {
	modes, managers := c.modes, 0
	if len(modes) == 0 {
		modes, managers = []peerMode{{}}, 1
	}
	_, err := onSandbox(ctx, managers, func(b *bench) ([]figure, error) {
		if c.crds != "" {
			if err := b.sandbox.InstallCRDs(ctx, c.crds); err != nil {
				return nil, err
			}
		}
		r := &peerRun{bench: b, of: c.of, samples: samples, report: report}
		for i, mode := range modes {
			if mode.path != "" {
				if err := b.runPeer(ctx, mode); err != nil {
					return nil, fmt.Errorf("%s: %w", mode.name, err)
				}
			}
			for _, size := range sizes {
				if err := r.measure(ctx, mode, size, i); err != nil {
					return nil, fmt.Errorf("%s, %d clients: %w", mode.name, size.clients, err)
				}
			}
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.of.name, err)
	}
	return nil
}

// measure adds one sample of each part, in a new pool or in the full pool. i is the
// number of the mode.
func (r *peerRun) measure(ctx context.Context, mode peerMode, size peerSize, i int) error {
	prefix, n := fmt.Sprintf("bench-%d", i), mode.claims(size)
	if size.stored == 0 {
		c, err := r.newCollection(ctx, r.of)
		if err != nil {
			return err
		}
		if err := c.warm(ctx, size.clients); err != nil {
			return err
		}
		return r.sample(ctx, c, mode, size, prefix, n)
	}
	if r.full == nil {
		if err := r.fillPool(ctx); err != nil {
			return err
		}
	}
	// A peer that starts, or that gets the copies, serves this claim after all the
	// others.
	if err := r.full.add(ctx, fmt.Sprintf("settle-%d", i), 1, 1, r.exist); err != nil {
		return err
	}
	r.exist += 1 + n
	return r.sample(ctx, r.full, mode, size, prefix, n)
}

// sample creates n claims and adds a sample of each part.
func (r *peerRun) sample(ctx context.Context, c *collection, mode peerMode, size peerSize, prefix string, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("claims have no address after %s", patience))
	defer cancel()
	f, err := c.follow(ctx, prefix, size.clients, n)
	if err != nil {
		return err
	}
	known := f.answered
	if c.gives == "" {
		known = make([]time.Time, n)
		for i := range known {
			known[i] = slices.MinFunc([]time.Time{f.made[i], f.ready[i]}, time.Time.Compare)
		}
	}
	for _, reached := range []struct {
		part string
		at   []time.Time
	}{{toKnown, known}, {toObject, f.made}} {
		at := peerCell{mode.name, c.name, reached.part, size.clients, size.stored}
		s := f.sample(at.name(), reached.at)
		r.samples[at] = append(r.samples[at], s)
		r.report(fmt.Sprintf("%d clients: %s: %.2f ms, %.1f/s, others %.0f %%", size.clients, s.name, ms(s.p50), s.perSecond, 100*s.cpu.others))
	}
	return nil
}

// fillPool creates the full pool, all of whose claims have their addresses. A peer would
// need many minutes for them: it allocates the first, and the others are copies.
func (r *peerRun) fillPool(ctx context.Context) (err error) {
	began := time.Now()
	if r.full, err = r.newCollection(ctx, r.of); err != nil {
		return err
	}
	create := peerStock
	if r.peer != nil {
		create = 1
	}
	if err := r.full.add(ctx, "stock", min(crowd, create), create, 0); err != nil {
		return err
	}
	if r.peer != nil {
		if err := r.full.copyClaim(ctx, "stock", peerStock); err != nil {
			return err
		}
	}
	r.exist = peerStock
	r.report(fmt.Sprintf("%s: %d claims in one pool after %.0f s", r.of.name, peerStock, time.Since(began).Seconds()))
	return nil
}

// peerLimits returns the limits of each peer. The limits that every peer keeps are those
// of the best.
func peerLimits() []limit {
	var all []limit
	for _, d := range duels {
		for _, mode := range d.peer.modes {
			object, known := peerCell{kind: d.ours.of.name, part: toObject}, peerCell{kind: d.ours.of.name, part: toKnown}
			times := 2.0
			if mode.slow {
				times = 10
			}
			all = append(all, limit{name: object.against(mode), clients: crowd, what: "per second ratio", value: ratioPerSecond, limit: times, atLeast: true})
			for _, clients := range []int{1, crowd} {
				all = append(all, limit{name: known.against(mode), clients: clients, what: "p50 ratio", value: ratioP50, limit: 0.2})
			}
		}
	}
	return all
}

// runPeer starts a peer instead of the peer that runs.
func (b *bench) runPeer(ctx context.Context, mode peerMode) (err error) {
	if b.peer != nil {
		if err := b.peer.Terminate(); err != nil {
			return err
		}
		<-b.peer.Exited()
	}
	b.peer, err = b.sandbox.StartProgram(ctx, sandbox.Program{
		Name: "peer", Path: mode.path, Build: "make peers", ProbePath: "/readyz",
		Args: func(probe, webhooks netip.AddrPort) []string {
			return mode.args(b.sandbox.WebhookCertDir(), probe, webhooks)
		},
	})
	return err
}

// copyClaim stores copies of the only claim and its IPAddress until there are n, with
// names, UIDs and addresses of their own. They are written into etcd.
func (c *collection) copyClaim(ctx context.Context, prefix string, n int) error {
	claim, err := c.onlyStored(ctx, c.storage())
	if err != nil {
		return err
	}
	object, err := c.onlyStored(ctx, c.storageOf("ipaddresses"))
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(object.Spec.Address)
	if err != nil {
		return err
	}
	dashed := func(a netip.Addr) string { return strings.ReplaceAll(a.String(), ".", "-") } // as in a name of Metal3
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(parallel)
	for i := 1; i < n; i++ {
		name, next := nameOf(prefix, i), nth(address, i)
		objectName := name
		if object.Metadata.Name != claim.Metadata.Name {
			objectName = strings.ReplaceAll(object.Metadata.Name, dashed(address), dashed(next))
		}
		replacer := strings.NewReplacer(
			strconv.Quote(claim.Metadata.Name), strconv.Quote(name), strconv.Quote(object.Metadata.Name), strconv.Quote(objectName),
			strconv.Quote(address.String()), strconv.Quote(next.String()),
			claim.Metadata.UID, string(uuid.NewUUID()), object.Metadata.UID, string(uuid.NewUUID()))
		entries := map[string][]byte{
			c.storage() + name:                      []byte(replacer.Replace(claim.text)),
			c.storageOf("ipaddresses") + objectName: []byte(replacer.Replace(object.text)),
		}
		writes.Go(func() error { return put(ctx, c.etcd, entries) })
	}
	return writes.Wait()
}

// storedObject is what copyClaim reads of a claim or an IPAddress.
type storedObject struct {
	Metadata struct{ Name, UID string }
	Spec     struct{ Address string }
	text     string
}

// onlyStored reads the only object under a prefix.
func (c *collection) onlyStored(ctx context.Context, prefix string) (*storedObject, error) {
	found, err := c.etcd.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	if len(found.Kvs) != 1 {
		return nil, fmt.Errorf("%d objects under %s, want 1", len(found.Kvs), prefix)
	}
	o := &storedObject{text: string(found.Kvs[0].Value)}
	return o, json.Unmarshal(found.Kvs[0].Value, o)
}

// claims returns how many claims a run has: few for an allocator that needs seconds for
// them.
func (m peerMode) claims(size peerSize) int {
	if m.slow || m.path != "" && size.stored > 0 {
		return max(50, 2*size.clients)
	}
	return max(100, 10*size.clients)
}
