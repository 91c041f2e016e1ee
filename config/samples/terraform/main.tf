# All kinds, by OpenTofu or Terraform with the provider kubectl. test/clients runs this example; README.md explains it.

terraform {
  required_providers {
    kubectl = {
      source  = "gavinbunney/kubectl"
      version = "~> 1.19"
    }
  }
}

# Without arguments it reads KUBECONFIG, else ~/.kube/config.
provider "kubectl" {}

variable "namespace" {
  type    = string
  default = "butler-system"
}

# An address is unique within its routing domain.
variable "routing_domain" {
  type    = string
  default = "terraform-sample"
}

variable "cidr" {
  type    = string
  default = "10.60.0.0/26"
}

# Number of addresses by the name of an allocation.
variable "allocations" {
  type    = map(number)
  default = { nodes = 5, loadbalancer = 8 }
}

variable "machines" {
  type    = number
  default = 3
}

variable "labels" {
  type    = map(string)
  default = { team = "backend-team" }
}

resource "kubectl_manifest" "network_pool" {
  wait = true # until the object is gone
  yaml_body = yamlencode({
    apiVersion = "butler.butlerlabs.dev/v1alpha1"
    kind       = "NetworkPool"
    metadata   = { namespace = var.namespace, name = "terraform" }
    spec       = { cidr = var.cidr, routingDomain = var.routing_domain }
  })
}

resource "kubectl_manifest" "allocation" {
  for_each = var.allocations
  wait     = true
  yaml_body = yamlencode({
    apiVersion = "butler.butlerlabs.dev/v1alpha1"
    kind       = "IPAllocation"
    metadata   = { namespace = var.namespace, name = each.key, labels = var.labels }
    spec = {
      poolRef          = { name = kubectl_manifest.network_pool.name } # the reference orders both: the pool is first to come and last to go
      tenantClusterRef = { name = "my-cluster", namespace = "team-backend" }
      type             = "loadbalancer"
      count            = each.value
    }
  })
}

resource "kubectl_manifest" "address_claim" {
  count = var.machines
  wait  = true
  yaml_body = yamlencode({
    apiVersion = "ipam.cluster.x-k8s.io/v1beta2"
    kind       = "IPAddressClaim"
    metadata   = { namespace = var.namespace, name = "machine-${count.index}", labels = var.labels }
    spec = {
      poolRef = { apiGroup = "butler.butlerlabs.dev", kind = kubectl_manifest.network_pool.kind, name = kubectl_manifest.network_pool.name }
    }
  })
}

resource "kubectl_manifest" "ip_pool" {
  wait = true
  yaml_body = yamlencode({
    apiVersion = "ipam.metal3.io/v1alpha1"
    kind       = "IPPool"
    metadata   = { namespace = var.namespace, name = "terraform", labels = { "butler.butlerlabs.dev/routing-domain" = var.routing_domain } }
    spec = {
      namePrefix = "terraform"
      pools      = [{ start = "10.61.0.10", end = "10.61.0.30" }]
      prefix     = 24
      gateway    = "10.61.0.1"
    }
  })
}

resource "kubectl_manifest" "ip_claim" {
  count = var.machines
  wait  = true
  yaml_body = yamlencode({
    apiVersion = "ipam.metal3.io/v1alpha1"
    kind       = "IPClaim"
    metadata   = { namespace = var.namespace, name = "host-${count.index}", labels = var.labels }
    spec       = { pool = { name = kubectl_manifest.ip_pool.name } }
  })
}

resource "kubectl_manifest" "proxy_pool" {
  wait = true
  yaml_body = yamlencode({
    apiVersion = "novaedge.io/v1alpha1"
    kind       = "ProxyIPPool"
    metadata   = { name = var.routing_domain, labels = { "butler.butlerlabs.dev/routing-domain" = var.routing_domain } }
    spec       = { cidrs = ["10.62.0.0/28", "2001:db8:62::/124"], autoAssign = true }
  })
}

resource "kubectl_manifest" "proxy_vip" {
  wait = true
  yaml_body = yamlencode({
    apiVersion = "novaedge.io/v1alpha1"
    kind       = "ProxyVIP"
    metadata   = { name = var.routing_domain, labels = var.labels }
    spec = {
      poolRef       = { name = kubectl_manifest.proxy_pool.name }
      addressFamily = "dual"
      mode          = "L2ARP"
      ports         = [443]
    }
  })
}
