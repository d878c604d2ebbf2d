// Compare measures this library, Open MPI and MPICH with the same programs, written in Go for ours and in C for
// theirs (benchmarks/peers), each rank pinned to a core where there are enough. In each round the libraries run by
// turns, once forward and once backward.
//
// The state of the machine is watched (gauge.go): before and after each turn compare measures how long a cache line
// takes between the two processors that the ranks have. A turn is thrown out when that changed by more than 1.5 times
// while it lasted. Of a round those turns count whose gauges are all within 1.5 times of the least; a library that has
// none of them gets another turn, at most two for each library and a tenth of the whole time. So the ratios, which are
// taken within a round, compare libraries in the same state. A round that is not complete by then counts for the
// libraries that it has.
//
//	go run ./benchmarks/compare [-quick] [-rounds N] [-only NAME,NAME] [-limit 30s] [-out DIR]
//	go run ./benchmarks/compare -from DIR [-out DIR]
//
// For every measurement it writes three files. NAME.md is a table with the median of each library, the median of the
// rounds in the quiet state, and the spread; the median of the ratios ours / the best peer of each round, the same of
// the quiet state, and the gauge. NAME.svg shows the medians. NAME.json has the measured values, from which -from makes
// the other two again. README.md in the same folder has the least and the greatest ratio of each measurement, and a
// summary between two marks, which is written by hand and kept. A library that is missing, fails or runs into the limit
// is reported with the reason, and that run is not tried again. An interrupt ends the measuring; compare then writes
// the results that it has.
//
// Measurements named tcp-… are made between two hosts, which scripts/hosts makes of namespaces (hosts.go). That
// needs root and Linux; elsewhere they are left out, and compare says so. A bare socket (benchmarks/peers/socket.c)
// is the limit there: it is no peer, and has ratios of its own.
//
// Measurements named rdma-… are made in guests, which scripts/guest boots (guest.go): machines that QEMU emulates in
// software, whose kernel has soft-RoCE. That needs root and Linux on amd64; elsewhere, and with -quick, they are
// left out. Each run is a guest of its own, in which scripts/guest-bench makes several short runs. The peer is Open
// MPI over UCX, the limit Debian's perftest. Such numbers compare the costs of protocols, and say nothing about
// hardware.
//
// Measurements named ucx-… go over UCX in shared memory, those named ucx-tcp-… over its TCP on this host, Open MPI's
// too; the limit is UCX's own ucx_perftest, which scripts/ucx-perftest runs.
//
// The set is in plan.go, collective.go, tcp.go, ucx.go and rdma.go. -quick measures a part of it in the same way,
// in fewer rounds and with less time for each figure; it writes to a folder of its own, so that it does not replace
// the full results.
//
// Owns: what is run, in which order, what counts, the gauge, the tables, and what the pictures show.
// May call: benchmarks/internal/picture, benchmarks/harness; as programs go, gorun, hostrun, scripts/hosts,
// scripts/guest, cc, and the compilers and launchers of the peers.
// Never: imports package mpi or measures anything itself but the gauge and the wall time of whole commands.
package main
