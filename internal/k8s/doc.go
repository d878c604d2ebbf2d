// Package k8s writes the manifest of a job for Kubernetes, as JSON: a headless Service by whose name the pods find the
// pod with index 0, and an Indexed Job with a pod for each host. Each pod runs gorun.
//
// [Job.Manifest] checks for everything that the API server would refuse, and for everything that it would accept but
// the kubelet could not run. Its output depends on its input only.
//
//	Owns:     the objects, what they ask for and what they may do; names and quantities of Kubernetes
//	May call: the standard library
//	Never:    speak to Kubernetes, open a file, read a flag of gorun (its errors name the flags to change)
package k8s
