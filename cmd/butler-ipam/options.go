package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/reconcilers/apiserver"
	"butlerlabs.dev/ipam/webhooks/certificates"
)

// minGrantLife is the lower bound of --grant-expiry. The API server abandons a create at
// most 34 s after the grant.
const minGrantLife = 45 * time.Second

// maxHistoryDays bounds the retention of AllocationHistories: 20 years.
const maxHistoryDays = 7300

// options contains the values of the flags and environment variables.
type options struct {
	namespace     string
	apis          apis
	serviceVIPs   bool
	clusterDomain routingDomain
	identity      string
	advertise     string
	webhookBind   string
	webhookHost   string // of webhookBind
	webhookPort   int    // of webhookBind
	certDir       string
	clientCA      string
	certSecret    string
	certLife      time.Duration
	service       string
	mutating      names
	validating    names
	certificate   string
	probeBind     string
	metricsBind   string
	metricsSecure bool
	pprofBind     string
	grantLife     time.Duration
	orphanGrace   time.Duration
	shutdownDelay time.Duration
	historyDays   int
	tenants       tenantOptions
	logFormat     string
	logLevel      string
	version       bool
}

const usage = `butler-ipam allocates the addresses of an IPAllocation, ProxyVIP, IPClaim or IPAddressClaim while the object is created:
the create returns the object with its addresses, or the reason why it is denied.

It serves the admission webhooks, and writes the status of pools and claims. Any number of replicas may run. One of them
leads: it alone allocates, and keeps the open grants in the Lease butler-ipam-journal.

butler-ipam console --help shows another command of this program, which serves web pages.

Every flag except --kubeconfig has an environment variable, such as BUTLER_IPAM_LOG_LEVEL for --log-level. A flag on the
command line takes precedence.

`

