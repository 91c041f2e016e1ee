//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const stopLimit = 20 * time.Second

// down ends the node's first process, and with it everything in its namespaces, and
// removes the pods' cgroup.
func (n node) down() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if n.isUp(ctx) {
		text, err := os.ReadFile(n.file("pid"))
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("%s: %w", n.file("pid"), err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		for n.isUp(ctx) {
			if ctx.Err() != nil {
				return fmt.Errorf("process %d does not end", pid)
			}
			time.Sleep(pollInterval)
		}
	}
	return errors.Join(os.RemoveAll(n.file("pid")), removeCgroup(ctx))
}
