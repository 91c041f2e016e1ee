//go:build linux

// Command node runs a cluster of one node on this machine: etcd, the Kubernetes control plane, containerd, kubelet and kube-proxy, all of
// them real, in mount, network, PID and UTS namespaces of their own.
//
//	node check               names the programs of other projects that this machine lacks
//	node up IMAGE.tar...     starts it afresh with these images; only brings them in where it is up
//	node down                ends it
//
// The first process in those namespaces is this program again (init.go): it mounts, links, starts the components and starts again those
// that end. When it is killed the kernel ends all the others, and with the last one go mounts, links and rules.
//
// Its network leads nowhere: there is a bridge for the pods, an address for the node and no way out, neither to the machine nor beyond. So
// images come from archives only, and whoever wants to reach the cluster does so from inside, by the script DIR/in.
package main
