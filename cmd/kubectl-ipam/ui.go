package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/console"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const (
	// headerTimeout and maxHeader bound the header of a request.
	headerTimeout = 5 * time.Second
	maxHeader     = 16 << 10
	// stopTimeout bounds the responses in progress after an interrupt.
	stopTimeout = 2 * time.Second
	// installationLife is how long the health page caches the objects of the
	// installation, so that reloads of the page do not load the API server.
	installationLife = 10 * time.Second
)

func (a *app) newUI() *cobra.Command {
	var listen string
	var open bool
	var network clusterDomain
	cmd := &cobra.Command{
		Use: "ui", Short: "Serve web pages about pools and addresses on this machine", Args: cobra.NoArgs,
		Long: `Serve web pages about pools, claims and addresses until interrupted, on a loopback address. The pages show what your own rights let you read, and write nothing.

The command prints the address to open. It contains a token that admits one browser: run the command again for another. The command watches
the objects, so a page causes no list in the cluster.`,
		Example: `  kubectl ipam ui
  kubectl ipam ui --listen localhost:0`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serveUI(cmd.Context(), listen, open, network.given(cmd))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `address` and port; port 0 chooses a free one")
	cmd.Flags().BoolVar(&open, "open", false, "open the pages in the browser")
	network.addFlag(a, cmd)
	return cmd
}

func (a *app) serveUI(ctx context.Context, listen string, open bool, clusterDomain *string) error {
	address, err := loopbackAddress(listen)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
	if err != nil {
		return fmt.Errorf("--listen=%s: %w", listen, err)
	}
	defer listener.Close() //nolint:errcheck // the server closes it too
	o, err := a.options()
	if err != nil {
		return err
	}
	feed, err := cluster.Watch(ctx, o)
	if err != nil {
		return err
	}
	events, err := cluster.WatchEvents(ctx, o)
	if err != nil {
		return err
	}
	tenants, err := cluster.WatchTenants(ctx, o)
	if err != nil {
		return err
	}
	showEvents := func(_ context.Context, p *inventory.Pool) ([]inventory.Event, string) { return events.Events(nil, p) }
	showTenant := func(_ context.Context, namespace, name string) inventory.Tenant {
		return tenants.Tenant(nil, namespace, name)
	}
	view := func(ctx context.Context) (console.View, error) {
		i, warnings, err := feed.Inventory(ctx, nil)
		current, cause := feed.Outdated()
		return console.View{Inventory: i, Warnings: warnings, Current: current, Cause: cause}, err
	}
	read := cluster.KeepInstallation(o, cluster.Checks{Grace: health.DefaultGrace, Version: version, ClusterDomain: clusterDomain}, installationLife)
	pages := console.New(console.Options{
		View: view, Events: showEvents, Tenant: showTenant, Now: a.now, Version: version,
		Health: func(ctx context.Context) (func(*inventory.Inventory) health.Report, error) {
			installation, err := read(ctx)
			if err != nil {
				return nil, err
			}
			return installation.Check, nil
		},
	})
	gate, err := console.NewLocalGate(pages, listener.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		return err
	}
	url := gate.URL()
	if _, err := fmt.Fprintln(a.out, url); err != nil {
		return err
	}
	if open {
		if err := openBrowser(ctx, url); err != nil {
			a.warn("the browser could not be opened: %v: open the address above", err)
		}
	}
	server := &http.Server{Handler: gate, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// loopbackAddress parses an address and returns an error if the address is not a loopback
// address.
func loopbackAddress(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--listen=%s: write an address and a port, as 127.0.0.1:8080", text)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	address, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return address, fmt.Errorf("--listen=%s: write a loopback address and a port, as 127.0.0.1:8080", text)
	}
	if !address.Addr().IsLoopback() {
		return address, fmt.Errorf("--listen=%s: the pages show what you may read to everyone who reaches them, so they are served on loopback addresses only: use 127.0.0.1:%s", text, port)
	}
	return address, nil
}

// openBrowser opens an address in the default browser.
func openBrowser(ctx context.Context, url string) error {
	command := []string{"xdg-open", url}
	switch runtime.GOOS {
	case "darwin":
		command[0] = "open"
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	}
	return exec.CommandContext(ctx, command[0], command[1:]...).Start()
}
