package main

import (
	"time"

	"github.com/gorun-mpi/mpi/internal/tools/partrun"
)

// ways are those that a message from device to device can take between processes of one host. The log must agree.
var ways = []struct {
	name   string
	env    []string
	mapped mapping
}{
	{"one copy", nil, oneCopy},
	{"pinned memory", []string{"GORUN_CUDA_SHARE=0"}, notMapped},
	{"tcp", []string{"GORUN_TRANSPORTS=tcp"}, whatever},
}

// correctness runs what must be right on any device. Ranks are processes, which share one device if there is one only.
func (c *check) correctness() {
	c.Printf("\ncorrectness\n")
	installed := []string{"GORUN_TEST_GPU=installed"}
	// It is written for one device or two.
	c.Part("accel/cuda: the conformance test of drivers", partrun.Command{Limit: time.Minute,
		Env: append(installed, visible(2)), Args: []string{"accel-cuda.test", "-test.short", "-test.run=^TestConformance$"}})
	c.Part("gpu: its tests, 3 ranks in one process", partrun.Command{Limit: time.Minute, Env: installed,
		Args: []string{"gpu.test", "-test.short", "-test.run=^TestInstalled$"}})
	for _, w := range ways {
		c.Part("gpu: its tests, 4 ranks, by "+w.name, gorun(40*time.Second,
			append([]string{"GORUN_TEST_ROLE=rank"}, w.env...), 4, w.mapped, "gpu.test"))
	}
	const few = " -i 3 -x 1 -c"
	for _, w := range ways {
		c.Part("messages of 1 B to 4 MiB, D D, by "+w.name, gorun(30*time.Second, w.env, 2, w.mapped,
			"latency -d cuda D D -m 1:4194304"+few))
	}
	c.Part("messages of 1 B to 4 MiB, D H", gorun(30*time.Second, nil, 2, whatever,
		"latency -d cuda D H -m 1:4194304"+few))
	c.Part("messages of 1 B to 4 MiB, H D", gorun(30*time.Second, nil, 2, whatever,
		"latency -d cuda H D -m 1:4194304"+few))
	c.Part("windows of 16 messages, a buffer each, D D", gorun(30*time.Second, nil, 2, oneCopy,
		"bw -d cuda D D -m 1:262144 -W 16 -b multiple"+few))
	c.Part("windows in both directions, D D", gorun(30*time.Second, nil, 2, oneCopy,
		"bibw -d cuda D D -m 1024:1048576 -W 8 -b multiple"+few))
	c.Part("collective calls, 4 ranks", gorun(40*time.Second, nil, 4, whatever, "collective allgather,allreduce,"+
		"alltoall,bcast,gather,reduce,reduce_scatter_block,scatter -d cuda -m 8:65536"+few))
	c.Part("a message of 256 MiB, D D", gorun(40*time.Second, nil, 2, oneCopy,
		"latency -d cuda D D -m 256M:256M -i 1 -x 0 -c"))
}
