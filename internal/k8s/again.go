package k8s

// FailuresVar is the variable of a pod that has how many pods of its index have failed before. Only pods of a Job with
// Again have it.
const FailuresVar = "JOB_INDEX_FAILURE_COUNT"

// failuresPath is where Kubernetes keeps that number (since 1.29).
const failuresPath = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"

func failuresVariable() envVar {
	return envVar{FailuresVar, valueFrom{FieldRef: &fieldRef{failuresPath}}}
}

// readmit has Kubernetes make a pod again that has failed, up to so many times for each index. code is the exit code of
// a pod that wants it.
//
// It waits until the old pod has ended. The index 0 is the job itself: with its success the Job succeeds, whatever pods
// are missing then, and a pod that exits with a code of its own fails the Job. Only a pod that was killed or told to
// end, or that has lost index 0, is made again; if that is index 0, it finds in FailuresVar that it comes too late, and
// exits with such a code.
func (s *jobSpec) readmit(times, code int) {
	s.BackoffLimitPerIndex = &times
	s.PodReplacementPolicy = "Failed"
	s.PodFailurePolicy = &podFailurePolicy{[]failureRule{{"FailJob",
		exitCodes{"gorun", "NotIn", []int{code, 128 + 9, 128 + 15}}}}}
	s.SuccessPolicy = &successPolicy{[]successRule{{"0"}}}
}
