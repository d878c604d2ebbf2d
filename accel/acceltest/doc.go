// Package acceltest is an accelerator in this process, for tests: a [Machine] with devices, and on it one [Process], a
// driver of its own, for each rank that a test has. It is as unkind as the device that was probed:
//
//   - Device memory has addresses that fault when Go touches them, and that mean something in one Process only: the
//     first allocation of each Process has the same address and the same ID.
//   - A copy runs after a random delay, in a goroutine of its stream, and reads its source when it runs. Host memory
//     must be pinned by the same Process, within one Pin.
//   - Memory that is allocated after a Free has the address of what was freed, and another ID.
//   - Free, Close and Unpin while a copy may touch the memory, and a Free of memory that another Process has open, go
//     unpunished until [Machine.Left] names them.
//
// [TestDriver] checks that any implementation of accel.Driver keeps its rules.
// A user's program, which may free what it likes, has [Process.UserAlloc], [Process.UserFree] and [Process.Stream].
//
//	Owns:     the machine, its memory and its streams
//	May call: accel
//	Never:    be imported by anything but tests; touch host memory that is not pinned
package acceltest
