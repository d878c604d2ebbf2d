// Compare measures this library beside Open MPI and MPICH: the same programs, written in Go for ours and in C for
// them (benchmarks/peers), started in turn (ours, theirs, the other's, ours, …) so that a noisy minute hits all of
// them, each rank pinned to a core where there are enough.
//
//	go run ./benchmarks/compare [-quick] [-rounds N] [-only NAME,NAME] [-limit 20s] [-out DIR]
//	go run ./benchmarks/compare -from DIR [-out DIR]
//
// For every measurement it writes three files: NAME.md, a table with the median, the quietest round and the spread
// for each library and the ratio of our median to the better one of theirs, beside the figure that is asked for;
// NAME.svg, the same as a picture; and NAME.json, what was measured, from which -from makes the other two again.
// README.md in the same folder sums up what was asked and what was reached. A library that is missing, fails or runs
// into the limit is reported with the reason, and that run is not tried again. An interrupt ends the measuring; what
// there is by then is written.
//
// Measurements named tcp-… are made between two hosts that scripts/hosts makes of namespaces (stage.go), for which this
// must run as root on Linux; otherwise they are left out, and that is said. Beside the peers they have a bare socket
// (benchmarks/peers/socket.c) as the limit: it is no peer, and has ratios and goals of its own.
//
// Measurements named rdma-… are made in guests that scripts/guest boots (guest.go): machines that QEMU emulates in software,
// whose kernel has soft-RoCE. That needs root and Linux on amd64; otherwise, and with -quick, they are left out. Each run
// is a guest of its own, in which scripts/guest-bench makes several short runs. The peer is Open MPI over UCX, the limit
// Debian's perftest. Such numbers say what one protocol costs beside another, and nothing about hardware.
//
// The set is in plan.go, tcp.go and rdma.go, what is asked of it in goals.go. -quick takes smaller numbers and leaves out what
// is slow; it writes to a folder of its own, so that it does not replace the full results.
//
// Owns: what is run, in which order, and the tables and pictures.
// May call: the go command, gorun, hostrun, scripts/hosts and scripts/guest, cc, mpicc and mpirun of the peers; all as programs.
// Never: imports package mpi or measures anything itself but the wall time of whole commands.
package main
