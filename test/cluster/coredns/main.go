// Command coredns is CoreDNS with only the plugins that resolve the names of a cluster.
package main

import (
	"github.com/coredns/coredns/coremain"

	// The plugins that coredns.yaml names.
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() { coremain.Run() }
