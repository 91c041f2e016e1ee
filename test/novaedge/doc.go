// Package novaedge tests ProxyIPPools and ProxyVIPs against a real API server with two managers: what the product's document promises,
// as printed there, and the scenarios that its own code was tested for or never was.
package novaedge
