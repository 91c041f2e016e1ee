// Package chart tests the Helm chart. It validates each rendered object against its API
// type, compares all rendered objects with config/, and installs, upgrades and removes
// the chart on a real API server.
package chart
