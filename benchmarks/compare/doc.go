// Compare measures this library, Open MPI and MPICH with the same programs, written in Go for ours and in C for the
// others (benchmarks/peers), each rank pinned to a core if there are enough. In each round the libraries run in turn,
// once forward and once backward.
//
// Compare watches the state of the machine (gauge.go). Before and after each turn it measures how long a cache line
// takes between the two processors of the ranks, and discards a turn during which that time changed by more than 1.5
// times. Of a round it counts the turns whose gauges are all within 1.5 times of the least. A library without such a
// turn gets another one, at most two for each library and a tenth of the whole time. Compare takes ratios within a
// round only, so they compare libraries in the same state. A round that is still incomplete counts for the libraries
// that it has.
//
//	go run ./benchmarks/compare [-quick] [-cores N] [-rounds N] [-only NAME,NAME] [-limit 30s] [-out DIR]
//	go run ./benchmarks/compare [-cores N] -from DIR [-out DIR]
//
// For every measurement it writes three files. NAME.md is a table with the median of each library, the median of the
// rounds in the quiet state, and the spread; the median of the ratios ours / the best peer of each round, the same of
// the quiet state, and the gauge. NAME.svg shows the medians. NAME.json has the measured values, from which -from makes
// the other two again. README.md in the same folder has the least and the greatest ratio of each measurement, the
// share of its rows with at most 0.8 and at most 1.0 of the best peer's time, and a hand-written summary between two
// marks, which compare keeps. At its end compare prints that table for the measurements that it has done. Compare
// reports a library that is missing, crashes, fails or exceeds the limit, with the reason, and does not try that run
// again.
// After an interrupt it writes the results that it has.
//
// Measurements named tcp-… run between two hosts, which scripts/hosts makes of namespaces (hosts.go). They need root
// and Linux; elsewhere compare leaves them out and says so. A bare socket (benchmarks/peers/socket.c) is the limit
// there: it is not a peer, and has ratios of its own.
//
// Operations on windows of one host have a limit too: the same loads, stores and atomic instructions without any
// library (benchmarks/peers/memory.c). Measurements named win_… have a row for each kind of window, and a column for
// the calls of each epoch.
//
// Measurements named rdma-… run in guests, which scripts/guest boots (guest.go): QEMU emulates the machine in software,
// and its kernel has soft-RoCE. They need root and Linux on amd64; elsewhere, and with -quick, compare leaves them out.
// Each run is a guest of its own, in which scripts/guest-bench makes several short runs. The peer is Open MPI over UCX,
// the limit Debian's perftest. These numbers compare the costs of protocols, and say nothing about hardware.
//
// Measurements named ucx-… go over UCX in shared memory, and those named ucx-tcp-… over its TCP on this host, for Open
// MPI too. The limit is UCX's own ucx_perftest, which scripts/ucx-perftest runs.
//
// -cores N measures another set (cores.go), of a host on which this process may use N cores or more: each rank has a
// core of its own. The set is the collective calls of 4, 8 and 16 ranks up to 1 MiB, as far as there are cores for
// them; two ranks in both directions; latency, rate and bandwidth of N/2 pairs at once; fan-in from N-1 ranks; and
// halos of N ranks. A round takes about a minute and a half. The results have a folder of their own, cores-N, since
// measurements of both sets have the same names. -from needs no such host, and needs the same -cores.
//
// The whole set is in plan.go, collective.go, onesided.go, tcp.go, ucx.go and rdma.go. -quick measures a part of a set
// in the same way, in fewer rounds and with less time for each figure. It writes to a folder of its own, and so does
// not replace the full results.
//
//	Owns:     the programs to run, their order, the turns that count, the gauge, the tables, the contents of the
//	          pictures
//	May call: benchmarks/internal/picture, benchmarks/harness; as programs go, gorun, hostrun, scripts/hosts,
//	          scripts/guest, cc, and the compilers and launchers of the peers
//	Never:    import package mpi; measure anything itself except the gauge and the wall time of whole commands
package main
