package mpi

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// secret has a part that gob cannot encode if it is set.
type secret struct {
	Name string
	Wake any
}

type unregistered struct{ N int }

func TestValuesOfEachRank(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		for _, n := range []int{1, 2, 5} {
			run(n, func(w *Comm) {
				me, root := w.Rank(), n-1
				v, err := BcastValue(w, complex(float64(me), 1), root)
				check(err == nil && v == complex(float64(root), 1), "BcastValue: %v, %v", v, err)
				sum, err := ReduceValue(w, me+1, Sum, root)
				want := 0
				if me == root {
					want = n * (n + 1) / 2
				}
				check(err == nil && sum == want, "ReduceValue: %d, %v; want %d", sum, err, want)
				sum, err = AllreduceValue(w, me+1, Sum)
				check(err == nil && sum == n*(n+1)/2, "AllreduceValue: %d, %v", sum, err)
				each := make([]int, n)
				for i := range each {
					each[i] = 10 * i
				}
				got, err := GatherValues(w, 10*me, root)
				if me == root {
					check(err == nil && reflect.DeepEqual(got, each), "GatherValues: %v, %v", got, err)
				} else {
					check(err == nil && got == nil, "GatherValues at another rank: %v, %v", got, err)
				}
				got, err = AllgatherValues(w, 10*me)
				check(err == nil && reflect.DeepEqual(got, each), "AllgatherValues: %v, %v", got, err)
				if me != root {
					each = nil
				}
				mine, err := ScatterValues(w, each, root)
				check(err == nil && mine == 10*me, "ScatterValues: %d, %v", mine, err)
			})
		}
	})
}

// Lengths run from nothing past what is sent in one message, and differ.
func TestAllocOfEachRank(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			for round := range 3 {
				length := func(rank int) int { return []int{0, 1, 300_000}[(rank+round)%3] }
				mine := make([]int32, length(w.Rank()))
				for i := range mine {
					mine[i] = int32(w.Rank()*1000 + i)
				}
				if len(mine) == 0 {
					mine = nil
				}
				right := func(all [][]int32) bool {
					if len(all) != 3 {
						return false
					}
					for rank, block := range all {
						if len(block) != length(rank) || cap(block) != len(block) {
							return false
						}
						for i, v := range block {
							if v != int32(rank*1000+i) {
								return false
							}
						}
					}
					return true
				}
				all, err := AllgatherAlloc(w, mine)
				check(err == nil && right(all), "AllgatherAlloc in round %d: %v", round, err)
				all, err = GatherAlloc(w, mine, round)
				if w.Rank() == round {
					check(err == nil && right(all), "GatherAlloc in round %d: %v", round, err)
				} else {
					check(err == nil && all == nil, "GatherAlloc at another rank: %d blocks, %v", len(all), err)
				}
			}
		})
	})
}

func TestObjectsOfEachRank(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(3, func(w *Comm) {
			long := strings.Repeat("long", 100_000)
			of := func(rank int) map[string][]string {
				return map[string][]string{fmt.Sprint("rank ", rank): {"", long[:rank*133_333]}}
			}
			me := w.Rank()
			v, err := BcastObject(w, of(me), 1)
			check(err == nil && reflect.DeepEqual(v, of(1)), "BcastObject: %v", err)
			want := []map[string][]string{of(0), of(1), of(2)}
			all, err := AllgatherObjects(w, of(me))
			check(err == nil && reflect.DeepEqual(all, want), "AllgatherObjects: %v", err)
			all, err = GatherObjects(w, of(me), 2)
			if me == 2 {
				check(err == nil && reflect.DeepEqual(all, want), "GatherObjects: %v", err)
			} else {
				check(err == nil && all == nil, "GatherObjects at another rank: %v, %v", all, err)
			}
			if me != 0 {
				want = nil
			}
			v, err = ScatterObjects(w, want, 0)
			check(err == nil && reflect.DeepEqual(v, of(me)), "ScatterObjects: %v", err)
		})
	})
}