// parseOptions reads the command line, and the environment for absent flags. The error
// for --help is flag.ErrHelp.
func parseOptions(args []string, getenv func(string) string, output io.Writer) (*options, error) {
	o := &options{apis: allAPIs}
	flags := flag.NewFlagSet("butler-ipam", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() { printUsage(usage, flags, output) }
	flags.StringVar(&o.namespace, "namespace", "", "`namespace` of the Lease butler-ipam-journal (default $POD_NAMESPACE)")
	flags.Var(&o.apis, "apis", "`names` of the APIs to serve, separated by commas; stored objects of an API that is not served keep their addresses")
	flags.BoolVar(&o.serviceVIPs, "service-vips", false, "create a ProxyVIP for every Service of type LoadBalancer with the annotation novaedge.io/vip-mode; requires novaedge in --apis")
	flags.Var(&o.clusterDomain, "cluster-routing-domain", "`name` of the routing domain of the cluster's own network, in which addresses of Nodes, Machines and Services are not allocated; an empty name is the default routing domain. Without the flag: the default routing domain if a pool is there, else every routing domain")
	flags.StringVar(&o.identity, "identity", "", "`name` of this replica in the journal (default $POD_NAME, or the host name)")
	flags.StringVar(&o.advertise, "advertise-address", "", "`host:port` at which other replicas reach the webhooks of this replica (default $POD_IP and the port of --webhook-bind-address)")
	flags.StringVar(&o.webhookBind, "webhook-bind-address", ":9443", "`host:port` of the webhooks, HTTPS")
	flags.StringVar(&o.certDir, "webhook-cert-dir", "/tls", "`directory` of tls.crt, tls.key and ca.crt, which verifies other replicas; changed files are read again")
	flags.StringVar(&o.certificate, "certificate", "", "`name` of the cert-manager Certificate in --namespace that renews the files in --webhook-cert-dir; /readyz?verbose, the log and metrics report a failed renewal")
	flags.StringVar(&o.certSecret, "webhook-cert-secret", "", "`name` of a Secret in --namespace for a CA and a certificate that the manager creates and renews itself, instead of --webhook-cert-dir; the Secret must exist, and is empty at first")
	flags.DurationVar(&o.certLife, "webhook-cert-duration", 90*24*time.Hour, fmt.Sprintf("validity of a certificate in --webhook-cert-secret, renewed when a third is left; the CA is valid ten times as long; at least %s", certificates.MinLife))
	flags.StringVar(&o.service, "webhook-service", "butler-ipam-webhook", "`name` of the Service of the webhooks, for the certificate in --webhook-cert-secret")
	o.mutating, o.validating = names{"zz-butler-ipam"}, names{"butler-ipam"}
	flags.Var(&o.mutating, "mutating-webhook-configurations", "`names` of the MutatingWebhookConfigurations whose caBundle comes from --webhook-cert-secret, separated by commas")
	flags.Var(&o.validating, "validating-webhook-configurations", "`names` of the ValidatingWebhookConfigurations whose caBundle comes from --webhook-cert-secret, separated by commas")
	flags.StringVar(&o.clientCA, "webhook-client-ca", "", "`file` with the CA of the API server's client certificate; the CA must sign no other certificate. Without the flag, every client that reaches the port can request grants")
	flags.StringVar(&o.probeBind, "health-probe-bind-address", ":8081", "`host:port` of /healthz and /readyz, HTTP; 0 for none")
	flags.StringVar(&o.metricsBind, "metrics-bind-address", ":8080", "`host:port` of /metrics; 0 for none")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve /metrics over HTTPS with the certificate of the webhooks, only to clients with a bearer token that may get the non-resource URL /metrics")
	flags.StringVar(&o.pprofBind, "pprof-bind-address", "0", "`host:port` of /debug/pprof, HTTP, without authentication; 0 for none")
	flags.DurationVar(&o.grantLife, "grant-expiry", ledger.DefaultGrantLife, fmt.Sprintf("how long granted addresses stay reserved if the created object is never observed; at least %s", minGrantLife))
	flags.DurationVar(&o.orphanGrace, "orphan-grace", reconcilers.DefaultOrphanAge, "how long an IPAddress without its claim, or a ProxyVIP without its Service, is kept: a restore from a backup creates the two one after the other")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay", 2*time.Second, "how long a stopping replica answers calls with HTTP 503, so that the API server calls another replica: until the Service no longer routes to it")
	flags.IntVar(&o.historyDays, "history-retention-days", 0, "`days` for which allocations and releases are stored in AllocationHistories in --namespace, in addition to the log; 0 for no AllocationHistories")
	o.tenants.addFlags(flags)
	addLogFlags(flags, &o.logFormat, &o.logLevel)
	flags.BoolVar(&o.version, "version", false, "print the version and exit")
	config.RegisterFlags(flags) // --kubeconfig
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.version {
		return o, nil
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("argument %q is neither a flag nor the command console: give only flags", flags.Arg(0))
	}
	return o, errors.Join(fromEnvironment(flags, getenv), o.complete(getenv))
}

func addLogFlags(flags *flag.FlagSet, format, level *string) {
	flags.StringVar(format, "log-format", "json", "`format`: json or console")
	flags.StringVar(level, "log-level", "info", "`level`: error, info, debug, or a number from 0 (info) to 127 (most detailed)")
}

func printUsage(usage string, flags *flag.FlagSet, output io.Writer) {
	fmt.Fprint(output, usage)
	flags.VisitAll(func(f *flag.Flag) {
		name, text := flag.UnquoteUsage(f)
		fmt.Fprintf(output, "  --%s %s\n        %s", f.Name, name, text)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(output, " (default %s)", f.DefValue)
		}
		fmt.Fprintln(output)
	})
}

// fromEnvironment sets flags that are absent from the command line.
func fromEnvironment(flags *flag.FlagSet, getenv func(string) string) error {
	given := map[string]bool{config.KubeconfigFlagName: true} // client-go reads the environment variable KUBECONFIG
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	flags.VisitAll(func(f *flag.Flag) {
		variable := "BUTLER_IPAM_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := getenv(variable)
		if value == "" || given[f.Name] {
			return
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s=%q: %w", variable, value, err))
		}
	})
	return errors.Join(errs...)
}

