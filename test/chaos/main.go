package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// grantExpiry is the least that the manager takes.
const grantExpiry = 45 * time.Second

// The pools of the run: they overlap, so that each address may be asked of two.
var cidrs = map[string]string{"wide": "10.0.0.0/20", "narrow": "10.0.4.0/22", "tiny": "10.0.5.0/26"}

const namespace = sandbox.Namespace

type options struct {
	duration          time.Duration
	seed              uint64
	replicas, clients int
	faults            faults
}

// run is one run of the chaos.
type run struct {
	options
	sandbox *sandbox.Sandbox
	client  client.Client
	store   *journal.LeaseStore
	etcd    *clientv3.Client
	other   *otherWebhook // nil where no fault is about it
	eraser  client.Client // of the user for whom no webhook is called; nil where no fault needs it
	history *history
}

func main() {
	o := options{seed: rand.Uint64() >> 32}
	flag.DurationVar(&o.duration, "duration", 2*time.Minute, "how long the adversary is at work")
	flag.Uint64Var(&o.seed, "seed", o.seed, "of what the adversary and the clients do; without it a random one")
	flag.IntVar(&o.replicas, "replicas", 3, "number of managers")
	flag.IntVar(&o.clients, "clients", 16, "number of clients")
	names := flag.String("faults", "managers", faultsUsage)
	flag.Parse()
	var err error
	if o.faults, err = parseFaults(*names); err != nil || o.replicas < 1 || o.clients < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, errors.Join(err, errors.New("see -help")))
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := do(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func do(ctx context.Context, o options) (err error) {
	fmt.Fprintf(os.Stderr, "seed %d, %s, %d replicas, %d clients, faults %s\n", o.seed, o.duration, o.replicas, o.clients, o.faults)
	s, err := sandbox.Start(ctx, sandbox.Options{
		Dir: filepath.Join("bin", "chaos-sandbox"), Replicas: o.replicas, Links: true, ClusterAPI: true, Log: os.Stderr,
		ManagerBinary: filepath.Join("bin", "butler-ipam-chaos"), ManagerArgs: []string{"--grant-expiry=" + grantExpiry.String(), "--orphan-grace=20s", "--service-vips"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), novaedgev1.AddToScheme(scheme), metal3v1.AddToScheme(scheme), ipamv1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)); err != nil {
		return err
	}
	config := s.Config()
	store, err := journal.NewLeaseStore(config, sandbox.ManagerNamespace, time.Second)
	if err != nil {
		return err
	}
	etcd, err := s.EtcdClient()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	config.WarningHandler, config.Timeout = rest.NoWarnings{}, callLimit
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return attempts{next} })
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	r := &run{options: o, sandbox: s, client: c, store: store, etcd: etcd, history: newHistory()}
	if o.faults.any("webhook-refuse", "webhook-stall") {
		if r.other, err = startOther(ctx, s, c); err != nil {
			return err
		}
		defer r.other.Close()
	}
	if o.faults.any(losePool, intrude) {
		if r.eraser, err = eraser(ctx, s, c); err != nil {
			return err
		}
	}
	if o.faults.any(intrude) {
		if err := prepareIntruders(ctx, c); err != nil {
			return err
		}
	}
	if o.faults.any(flood) {
		if err := prepareFloods(ctx, c); err != nil {
			return err
		}
	}
	for name, cidr := range cidrs {
		p := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: v1alpha1.NetworkPoolSpec{CIDR: cidr}}
		if err := c.Create(ctx, p); err != nil {
			return err
		}
	}
	if err := c.Create(ctx, pausedCluster()); err != nil {
		return err
	}
	for name, prefix := range map[string]string{ipPool: "node", restoredIPPool: "rack"} {
		p := &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: metal3v1.IPPoolSpec{
			Pools: []metal3v1.Pool{{Start: ptr.To(metal3v1.IP("10.0.0.0")), End: ptr.To(metal3v1.IP("10.0.15.255"))}}, Prefix: 20, NamePrefix: prefix,
		}}
		if err := c.Create(ctx, p); err != nil {
			return err
		}
	}
	for name, networks := range map[string][]string{vipPool: vipNetworks, servicePool: serviceNetworks} {
		p := &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: networks, AutoAssign: true}}
		if err := c.Create(ctx, p); err != nil {
			return err
		}
	}
	return r.play(ctx)
}

// play runs load and adversary, lets everything come to rest and judges.
func (r *run) play(ctx context.Context) error {
	watching, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	watched := make(chan error, 1)
	go func() { watched <- r.history.watch(watching, r.etcd) }()
	loading, stopLoad := context.WithTimeout(ctx, r.duration)
	defer stopLoad()
	load := r.startLoad(loading)
	hurt := r.adversary(loading)
	load.Wait()
	if err := errors.Join(hurt(), ctx.Err(), r.mend(ctx)); err != nil {
		return err
	}
	load.settle()
	fmt.Fprintf(os.Stderr, "load and adversary have ended; waiting until all is quiet, for longer than the %s of a grant\n", grantExpiry)
	quiet := r.quiet(ctx)
	missing := r.history.caughtUp(ctx, r.etcd)
	stopWatch()
	if err := errors.Join(<-watched, missing); err != nil {
		return err
	}
	var lease int64
	if v, err := r.store.Read(ctx); err == nil {
		lease = v.Term
	}
	v := r.history.judge(r.leeway())
	broken := append(v.broken, quiet...)
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, "BROKEN:", b)
	}
	fmt.Println(v.summary(len(quiet), lease))
	if len(broken) > 0 {
		return fmt.Errorf("%d violations; run again with -seed %d", len(broken), r.seed)
	}
	return nil
}