// A value that cannot be encoded at one rank is an error there and where it was to arrive, and the calls after it are
// right.
func TestObjectThatCannotBeEncoded(t *testing.T) {
	bad, good := secret{"bad", unregistered{1}}, secret{Name: "good"}
	overLoop(t)(3, func(w *Comm) {
		me := w.Rank()
		isType := func(err error, text string) bool {
			return errors.Is(err, ErrType) && strings.Contains(err.Error(), text)
		}
		why := func(rank int) string {
			if me == rank {
				return "gob cannot encode"
			}
			return fmt.Sprintf("rank %d could not encode its value", rank)
		}
		v := good
		if me == 1 {
			v = bad
		}
		_, err := BcastObject(w, v, 1)
		check(isType(err, why(1)), "BcastObject of what gob cannot encode: %v", err)
		_, err = AllgatherObjects(w, v)
		check(isType(err, why(1)), "AllgatherObjects: %v", err)
		_, err = GatherObjects(w, v, 0)
		check((err == nil) == (me == 2) && (me == 2 || isType(err, why(1))), "GatherObjects: %v", err)
		one, err := ScatterObjects(w, []secret{good, good, bad}, 0)
		check((err == nil) == (me == 1) && (me == 1 && one.Name == "good" || me != 1 && isType(err, why(0))),
			"ScatterObjects: %v, %v", one, err)
		other, err := BcastObject(w, sevenAtRank0(me), 0)
		check(err == nil && other == 7, "BcastObject after the errors: %d, %v", other, err)
	})
}

func sevenAtRank0(me int) int { return map[bool]int{true: 7, false: me}[me == 0] }

// gob panics on a nil pointer, and loses it inside of another one.
func TestNilPointerIsNoObject(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		var v *secret
		_, err := BcastObject(w, v, 0)
		check(errors.Is(err, ErrType), "BcastObject: %v", err)
		if w.Rank() == 0 {
			v = &secret{Name: "good"}
		}
		_, err = AllgatherObjects(w, v)
		check(errors.Is(err, ErrType), "AllgatherObjects: %v", err)
		err = SendObject(w, (*int)(nil), 0, 0)
		check(errors.Is(err, ErrType) && strings.Contains(err.Error(), "nil *int"), "SendObject: %v", err)
		v, err = BcastObject(w, v, 0)
		check(err == nil && v.Name == "good", "BcastObject of a pointer: %v, %v", v, err)
	})
}

func TestObjectsOfAnInterfaceType(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		v, err := BcastObject[any](w, "text", 0)
		check(err == nil && v == "text", "BcastObject: %v, %v", v, err)
		all, err := AllgatherObjects[any](w, []any{1, nil, "text"}[w.Rank()])
		check(err == nil && reflect.DeepEqual(all, []any{1, nil}), "AllgatherObjects: %v, %v", all, err)
	})
}

// What a rank takes for a length may be the value of another call.
func TestLengthsOfOtherCalls(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		for _, length := range []int64{-5, 1 << 46, 1 << 62} {
			var err error
			if w.Rank() == 0 {
				_, err = BcastValue(w, length, 0)
				check(err == nil, "%v", err)
				_, err = GatherAlloc(w, []complex128{1}, 0)
				check(errors.Is(err, ErrCount), "GatherAlloc after a length of %d: %v", length, err)
				_, err = ScatterValues(w, []int64{length, length}, 0)
				check(err == nil, "%v", err)
				continue
			}
			if length != 1<<46 {
				_, err = BcastObject(w, "", 0)
				check(errors.Is(err, ErrCount) || errors.Is(err, ErrType), "BcastObject of length %d: %v", length, err)
			} else {
				_, err = BcastValue(w, length, 0)
				check(err == nil, "%v", err)
			}
			_, err = GatherValues(w, length, 0)
			check(err == nil, "%v", err)
			if length == 1<<62 {
				_, err = ScatterObjects(w, []string{}, 0)
				check(errors.Is(err, ErrCount), "ScatterObjects: %v", err)
			} else {
				_, err = ScatterValues(w, []int64{}, 0)
				check(err == nil, "%v", err)
			}
		}
	})
}

