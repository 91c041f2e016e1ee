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
	"butlerlabs.dev/ipam/webhooks/certificates"
)

// minGrantLife is the shortest life of a grant after which the API server has surely given its create up: that takes 34 s.
const minGrantLife = 45 * time.Second

// options are what the command line and the environment say.
type options struct {
	namespace     string
	apis          apis
	serviceVIPs   bool
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
	tenants       tenantOptions
	logFormat     string
	logLevel      string
	version       bool
}

const usage = `butler-ipam answers the creation of an IPAllocation, a ProxyVIP, an IPClaim or an IPAddressClaim with its addresses.

It serves the admission webhooks and keeps the status of pools and claims. Any number of replicas may run: they share
one list of open grants, the Lease butler-ipam-journal.

Every flag but --kubeconfig can be given as an environment variable, --log-level as BUTLER_IPAM_LOG_LEVEL; the flag wins.

`

// parse reads the command line and, for what it leaves out, the environment. The error is flag.ErrHelp where help was asked for.
func parse(args []string, getenv func(string) string, output io.Writer) (*options, error) {
	o := &options{apis: allAPIs}
	flags := flag.NewFlagSet("butler-ipam", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() { printUsage(flags, output) }
	flags.StringVar(&o.namespace, "namespace", "", "`namespace` of the Lease butler-ipam-journal; without it $POD_NAMESPACE")
	flags.Var(&o.apis, "apis", "`names` of the APIs to serve, separated by commas; what is stored of the others keeps its addresses")
	flags.BoolVar(&o.serviceVIPs, "service-vips", false, "make a ProxyVIP for every Service of type LoadBalancer with the annotation novaedge.io/vip-mode; needs novaedge among --apis")
	flags.StringVar(&o.identity, "identity", "", "`name` of this replica in the journal; without it $POD_NAME, else the host name")
	flags.StringVar(&o.advertise, "advertise-address", "", "`host:port` at which other replicas reach these webhooks; without it $POD_IP and the port of --webhook-bind-address")
	flags.StringVar(&o.webhookBind, "webhook-bind-address", ":9443", "`host:port` of the webhooks, HTTPS")
	flags.StringVar(&o.certDir, "webhook-cert-dir", "/tls", "`directory` of tls.crt, tls.key and, to know other replicas by, ca.crt; they are read again when they change")
	flags.StringVar(&o.certificate, "certificate", "", "`name` of the Certificate in --namespace by which cert-manager renews these files: /readyz?verbose, the log and metrics say when it does not")
	flags.StringVar(&o.certSecret, "webhook-cert-secret", "", "`name` of a Secret in --namespace, empty at first, where the manager keeps a CA and a certificate that it makes and renews itself; without it, --webhook-cert-dir has them")
	flags.DurationVar(&o.certLife, "webhook-cert-duration", 90*24*time.Hour, fmt.Sprintf("how long a certificate in --webhook-cert-secret is good, renewed when a third is left; its CA ten times as long; at least %s", certificates.MinLife))
	flags.StringVar(&o.service, "webhook-service", "butler-ipam-webhook", "`name` of the Service of the webhooks, for the certificate in --webhook-cert-secret")
	o.mutating, o.validating = names{"zz-butler-ipam"}, names{"butler-ipam"}
	flags.Var(&o.mutating, "mutating-webhook-configurations", "`names` of the MutatingWebhookConfigurations whose caBundle comes from --webhook-cert-secret, separated by commas")
	flags.Var(&o.validating, "validating-webhook-configurations", "`names` of the ValidatingWebhookConfigurations whose caBundle comes from --webhook-cert-secret, separated by commas")
	flags.StringVar(&o.clientCA, "webhook-client-ca", "", "`file` with the CA of the client certificate that the API server presents, and of nobody else's; without it, whoever reaches the port can ask for grants")
	flags.StringVar(&o.probeBind, "health-probe-bind-address", ":8081", "`host:port` of /healthz and /readyz, HTTP; 0 for none")
	flags.StringVar(&o.metricsBind, "metrics-bind-address", ":8080", "`host:port` of /metrics; 0 for none")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", true, "serve /metrics over HTTPS with the certificate of the webhooks, and only to those whose bearer token may get the non-resource URL /metrics")
	flags.StringVar(&o.pprofBind, "pprof-bind-address", "0", "`host:port` of /debug/pprof, HTTP, for whoever reaches it; 0 for none")
	flags.DurationVar(&o.grantLife, "grant-expiry", ledger.DefaultGrantLife, fmt.Sprintf("how long the addresses of an answered create are kept when its object does not turn up; at least %s", minGrantLife))
	flags.DurationVar(&o.orphanGrace, "orphan-grace", reconcilers.DefaultOrphanAge, "how long an IPAddress stays without its claim, and the ProxyVIP of a Service without that: a restore brings the one soon after the other")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay", 2*time.Second, "how long a replica that stops sends calls on to others, until Services have forgotten it")
	o.tenants.addTo(flags)
	flags.StringVar(&o.logFormat, "log-format", "json", "`format`: json or console")
	flags.StringVar(&o.logLevel, "log-level", "info", "`level`: error, info, debug, or a number from 0 (info) to 127; the higher, the more is said")
	flags.BoolVar(&o.version, "version", false, "print the version and end")
	config.RegisterFlags(flags) // --kubeconfig
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.version {
		return o, nil
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("argument %q is not understood: only flags are", flags.Arg(0))
	}
	return o, errors.Join(fromEnvironment(flags, getenv), o.complete(getenv))
}

func printUsage(flags *flag.FlagSet, output io.Writer) {
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

// fromEnvironment sets the flags that the command line leaves out.
func fromEnvironment(flags *flag.FlagSet, getenv func(string) string) error {
	given := map[string]bool{config.KubeconfigFlagName: true} // it has an environment variable of its own
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

// complete fills in what follows from the surroundings, and checks the rest.
func (o *options) complete(getenv func(string) string) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.namespace == "" {
		o.namespace = getenv("POD_NAMESPACE")
	}
	if o.namespace == "" {
		fault("--namespace is missing: name the namespace of the journal, or set POD_NAMESPACE")
	} else if faults := validation.IsDNS1123Label(o.namespace); len(faults) > 0 {
		fault("--namespace %q is no name of a namespace: %s", o.namespace, faults[0])
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
		fault("--service-vips needs novaedge among --apis, which are %s: add it, or leave the flag out", o.apis)
	}
	if o.certSecret != "" && o.certificate != "" {
		fault("--certificate %s and --webhook-cert-secret %s exclude each other: either cert-manager renews the certificate, or the manager", o.certificate, o.certSecret)
	}
	if o.certLife < certificates.MinLife {
		fault("--webhook-cert-duration %s must be at least %s: API servers must learn of a new CA within a part of it", o.certLife, certificates.MinLife)
	}
	if o.grantLife < minGrantLife {
		fault("--grant-expiry %s must be at least %s: the API server may store an object so late", o.grantLife, minGrantLife)
	}
	if o.orphanGrace < time.Second {
		fault("--orphan-grace %s must be at least 1s: a restore needs longer than that", o.orphanGrace)
	}
	if o.shutdownDelay < 0 {
		fault("--shutdown-delay %s must not be negative", o.shutdownDelay)
	}
	return errors.Join(append(errs, o.tenants.check(o.apis))...)
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

// names is a flag.Value: some names, separated by commas.
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
