//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	startLimit   = 2 * time.Minute
	pollInterval = 200 * time.Millisecond
)

// up starts the cluster where it is not up, and brings in the images.
func (n node) up(ctx context.Context, images []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %s: see %s", startLimit, n.file("logs")))
	defer cancel()
	began := time.Now()
	say := func(what string) { fmt.Printf("%5.1fs  %s\n", time.Since(began).Seconds(), what) }
	if n.isUp(ctx) && n.ready(ctx) == nil {
		say("the cluster is up already")
		return n.load(ctx, images)
	}
	if err := n.down(); err != nil { // what is left of one that is not ready goes
		return err
	}
	if err := n.prepare(); err != nil {
		return err
	}
	ended, err := n.start()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"containerd answers", func(ctx context.Context) error { return n.run(ctx, "ctr", "version") }},
		{"images are in", func(ctx context.Context) error { return n.load(ctx, images) }},
		{"the API server is ready", n.ready},
		{"the node is Ready", func(ctx context.Context) error {
			return n.run(ctx, "kubectl", "wait", "--for=condition=Ready", "--timeout=1s", "node/"+nodeName)
		}},
		{"pods can be made", func(ctx context.Context) error { return n.run(ctx, "kubectl", "get", "serviceaccount", "default") }},
	} {
		if err := await(ctx, ended, step.do); err != nil {
			return fmt.Errorf("waiting until %s: %w", step.what, err)
		}
		say(step.what)
	}
	return nil
}

// await tries until it succeeds, or the node has ended.
func await(ctx context.Context, ended <-chan error, try func(context.Context) error) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case why := <-ended:
			return errors.Join(why, err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func (n node) ready(ctx context.Context) error {
	return n.run(ctx, "kubectl", "get", "--raw=/readyz")
}

// load brings archives of images into containerd, where kubelet looks for them.
func (n node) load(ctx context.Context, images []string) error {
	for _, image := range images {
		if err := n.run(ctx, "ctr", "--namespace=k8s.io", "images", "import", image); err != nil {
			return err
		}
	}
	return nil
}

// prepare settles directories, keys, configuration and the pods' cgroup.
func (n node) prepare() error {
	for _, name := range []string{"etc", "logs", "state"} {
		if err := os.RemoveAll(n.file(name)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"etc/cni", "logs", "state/pki", "state/varlib", "state/varlog", "state/sysctl"} {
		if err := os.MkdirAll(n.file(dir), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(n.writePKI(), n.writeConfig(), makeCgroup())
}

// start starts the node's first process. What it gives ends with an error when that does.
func (n node) start() (ended <-chan error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(n.file("logs", "init.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has a descriptor of its own
	init := exec.Command(self, "-dir", n.dir, "init")
	init.Stdout, init.Stderr = log, log
	init.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
	}
	if err := n.writeScripts(init.Args); err != nil {
		return nil, err
	}
	if err := init.Start(); err != nil {
		return nil, fmt.Errorf("making namespaces: %w", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- fmt.Errorf("the node has ended: %w: see %s", init.Wait(), log.Name()) }()
	return gone, os.WriteFile(n.file("pid"), fmt.Appendln(nil, init.Process.Pid), 0o644)
}