// A value of another type than the sender's is ErrType, with both named.
func TestObjectOfAnotherType(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		var err error
		if w.Rank() == 0 {
			_, err = BcastObject(w, "text", 0)
			check(err == nil, "at the root: %v", err)
			return
		}
		_, err = BcastObject(w, 1, 0)
		check(errors.Is(err, ErrType) && strings.Contains(err.Error(), "do not decode into a int"), "%v", err)
	})
}

// The errors name the call that the program made, and mistakes are found before a rank takes part.
func TestValueCallsNameThemselves(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		calls := map[string]func(c *Comm, root int) error{
			"BcastValue":     func(c *Comm, root int) error { _, err := BcastValue(c, 1, root); return err },
			"ReduceValue":    func(c *Comm, root int) error { _, err := ReduceValue(c, 1, Sum, root); return err },
			"GatherValues":   func(c *Comm, root int) error { _, err := GatherValues(c, 1, root); return err },
			"ScatterValues":  func(c *Comm, root int) error { _, err := ScatterValues(c, []int{1, 2}, root); return err },
			"BcastObject":    func(c *Comm, root int) error { _, err := BcastObject(c, "", root); return err },
			"GatherObjects":  func(c *Comm, root int) error { _, err := GatherObjects(c, "", root); return err },
			"ScatterObjects": func(c *Comm, root int) error { _, err := ScatterObjects(c, []string{"", ""}, root); return err },
			"GatherAlloc":    func(c *Comm, root int) error { _, err := GatherAlloc(c, []int{1}, root); return err },
		}
		for name, call := range calls {
			err := call(w, 2)
			check(errors.Is(err, ErrRoot) && strings.HasPrefix(err.Error(), "mpi: "+name+":"), "%s: %v", name, err)
			check(errors.Is(call(nil, 0), ErrComm), "%s on no communicator: %v", name, call(nil, 0))
		}
		_, err := AllreduceValue(w, 1, nil)
		check(errors.Is(err, ErrOp) && strings.HasPrefix(err.Error(), "mpi: AllreduceValue:"), "%v", err)
		_, err = AllgatherValues(w, "text")
		check(errors.Is(err, ErrType) && strings.HasPrefix(err.Error(), "mpi: AllgatherValues:"), "%v", err)
		_, err = AllgatherAlloc(w, []*int{})
		check(errors.Is(err, ErrType) && strings.HasPrefix(err.Error(), "mpi: AllgatherAlloc:"), "%v", err)
		_, err = AllgatherObjects[string](nil, "")
		check(errors.Is(err, ErrComm), "%v", err)
		check(Barrier(w) == nil, "Barrier")
	})
}

func TestSet(t *testing.T) {
	everywhere(t, func(t *testing.T, run runner) {
		run(2, func(w *Comm) {
			other := 1 - w.Rank()
			var s Set
			check(s.Wait() == nil && s.Len() == 0, "Wait of an empty set")
			in, out := make([]int, 8), make([]int, 8)
			for round := range 3 {
				for i := range in {
					out[i] = 100*w.Rank() + 10*round + i
					s.Add(Irecv(w, in[i:i+1], other, i))
				}
				for i := range out {
					s.Add(Isend(w, out[i:i+1], other, i))
				}
				check(s.Len() == 16, "%d requests", s.Len())
				for done, err := false, error(nil); round == 1 && !done; {
					done, err = s.Test()
					check(err == nil, "Test: %v", err)
				}
				check(s.Wait() == nil && s.Len() == 0, "Wait in round %d", round)
				for i, v := range in {
					check(v == 100*other+10*round+i, "in[%d] is %d in round %d", i, v, round)
				}
			}
		})
	})
}

