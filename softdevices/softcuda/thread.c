/* Threads of the library: they take no signals, or, if the knob says so, those that their maker takes. */
#include "exec.h"

#include <signal.h>

bool thread_start(pthread_t *t, const char *name, void *(*run)(void *), void *arg)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	if (!lib.knobs.signals)
		pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(t, NULL, run, arg);
	if (!lib.knobs.signals)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pthread_setname_np(*t, name);
	return !err;
}
