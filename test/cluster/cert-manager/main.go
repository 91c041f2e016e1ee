package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var roles = map[string]func(context.Context) error{
	"controller": runController,
	"cainjector": runCAInjector,
	"webhook":    runWebhook,
}

func main() {
	klog.InitFlags(nil)
	flag.Parse()
	run, ok := roles[flag.Arg(0)]
	if !ok || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: cert-manager [-v level] controller|cainjector|webhook")
		os.Exit(2)
	}
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		klog.ErrorS(err, "Ended")
		os.Exit(1)
	}
}
