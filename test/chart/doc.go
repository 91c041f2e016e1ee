// Package chart tests the Helm chart by what Helm makes of it: each object against its API type, all of them together against config/, and on a
// real API server, where it is installed, upgraded and removed.
package chart
