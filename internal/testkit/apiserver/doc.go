// Package apiserver judges the manifests that gorun writes (cmd/gorun/testdata/k8s) by the code of Kubernetes' API
// server: strict decoding, defaults, the steps before an object is created, validation, and the profiles of Pod
// Security. It is a module of its own, so Kubernetes is not among the dependencies of this project. make k8s runs its
// tests.
//
//	Owns:     the judgement
//	May call: k8s.io/kubernetes and its staging modules
//	Never:    be imported
package apiserver
