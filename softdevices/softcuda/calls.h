/* Layer calls: what the driver does with memory, by context, stream, process and adapter. */
#ifndef CALLS_H
#define CALLS_H

#include "exec.h"

/* peers.c */
uint64_t process_started(int pid);
int fd_of_process(int pid, int fd, uint64_t ino);
int device_of_physical(int physical);

#endif
