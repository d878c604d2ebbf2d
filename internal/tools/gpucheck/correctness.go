package main

import "time"

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
	c.printf("\ncorrectness\n")
	installed := []string{"GORUN_TEST_GPU=installed"}
	// It is written for one device or two.
	c.part("accel/cuda: the conformance test of drivers", command{limit: time.Minute, env: append(installed, visible(2)),
		args: []string{"accel-cuda.test", "-test.short", "-test.run=^TestConformance$"}})
	c.part("gpu: its tests, 3 ranks in one process", command{limit: time.Minute, env: installed,
		args: []string{"gpu.test", "-test.short", "-test.run=^TestInstalled$"}})
	for _, w := range ways {
		c.part("gpu: its tests, 4 ranks, by "+w.name, gorun(40*time.Second,
			append([]string{"GORUN_TEST_ROLE=rank"}, w.env...), 4, "gpu.test").as(w.mapped))
	}
	const few = " -i 3 -x 1 -c"
	for _, w := range ways {
		c.part("messages of 1 B to 4 MiB, D D, by "+w.name, gorun(30*time.Second, w.env, 2,
			"latency -d cuda D D -m 1:4194304"+few).as(w.mapped))
	}
	c.part("messages of 1 B to 4 MiB, D H", gorun(30*time.Second, nil, 2, "latency -d cuda D H -m 1:4194304"+few))
	c.part("messages of 1 B to 4 MiB, H D", gorun(30*time.Second, nil, 2, "latency -d cuda H D -m 1:4194304"+few))
	c.part("windows of 16 messages, a buffer each, D D", gorun(30*time.Second, nil, 2,
		"bw -d cuda D D -m 1:262144 -W 16 -b multiple"+few).as(oneCopy))
	c.part("windows in both directions, D D", gorun(30*time.Second, nil, 2,
		"bibw -d cuda D D -m 1024:1048576 -W 8 -b multiple"+few).as(oneCopy))
	c.part("collective calls, 4 ranks", gorun(40*time.Second, nil, 4, "collective allgather,allreduce,alltoall,bcast,"+
		"gather,reduce,reduce_scatter_block,scatter -d cuda -m 8:65536"+few))
	c.part("a message of 256 MiB, D D", gorun(40*time.Second, nil, 2,
		"latency -d cuda D D -m 256M:256M -i 1 -x 0 -c").as(oneCopy))
}