// complete sets defaults from the environment and validates the options.
func (o *options) complete(getenv func(string) string) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.namespace == "" {
		o.namespace = getenv("POD_NAMESPACE")
	}
	if o.namespace == "" {
		fault("--namespace is missing: name the namespace of the journal, or set POD_NAMESPACE")
	} else if faults := validation.IsDNS1123Label(o.namespace); len(faults) > 0 {
		fault("--namespace %q is not a valid name of a namespace: %s", o.namespace, faults[0])
	}
	if o.identity == "" {
		o.identity = getenv("POD_NAME")
	}
	if o.identity == "" {
		host, err := os.Hostname()
		if err != nil {
			fault("--identity is missing and the host has no name: %w", err)
		}
		o.identity = host
	}
	host, port, err := splitAddress(o.webhookBind)
	if err != nil {
		fault("--webhook-bind-address %q must be host:port: %w", o.webhookBind, err)
	}
	o.webhookHost, o.webhookPort = host, port
	if o.advertise == "" && err == nil {
		o.advertise = net.JoinHostPort(getenv("POD_IP"), strconv.Itoa(port))
	}
	if host, _, err := splitAddress(o.advertise); err != nil || host == "" {
		fault("--advertise-address %q must be host:port, as other replicas reach this one: give it, or set POD_IP", o.advertise)
	}
	for _, bind := range []struct{ flag, is string }{
		{"health-probe-bind-address", o.probeBind}, {"metrics-bind-address", o.metricsBind}, {"pprof-bind-address", o.pprofBind},
	} {
		if _, _, err := splitAddress(bind.is); err != nil && bind.is != "0" {
			fault("--%s %q must be host:port, or 0 for none: %w", bind.flag, bind.is, err)
		}
	}
	if o.serviceVIPs && !o.apis.has("novaedge") {
		fault("--service-vips requires novaedge in --apis (%s): add novaedge, or omit --service-vips", o.apis)
	}
	if o.certSecret != "" && o.certificate != "" {
		fault("--certificate %s and --webhook-cert-secret %s exclude each other: either cert-manager renews the certificate, or the manager", o.certificate, o.certSecret)
	}
	if o.certLife < certificates.MinLife {
		fault("--webhook-cert-duration %s must be at least %s: API servers must observe a new CA within a part of this time", o.certLife, certificates.MinLife)
	}
	if o.grantLife < minGrantLife {
		fault("--grant-expiry %s must be at least %s: the API server may store the created object until then", o.grantLife, minGrantLife)
	}
	if o.orphanGrace < time.Second {
		fault("--orphan-grace %s must be at least 1s: a restore takes longer", o.orphanGrace)
	}
	if o.historyDays < 0 || o.historyDays > maxHistoryDays {
		fault("--history-retention-days %d must be a number from 0 (no AllocationHistories) to %d", o.historyDays, maxHistoryDays)
	}
	if o.shutdownDelay < 0 {
		fault("--shutdown-delay %s must not be negative", o.shutdownDelay)
	}
	return errors.Join(append(errs, o.tenants.validate(o.apis))...)
}

// certificateOptions selects the source of the certificate of the webhooks.
func (o *options) certificateOptions() certificates.Options {
	return certificates.Options{
		Namespace: o.namespace, Dir: o.certDir, Secret: o.certSecret, Certificate: o.certificate, Service: o.service,
		Mutating: o.mutating, Validating: o.validating, Life: o.certLife, Now: now,
		NewServerClock: func() certificates.ServerClock { return apiserver.NewClock(now) },
	}
}

func splitAddress(address string) (string, int, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", 0, fmt.Errorf("port %q must be a number from 1 to 65535", text)
	}
	return host, int(port), nil
}

// names is a flag.Value: names separated by commas.
type names []string

// Set implements flag.Value.
func (n *names) Set(text string) error {
	*n = strings.Split(text, ",")
	if slices.Contains(*n, "") {
		return errors.New("a name is empty: write names, separated by commas")
	}
	return nil
}

// String implements flag.Value.
func (n names) String() string { return strings.Join(n, ",") }

// routingDomain is a flag.Value: the name of a routing domain.
type routingDomain struct{ name *string } // nil without the flag

// Set implements flag.Value.
func (d *routingDomain) Set(text string) error {
	if faults := validation.IsValidLabelValue(text); len(faults) > 0 {
		return fmt.Errorf("not a name of a routing domain, which is a label value: %s", faults[0])
	}
	d.name = &text
	return nil
}

// String implements flag.Value.
func (d routingDomain) String() string {
	if d.name == nil {
		return ""
	}
	return *d.name
}
