//go:build linux

// Command node runs a Kubernetes cluster of one node on this machine. It starts etcd, the
// Kubernetes control plane, containerd, kubelet and kube-proxy, all of them real, in
// mount, network, PID and UTS namespaces of their own.
//
//	node check               lists the third-party programs that this machine lacks
//	node up IMAGE.tar...     starts a new cluster with these images; if the cluster is already up, only imports the images
//	node down                stops the cluster
//
// The first process in these namespaces is this program again (init.go): it creates
// mounts and links, starts the components, and restarts components that end. If the first
// process is killed, the kernel ends all other processes of the namespaces; with the last
// process the mounts, links and packet filter rules are removed too.
//
// The cluster's network has a bridge for the pods and an address for the node, and no
// route to the machine or beyond. So images come from archives only, and programs that
// access the cluster must run inside the namespaces, through the script DIR/in.
package main
