package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/console/server"
)

// consoleCommand is the first argument with which the process runs the console instead of
// the manager.
const consoleCommand = "console"

const consoleUsage = `butler-ipam console serves web pages about pools, claims and addresses, by HTTPS, to persons with a token of the cluster.

A person sees the names of the objects that the person may list. The addresses of all other objects are shown as owned. The pages write nothing. A request
carries the token as "Authorization: Bearer TOKEN", or as the password of HTTP basic authentication, for which browsers have a dialog.

The manager does not serve the pages. The command needs the rights of the viewer role, and those to review tokens and rights. Every flag except
--kubeconfig has an environment variable, such as BUTLER_IPAM_CERT_DIR for --cert-dir. A flag on the command line takes precedence.

`

// consoleOptions are the flags and environment variables of the console.
type consoleOptions struct {
	server.Options
	logFormat, logLevel string
}

// parseConsoleOptions reads the command line, and the environment for absent flags. The
// error for --help is flag.ErrHelp.
func parseConsoleOptions(args []string, getenv func(string) string, output io.Writer) (*consoleOptions, error) {
	o := &consoleOptions{}
	flags := flag.NewFlagSet("butler-ipam console", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() { printUsage(consoleUsage, flags, output) }
	flags.StringVar(&o.Bind, "bind-address", ":8443", "`host:port` of the pages, HTTPS")
	flags.StringVar(&o.CertDir, "cert-dir", "/tls", "`directory` of tls.crt and tls.key; changed files are read again")
	flags.StringVar(&o.ProbeBind, "health-probe-bind-address", ":8081", "`host:port` of /healthz and /readyz, HTTP")
	addLogFlags(flags, &o.logFormat, &o.logLevel)
	config.RegisterFlags(flags) // --kubeconfig
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("argument %q is not a flag: give only flags", flags.Arg(0))
	}
	return o, fromEnvironment(flags, getenv)
}

// runConsole serves the pages until ctx ends.
func runConsole(ctx context.Context, o *consoleOptions, log logr.Logger) error {
	limitMemory(ctx, log.WithName("memory"))
	kube, err := config.GetConfig()
	if err != nil {
		return err
	}
	o.Version, o.Log = version, log.WithName(consoleCommand)
	return server.Run(ctx, kube, o.Options)
}
