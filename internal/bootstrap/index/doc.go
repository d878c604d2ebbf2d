// Package index joins the pods of an Indexed Job of Kubernetes, one rank each: the pod with index 0 serves, and the
// others dial it.
//
//	Owns:     the facts that the pods get: the address of index 0, the number of ranks, the file with the key
//	May call: internal/bootstrap/rank0, internal/auth
//	Never:    speak to Kubernetes
package index
