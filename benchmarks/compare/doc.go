// Compare measures this library, Open MPI and MPICH with the same programs, written in Go for ours and in C for theirs
// (benchmarks/peers). The libraries run by turns (ours, theirs, the other's, ours, …), so that a noisy minute hits all
// of them, each rank pinned to a core where there are enough.
//
//	go run ./benchmarks/compare [-quick] [-rounds N] [-only NAME,NAME] [-limit 20s] [-out DIR]
//	go run ./benchmarks/compare -from DIR [-out DIR]
//
// For every measurement it writes three files: NAME.md, a table with the median, the quietest round and the spread
// of each library, and the ratio of our median to the better one of theirs; NAME.svg, the same as a picture; and
// NAME.json, what was measured, from which -from makes the other two again. README.md in the same folder has the least
// and the greatest ratio of each measurement. A library that is missing, fails or runs into the limit is reported with
// the reason, and that run is not tried again. An interrupt ends the measuring; what there is by then is written.
//
// Measurements named tcp-… are made between two hosts, which scripts/hosts makes of namespaces (hosts.go). That needs
// root and Linux; elsewhere they are left out, and compare says so. A bare socket (benchmarks/peers/socket.c) is the
// limit there: it is no peer, and has ratios of its own.
//
// Measurements named rdma-… are made in guests, which scripts/guest boots (guest.go): machines that QEMU emulates in
// software, whose kernel has soft-RoCE. That needs root and Linux on amd64; elsewhere, and with -quick, they are left
// out. Each run is a guest of its own, in which scripts/guest-bench makes several short runs. The peer is Open MPI over
// UCX, the limit Debian's perftest. Such numbers compare the costs of protocols, and say nothing about hardware.
//
// The set is in plan.go, tcp.go and rdma.go. -quick takes smaller numbers and leaves out what is slow; it writes to a
// folder of its own, so that it does not replace the full results.
//
// Owns: what is run, in which order, the tables, and what the pictures show.
// May call: benchmarks/internal/picture, benchmarks/harness; as programs go, gorun, hostrun, scripts/hosts,
// scripts/guest, cc, and the compilers and launchers of the peers.
// Never: imports package mpi or measures anything itself but the wall time of whole commands.
package main
