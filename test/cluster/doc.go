// Package cluster tests the manager where it is to work: on a real Kubernetes cluster, in pods, behind a Service, with certificates
// from cert-manager.
//
//	make cluster-packages   # once, Debian or Ubuntu: containerd, runc, iptables, conntrack, CNI plugins
//	make test-cluster       # Linux, root; RUN='TestManager/(First|Rotated)' for a part
//	bin/cluster/kubectl get pods -A
//	make cluster-down
//
// make test runs none of this: it takes root. The tests have the build tag cluster for that, and fail where there is no cluster.
//
// # How it is made
//
// The cluster has one node, of namespaces of its own (see node): etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
// kube-proxy and kubectl are built from test/controlplane/go.mod, so all are of one version; CoreDNS and cert-manager from modules of their
// own, here. There is no registry and no base image: image packs each binary into an archive, which containerd takes in. What is installed
// before the manager is in manifests and platform.sh; how the manager itself comes in only install_test.go knows.
//
// The tests run on the node too (go test -exec bin/cluster/in), as its network has no way out, nor in.
//
// # What it changes on the machine
//
// Nothing is installed unasked: what is missing is named, and make cluster-packages installs it. What runs, mounts, links and filters is in
// namespaces that end with their first process. What is seen outside: files in bin/cluster, and the cgroup butler-ipam-cluster with all
// pods, which may take 6 GiB together. make cluster-down ends the one and removes the other. Settings of the whole kernel that the
// kubelet would change are hidden from it.
//
// Tried with the first version of cgroups, as root in a container with two processors. NetworkPolicies are accepted and not enforced.
//
// # What was seen there
//
// With two processors that had other work as well, two replicas and 16 clients that create without a pause:
//
//	from make cluster-up to cert-manager of use, all built    27 to 35 s
//	from kubectl apply -k to the first allocation             7 to 13 s
//	                                     creates  failed  longest gap
//	pod of the holder deleted                867       0        0.7 s
//	the same without grace                   715       0        0.6 s
//	rollout restart                         1234       0        1.1 s
//	scaled to 1, 3 and 2                    1429       0        1.1 s
//	node drained, up to the budget          1634       0        1.0 s
//	CA and certificate: Secrets deleted     1094       0        1.4 s
//	CA and certificate: renewed             1031       0        0.8 s
//
// For up to a second after pods have become ready kube-proxy may still refuse connections to their Service.
package cluster
