// Package apiserver judges the manifests that gorun writes (cmd/gorun/testdata/k8s) by the code of the API server of
// Kubernetes itself: strict decoding, defaults, what it does before an object is created, validation, and the profiles
// of Pod Security. It is a module of its own, so that this project's has none of Kubernetes among its dependencies:
// make k8s runs its tests.
//
//	Owns:     the judgement
//	May call: k8s.io/kubernetes and its staging modules
//	Never:    is imported
package apiserver
