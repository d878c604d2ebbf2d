//go:build invariants || race

package invariants

// Enabled: check what costs.
const Enabled = true
