package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/gorun-mpi/mpi/accel"
	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// The bare pull is what a message from device to device of one host cannot be faster than: another process has the
// sender's memory open and copies it, and that is all.

// asPuller makes this program the other process: pull HANDLE OFFSET SIZE BYTES… prints the microseconds of a copy of
// each number of bytes.
const asPuller = "pull"

// pulls returns the time in microseconds of a bare pull of each size.
func (c *check) pulls(sizes []int64) (map[int64]float64, error) {
	d, err := accel.InUse()
	if err != nil {
		return nil, err
	}
	m, err := d.Alloc(0, slices.Max(sizes))
	if err != nil {
		return nil, err
	}
	handle, offset, err := d.Export(m)
	if err != nil {
		return nil, errors.Join(err, d.Free(m))
	}
	args := []string{c.Self, asPuller, hex.EncodeToString(handle), fmt.Sprint(offset), fmt.Sprint(m.Size)}
	for _, n := range sizes {
		args = append(args, fmt.Sprint(n))
	}
	out, err := c.Output(partrun.Command{Limit: 30 * time.Second, Args: args})
	if err = errors.Join(err, d.Free(m)); err != nil {
		return nil, err
	}
	var times map[int64]float64
	return times, json.Unmarshal([]byte(out), &times)
}

func pullMain(args []string, stdout, stderr io.Writer) int {
	times, err := pull(args)
	if err != nil {
		fmt.Fprintln(stderr, "pull:", err)
		return failed
	}
	b, _ := json.Marshal(times)
	fmt.Fprintf(stdout, "%s\n", b)
	return 0
}

func pull(args []string) (map[int64]float64, error) {
	if len(args) < 4 {
		return nil, errors.New("wanted a handle, an offset, a length and sizes")
	}
	handle, err := hex.DecodeString(args[0])
	if err != nil {
		return nil, err
	}
	var n []int64
	for _, a := range args[1:] {
		v, err := strconv.ParseInt(a, 10, 64)
		if err != nil || v < 0 {
			return nil, fmt.Errorf("%q is no number of bytes", a)
		}
		n = append(n, v)
	}
	offset, size, sizes := n[0], n[1], n[2:]
	d, err := accel.InUse()
	if err != nil {
		return nil, err
	}
	own, err := d.Alloc(0, slices.Max(sizes))
	if err != nil {
		return nil, err
	}
	from, err := d.Open(0, handle, size)
	if err != nil {
		return nil, errors.Join(err, d.Free(own))
	}
	times := map[int64]float64{}
	for _, bytes := range sizes {
		if offset+bytes > size {
			err = fmt.Errorf("%d bytes at %d of %d", bytes, offset, size)
		}
		if err == nil {
			times[bytes], err = medianCopy(d, own.Base, from+uint64(offset), bytes)
		}
	}
	return times, errors.Join(err, d.Close(0, from), d.Free(own))
}

// medianCopy is how long a copy takes from its start until the driver says that it has ended, in microseconds.
func medianCopy(d accel.Driver, dst, src uint64, n int64) (float64, error) {
	var all []float64
	for begun := time.Now(); len(all) < 200 && (len(all) < 5 || time.Since(begun) < time.Second); {
		start := time.Now()
		ev, err := d.Copy(0, dst, src, n)
		for done := false; err == nil && !done; {
			done, err = d.Done(0, ev)
		}
		if err != nil {
			return 0, err
		}
		all = append(all, float64(time.Since(start))/1e3)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}
