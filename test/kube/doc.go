// Package kube holds what is shipped for Kubernetes to the types of its API: the chart in deploy/helm, rendered by
// Helm's own engine with each of the chart's value sets. It holds the rendered configuration to the relay's own rules.
// No cluster is asked.
//
// Everything of it is in its tests. It is a module of its own, so that Helm and Kubernetes are no one's dependencies.
package kube
