//go:build linux

package main

import (
	"embed"
	"os"
	"path"
	"text/template"
)

//go:embed etc
var etc embed.FS

// writeConfig writes what the components read at their start.
func (n node) writeConfig() error {
	values := map[string]string{
		"Cgroup": cgroup, "DNSIP": dnsIP, "Etc": n.file("etc"), "NodeIP": nodeIP, "PluginDir": pluginDir(), "PodCIDR": podCIDR, "State": n.file("state"),
	}
	all, err := template.ParseFS(etc, "etc/*")
	if err != nil {
		return err
	}
	for _, t := range all.Templates() {
		to := t.Name()
		if path.Ext(to) == ".conflist" {
			to = path.Join("cni", to) // a directory of its own, as all that lies there is read
		}
		file, err := os.Create(n.file("etc", to))
		if err != nil {
			return err
		}
		defer file.Close()
		if err := t.Option("missingkey=error").Execute(file, values); err != nil {
			return err
		}
	}
	return nil
}
