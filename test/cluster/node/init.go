//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// restartAfter is how long a component that has ended rests before it is started again.
const restartAfter = time.Second

// init is the life of the node's first process, until it is killed. What it mounts and
// links is seen in its namespaces only.
func (n node) init() error {
	if err := errors.Join(n.mount(), n.network()); err != nil {
		return err
	}
	running := map[int]component{}
	start := func(c component) error {
		pid, err := n.startComponent(c)
		running[pid] = c
		return err
	}
	for _, c := range n.controlPlane() {
		if err := start(c); err != nil {
			return err
		}
	}
	ready := func(context.Context) error {
		return commands("kubectl --kubeconfig=" + n.pki("admin.kubeconfig") + " get --raw=/readyz")
	}
	if err := await(context.Background(), nil, ready); err != nil {
		return err
	}
	for _, c := range n.components() {
		if err := start(c); err != nil {
			return err
		}
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil) // orphans too come to the first process
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		c, ok := running[pid]
		if !ok {
			continue
		}
		fmt.Printf("%s %s has ended (status %d, signal %d) and is started again\n", time.Now().Format(time.TimeOnly), c.name, status.ExitStatus(), status.Signal())
		delete(running, pid)
		time.Sleep(restartAfter)
		if err := start(c); err != nil {
			return err
		}
	}
}

// sysctls are settings of the whole kernel that the kubelet insists on. It finds files in
// their place that hold them already.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mount leaves the machine's /run, /var/lib and /var/log to the machine.
func (n node) mount() error {
	if err := syscall.Sethostname([]byte(nodeName)); err != nil {
		return err
	}
	err := commands(
		"mount --make-rprivate /", // first of all: until then the machine would see what is mounted here
		"mount -t proc proc /proc",
		"mount --make-rshared /", // as the kubelet wants it, among the pods
		"mount -t tmpfs tmpfs /run",
		"mkdir -p /run/netns /run/lock",
		"mount --bind "+n.file("state", "varlib")+" /var/lib",
		"mount --bind "+n.file("state", "varlog")+" /var/log",
	)
	for name, value := range sysctls {
		shadow := n.file("state", "sysctl", strings.ReplaceAll(name, "/", "."))
		err = errors.Join(err, os.WriteFile(shadow, []byte(value+"\n"), 0o644), commands("mount --bind "+shadow+" /proc/sys/"+name))
	}
	return err
}

// network makes an interface that has the node's address, and a default route that leads
// nowhere: without one nothing could be sent to a Service, which has no interface.
func (n node) network() error {
	return errors.Join(
		commands(
			"ip link set lo up",
			"ip link add node0 type bridge",
			"ip address add "+nodeIP+"/24 dev node0",
			"ip link set node0 up",
			"ip route add default dev node0",
		),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644),
	)
}

// commands runs commands whose words are set apart by blanks, up to the first that fails.
func commands(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// component is a process of the node's. Its log is logs/NAME.log.
type component struct {
	name string
	args []string
}

func (n node) startComponent(c component) (pid int, err error) {
	path, err := exec.LookPath(c.name)
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(n.file("logs", c.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer nothing.Close()
	process, err := os.StartProcess(path, append([]string{c.name}, c.args...), &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nothing, log, log}})
	if err != nil {
		return 0, err
	}
	pid = process.Pid // Release forgets it
	return pid, process.Release()
}

func (n node) controlPlane() []component {
	etcd := []string{
		"--name=" + nodeName,
		"--data-dir=" + n.file("state", "etcd"),
		"--unsafe-no-fsync", // what it holds is worth no more than this run
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=" + nodeName + "=http://127.0.0.1:2380",
		"--log-level=warn",
	}
	apiServer := []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=" + nodeIP, "--advertise-address=" + nodeIP, "--secure-port=6443",
		"--service-cluster-ip-range=" + serviceIPs,
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + n.pki("ca.crt"),
		"--tls-cert-file=" + n.pki("apiserver.crt"), "--tls-private-key-file=" + n.pki("apiserver.key"),
		"--kubelet-client-certificate=" + n.pki("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + n.pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + n.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + n.pki("service-account.key"), "--service-account-signing-key-file=" + n.pki("service-account.key"),
		"--requestheader-client-ca-file=" + n.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + n.pki("front-proxy-client.crt"), "--proxy-client-key-file=" + n.pki("front-proxy-client.key"),
		"--audit-policy-file=" + n.file("etc", "audit.yaml"), "--audit-log-path=" + n.file("logs", "audit.log"),
	}
	return []component{{"containerd", []string{"--config=" + n.file("etc", "containerd.toml")}}, {"etcd", etcd}, {"kube-apiserver", apiServer}}
}

// components are those that would give up if the API server were not there yet.
func (n node) components() []component {
	return []component{
		{"kube-controller-manager", []string{
			"--kubeconfig=" + n.pki("kube-controller-manager.kubeconfig"),
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--root-ca-file=" + n.pki("ca.crt"),
			"--service-account-private-key-file=" + n.pki("service-account.key"),
		}},
		{"kube-scheduler", []string{
			"--kubeconfig=" + n.pki("kube-scheduler.kubeconfig"),
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
		}},
		{"kubelet", []string{
			"--config=" + n.file("etc", "kubelet.yaml"),
			"--kubeconfig=" + n.pki("kubelet.kubeconfig"),
			"--hostname-override=" + nodeName,
			"--node-ip=" + nodeIP,
			"--root-dir=" + filepath.Join(n.dir, "state", "kubelet"),
		}},
		{"kube-proxy", []string{
			"--config=" + n.file("etc", "kube-proxy.yaml"),
			"--hostname-override=" + nodeName,
		}},
	}
}
