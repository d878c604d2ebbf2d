package shm

// A device whose sleep is joined with that of others (transport.Joint) has two descriptors. Descriptor is the bell that
// is rung for who is at rest: after Arm(level, false), and for wire.Wake. It stays silent while the rank polls, and
// while a thread of it sleeps on HeldDescriptor: so one arrival wakes one sleeper.

// Descriptor is transport.Joint's: the bell that Arm(level, false) leads to, and wire.Wake in any case.
func (d *Device) Descriptor() int { return d.bellFD }

// Clear is transport.Joint's.
func (d *Device) Clear() { silence(d.bellFD) }

// Join is called before the first Arm: from then on who arms with hold sleeps on HeldDescriptor, and nobody calls Park.
// Whatever ends a sleep here rings a bell, so wake is not needed.
func (d *Device) Join(wake func()) { d.joined = true }

// HeldDescriptor is readable when what Arm(level, true) has asked for is there. It is the device's, and closed by its
// Close.
func (d *Device) HeldDescriptor() int { return d.heldFD }

// ClearHeld is Clear after a sleep on HeldDescriptor.
func (d *Device) ClearHeld() { silence(d.heldFD) }
