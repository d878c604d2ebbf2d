// Package k8s writes the manifest of a job for Kubernetes, as JSON: a headless Service by whose name the pods find the
// one with index 0, and an Indexed Job with a pod for each host, each of which runs gorun.
//
// [Job.Manifest] checks what the API server would refuse, and what it would accept and the kubelet could not run. Its
// output depends on its input only.
//
//	Owns:     the objects, what they ask for and what they may do; names and quantities of Kubernetes
//	May call: the standard library
//	Never:    speaks to Kubernetes, opens a file, reads a flag of gorun (its errors name those that are to be changed)
package k8s
