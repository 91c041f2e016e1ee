//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies are the directories in which the cgroup is one: of version 2 there is one
// hierarchy, of version 1 one for each controller.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return []string{cgroupRoot}, nil
	}
	return filepath.Glob(cgroupRoot + "/*")
}

func makeCgroup() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.MkdirAll(filepath.Join(h, cgroup), 0o755); err != nil {
			return err
		}
	}
	// A new cpuset of version 1 has neither processors nor memory.
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(cgroupRoot, "cpuset", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(cgroupRoot, "cpuset", cgroup, name), value, 0o644); err != nil {
			return err
		}
	}
	limit := filepath.Join(cgroupRoot, "memory", cgroup, "memory.limit_in_bytes")
	if all[0] == cgroupRoot {
		limit = filepath.Join(cgroupRoot, cgroup, "memory.max")
	}
	return os.WriteFile(limit, []byte(strconv.Itoa(memoryLimit)), 0o644)
}

// removeCgroup removes the cgroup with all below it, as soon as the last process in it is
// gone.
func removeCgroup(ctx context.Context) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		top := filepath.Join(h, cgroup)
		for {
			err := removeTree(top)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("the cgroup of a cluster cannot be removed, as if another one on this machine were up: %w", err)
			}
			time.Sleep(pollInterval)
		}
	}
	return nil
}

// removeTree removes directories, innermost first: the files in a cgroup go with it. The
// error is that of the outermost.
func removeTree(top string) error {
	if _, err := os.Stat(top); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var dirs []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		err = os.Remove(dir)
	}
	return err
}
