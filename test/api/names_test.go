package api

import (
	"strings"
	"testing"

	"k8s.io/client-go/discovery"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// kubectl resolves a name that two resources share to the one that discovery lists first.
func TestShortNames_AreOursAlone(t *testing.T) {
	asker, err := discovery.NewDiscoveryClientForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := asker.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	users := map[string]map[string]bool{} // name that kubectl accepts -> resources, with their groups
	short := map[string]bool{}            // short names of our own group
	for _, list := range lists {
		group, _, versioned := strings.Cut(list.GroupVersion, "/")
		if !versioned {
			group = ""
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			for _, name := range append([]string{r.Name, r.SingularName}, r.ShortNames...) {
				if users[name] == nil {
					users[name] = map[string]bool{}
				}
				users[name][r.Name+"."+group] = true
			}
			for _, name := range r.ShortNames {
				short[name] = short[name] || group == butlerv1.GroupVersion.Group
			}
		}
	}
	count := 0
	for name, ours := range short {
		if !ours {
			continue
		}
		count++
		if len(users[name]) > 1 {
			t.Errorf("short name %s belongs to %v", name, users[name])
		}
	}
	if count == 0 {
		t.Error("discovery lists no short name of our group")
	}
}
