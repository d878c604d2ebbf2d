package hosts

// Running is a job on hosts.
type Running struct{}

// Stop ends all of its ranks.
func (r *Running) Stop() {}

// Wait waits for the end of all ranks.
func (r *Running) Wait() {}
