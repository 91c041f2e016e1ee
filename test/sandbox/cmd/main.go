// Command cmd runs a sandbox in the foreground until it is interrupted. `make sandbox`
// starts it. Package sandbox describes the sandbox.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"butlerlabs.dev/ipam/test/sandbox"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	options := sandbox.Options{Log: os.Stderr}
	flag.StringVar(&options.Dir, "dir", filepath.Join("bin", "sandbox"), "directory that takes kubeconfig, pids, logs and the stored objects; empty for a temporary one, which goes with the sandbox")
	flag.IntVar(&options.Replicas, "replicas", 2, "number of managers; with 0 the webhooks are not installed either")
	flag.StringVar(&options.ManagerBinary, "manager", "", "binary of the manager (default bin/butler-ipam)")
	flag.BoolVar(&options.Restart, "restart", false, "start a manager that died again")
	flag.BoolVar(&options.Keep, "keep", false, "keep the stored objects of the last run")
	flag.BoolVar(&options.ClusterAPI, "clusterapi", false, "install the CRDs of Cluster API that managers serve or read")
	flag.BoolVar(&options.Controllers, "controllers", false, "start kube-controller-manager: namespaces end, owner references delete, quotas count")
	flag.BoolVar(&options.Tenants, "tenants", false, "install the CRDs of TenantCluster and ProviderConfig, and serve them")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: sandbox [flags] [-- flags of every manager]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if options.ManagerArgs = flag.Args(); options.Tenants {
		options.ManagerArgs = append(options.ManagerArgs, "--tenants")
	}

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	s, err := sandbox.Start(ctx, options)
	if err != nil {
		return err
	}
	programs, err := filepath.Abs("bin")
	if err != nil {
		return errors.Join(err, s.Stop())
	}
	fmt.Printf("ready; in another terminal:\n\n  export KUBECONFIG=%s PATH=%s:$PATH\n  kubectl get ipa,np\n\nlogs are in %s; Ctrl-C stops the sandbox\n", s.Kubeconfig(), programs, filepath.Join(s.Dir(), "logs"))
	<-ctx.Done()
	return s.Stop()
}
