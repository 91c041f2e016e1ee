// Command coredns is CoreDNS with no more plugins than a cluster's own names need.
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
