package guard

// toggleCollect has callgrind count the calling thread's instructions from here on, or no longer. Without callgrind it
// does nothing.
func toggleCollect()
