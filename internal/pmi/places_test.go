package pmi

import (
	"slices"
	"strings"
	"testing"
)

// The ranks whose places are taken come as they are sent, whatever their order. A list that is too long is left out.
func TestDead(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "3,0-2,65535": {3, 0, 1, 2, 65535}, "5,4": {5, 4},
		"1,3": {1, 3}, "1-5/2": {1, 3, 5}, "0-1,4-12/4,11,10": {0, 1, 4, 8, 12, 11, 10}, "2,1,0": {2, 1, 0}} {
		if got := FormatRanks(want, 100); got != text {
			t.Errorf("%v is %q, want %q", want, got, text)
		}
		if got, ok := ParseRanks(text, len(want)); text != "" && (!ok || !slices.Equal(got, want)) {
			t.Errorf("%q is %v", text, got)
		}
	}
	long := []int{1, 3, 2, 0}
	if FormatRanks(long, 7) != "1,3,2,0" || FormatRanks(long, 6) != "" {
		t.Errorf("%q, %q", FormatRanks(long, 7), FormatRanks(long, 6))
	}
	const n = 3
	for _, text := range []string{"", "0,1", "0-3", "0-1", "0,1,1", "2,1-2", "-1,0,1", "0,1,65536", "a,1,2", "2-0", "1,,2",
		"0,1,2,", "0-9223372036854775807", "9223372036854775807,0,1", "0-1-2", "0-4/0", "0-4/-2", "0-4/", "0/2,1,2",
		"0-6/2", "0-4/2,4", "0-4/2/1", "0-9223372036854775807/9223372036854775807"} {
		if got, ok := ParseRanks(text, n); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A list of ranks as long as package mpi sends it, with as many dead ranks as it names, leaves room for arguments.
func TestLongListsLeaveRoom(t *testing.T) {
	_, clients := world(t, 1, false, Options{})
	q := Spawn{Ranks: 1300, Meet: true, Args: []string{strings.Repeat("x", 4000)}}
	for i := range q.Ranks {
		q.Dead = append(q.Dead, MaxSpawned-1-i)
	}
	if FormatRanks(q.Dead, maxDead) == "" {
		t.Fatal("the dead ranks are not named")
	}
	for key, n := range map[string]int{PlacesKey: 4*q.Ranks + 1024, "origins": MostOrigins} {
		if err := q.Keep(key, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := clients[0].spawnText(q)
	if n := b64.EncodedLen(len(text)); err != nil || n > maxRequest-100 {
		t.Errorf("the request has %d bytes, and %d in a frame: %v", len(text), n, err)
	}
}
