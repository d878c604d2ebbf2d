package pmi

import (
	"slices"
	"strings"
)

// PlacesKey is the key of a spawn under which its processes find whose places they take. gorun starts processes in the
// places of others only as often as its user allows.
const PlacesKey = "gorun-places"

// InPlaces reports whether the processes take the places of ranks that have died.
func (q *Spawn) InPlaces() bool {
	return slices.ContainsFunc(q.Keys, func(p Pair) bool { return strings.HasPrefix(p.Key, PlacesKey) })
}