// What cannot be started, and what cannot be waited for, is an error of Wait; the other requests end all the same.
func TestSetWithMistakes(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		other := 1 - w.Rank()
		in, out := make([]int, 1), []int{7 + w.Rank()}
		var s Set
		s.Add(Isend(w, out, 2, 0)) // there is no rank 2
		s.Add(Irecv(w, in, other, 0))
		s.Add(nil, nil)
		s.Add(Isend(w, out, other, 0))
		err := s.Wait()
		check(errors.Is(err, ErrRank) && in[0] == 7+other, "%v, %v", err, in)
		check(s.Wait() == nil, "the set keeps an error")

		in[0] = 0
		r, err := Irecv(w, in, other, 1)
		s.Add(r, err)
		s.Add(r, nil)
		s.Add(Isend(w, out, other, 1))
		err = s.Wait()
		check(errors.Is(err, ErrRequest) && in[0] == 7+other && s.Len() == 0, "%v, %v", err, in)
	})
}

func TestSetAllocatesNothing(t *testing.T) {
	overLoop(t)(1, func(w *Comm) {
		in, out := make([]int, 1), make([]int, 1)
		var s Set
		once := func() {
			s.Add(Irecv(w, in, 0, 0))
			s.Add(Isend(w, out, 0, 0))
			check(s.Wait() == nil, "Wait")
		}
		once()
		if n := testing.AllocsPerRun(100, once); n != 0 {
			t.Errorf("%v allocations for two requests", n)
		}
	})
}

func TestTextsForPeople(t *testing.T) {
	overLoop(t)(2, func(w *Comm) {
		me, other := w.Rank(), 1-w.Rank()
		is := func(v any, want string) { check(fmt.Sprint(v) == want, "%q; want %q", fmt.Sprint(v), want) }
		is(w, fmt.Sprintf("world (rank %d of 2)", me))
		is((*Comm)(nil), "no communicator")
		in := make([]int, 1)
		r, err := Irecv(w, in, AnySource, AnyTag)
		check(err == nil, "%v", err)
		is(r, "Irecv from any rank, tag any, on world")
		q, err := Isend(w, []int{1}, other, 7)
		check(err == nil, "%v", err)
		is(q, fmt.Sprintf("Isend to %d, tag 7, on world", other))
		st, err := r.Wait()
		check(err == nil && WaitAll(q) == nil, "%v", err)
		is(st, fmt.Sprintf("8 bytes from %d, tag 7", other))
		b, err := Ibarrier(w)
		check(err == nil, "%v", err)
		is(b, "Ibarrier, on world")
		check(WaitAll(b) == nil, "Ibarrier")
		is((*Request)(nil), "no request")
		is(Layout{}, "no layout")
		is(Vector(3, 1, 2, Of[float64]()), "layout of float64: 24 bytes within 40, extent 40")
		half, err := w.Split(me, 0)
		check(err == nil, "%v", err)
		is(half, half.Name()+" (rank 0 of 1)")
		is(half.Group(), fmt.Sprintf("[%d]", me))
		is(w.Group(), "[0-1]")
		is((*Group)(nil), "no group")
		check(half.Free() == nil, "Free")
	})
}

// A context that has ended at one rank does not keep the others from the second part of a call, and calls after it are
// right.
func TestContextEndsNoCallOfTwoParts(t *testing.T) {
	overLoop(t)(3, func(w *Comm) {
		c := w
		if w.Rank() == 1 {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			c = w.WithContext(ctx)
		}
		name, err := BcastObject(c, fmt.Sprint("from ", w.Rank()), 2)
		check(err == nil && name == "from 2", "BcastObject: %q, %v", name, err)
		all, err := AllgatherAlloc(c, make([]int, w.Rank()))
		check(err == nil && len(all) == 3 && len(all[2]) == 2, "AllgatherAlloc: %v, %v", all, err)
		objects, err := GatherObjects(c, w.Rank(), 1)
		check(err == nil && (w.Rank() != 1 || len(objects) == 3), "GatherObjects: %v, %v", objects, err)
		mine, err := ScatterObjects(c, []int{5, 6, 7}, 0)
		check(err == nil && mine == 5+w.Rank(), "ScatterObjects: %d, %v", mine, err)
		sum, err := AllreduceValue(w, 1, Sum)
		check(err == nil && sum == 3, "AllreduceValue: %d, %v", sum, err)
	})
}
