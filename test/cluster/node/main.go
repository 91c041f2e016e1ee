//go:build linux

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
)

func main() {
	dir := flag.String("dir", filepath.Join("bin", "cluster"), "directory that takes everything the cluster writes")
	path := flag.String("path", "", "directories of the components' binaries, looked into before PATH")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *path, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, path string, args []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("it takes root to make namespaces and mounts")
	}
	if path != "" {
		if err := os.Setenv("PATH", path+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
			return err
		}
	}
	n := node{dir: dir}
	switch {
	case len(args) == 1 && args[0] == "check":
		return check()
	case len(args) > 0 && args[0] == "up":
		return n.up(ctx, args[1:])
	case len(args) == 1 && args[0] == "down":
		return n.down()
	case len(args) == 1 && args[0] == "init":
		return n.init()
	}
	return errors.New("say check, up with archives of images, or down; see -help")
}
